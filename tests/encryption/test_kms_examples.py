"""The services of the guide, against moto's KMS and a server that answers as Vault does; key material on S3."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from in_memory_kms import WaitingKms
from s3_servers import S3

import resilient_pq as rpq
from resilient_pq.encryption.key_tools import KeyTools, rotate_master_keys
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.errors import KeyMissingError

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "encryption.md"
TOKEN = "s.token-of-tests"


def of_guide(name: str) -> dict[str, Any]:
    """What a file of the guide defines."""
    (source,) = re.findall(rf'^```python title="{name}"\n(.*?)^```$', GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    defined: dict[str, Any] = {"__name__": name}
    exec(compile(source, name, "exec"), defined)
    return defined


async def keys_come_back(kms: Any, footer: str, column: str) -> None:
    """Keys made through a service are found again through it by somebody else, whether it wraps once or twice."""
    for double_wrapping in (True, False):
        tools = KeyTools(kms, double_wrapping=double_wrapping, data_key_length_bits=256)
        encryption = await tools.encryption(footer, {column: ["ssn"]})
        found = DecryptionKeys.of(KeyTools(kms))
        assert await found.key_of(encryption.footer_key_metadata, None) == encryption.footer_key
        assert await found.key_of(encryption.column_key_metadata["ssn"], "ssn") == encryption.column_keys["ssn"]


async def is_refused(kms: Any, about: bytes) -> bool:
    keys = DecryptionKeys.of(KeyTools(kms))
    assert await keys.key_of(about, "ssn") is None
    return isinstance(keys.missing(about, "ssn").__cause__, PermissionError)


class TestAws:
    async def test_keys_come_back(self, moto_server: S3) -> None:
        client = {
            "endpoint_url": moto_server.endpoint_url,
            "region_name": moto_server.region,
            "aws_access_key_id": moto_server.key,
            "aws_secret_access_key": moto_server.secret,
        }
        kms = of_guide("aws_kms.py")["AwsKms"](**client)
        ids = [kms._client.create_key()["KeyMetadata"]["KeyId"] for _ in range(2)]
        kms._client.create_alias(AliasName=f"alias/{(alias := secrets.token_hex(4))}", TargetKeyId=ids[1])
        await keys_come_back(kms, ids[0], f"alias/{alias}")
        encryption = await KeyTools(kms).encryption(ids[0], {ids[1]: ["ssn"]})
        about = encryption.column_key_metadata["ssn"].replace(ids[1].encode(), b"00000000-0000-0000-0000-000000000000")
        assert await is_refused(kms, about)


class TestStores:
    async def test_key_material_lies_beside_an_object(self, moto_server: S3) -> None:
        url, options = moto_server.url("keys/day.parquet"), moto_server.storage_options
        tools = KeyTools(WaitingKms(), internal_key_material=False)
        how = tools.encryption("kf", {"kc1": ["ssn"]})
        async with rpq.create(url, encryption=how, storage_options=options) as writer:
            await writer.write({"ssn": [1, 2]})
        assert "keys/_KEY_MATERIAL_FOR_day.parquet.json" in moto_server.object_names()
        assert await rotate_master_keys(url, tools, storage_options=options) == 2
        async with rpq.open(url, keys=KeyTools(WaitingKms()), storage_options=options) as file:
            assert (await file.read()).to_pylist() == [{"ssn": 1}, {"ssn": 2}]


class Vault:
    """As much of Vault's transit engine as it takes: it keeps what it encrypted, and gives a name for it."""

    def __init__(self) -> None:
        self.keys = {"everybody", "payroll"}
        self.hidden: set[str] = set()
        self.asked: list[str] = []
        self._known: dict[str, tuple[str, str]] = {}

    async def encrypt(self, request: web.Request) -> web.Response:
        body, name = await self._asked(request)
        ciphertext = f"vault:v1:{base64.b64encode(secrets.token_bytes(60)).decode()}"
        self._known[ciphertext] = name, body["plaintext"]
        return web.json_response({"data": {"ciphertext": ciphertext, "key_version": 1}})

    async def decrypt(self, request: web.Request) -> web.Response:
        body, name = await self._asked(request)
        known, plaintext = self._known.get(body["ciphertext"], ("", ""))
        if known != name:
            raise web.HTTPBadRequest(text='{"errors": ["cipher: message authentication failed"]}')
        return web.json_response({"data": {"plaintext": plaintext}})

    async def _asked(self, request: web.Request) -> tuple[dict[str, str], str]:
        self.asked.append(request.path)
        name = request.match_info["name"]
        if request.headers.get("X-Vault-Token") != TOKEN or name in self.hidden:
            raise web.HTTPForbidden(text='{"errors": ["permission denied"]}')
        if name not in self.keys:
            raise web.HTTPNotFound(text='{"errors": []}')
        return await request.json(), name


@pytest.fixture
async def vault() -> AsyncIterator[tuple[Vault, str]]:
    """A server, and its address."""
    engine, app = Vault(), web.Application()
    app.router.add_post("/v1/transit/encrypt/{name}", engine.encrypt)
    app.router.add_post("/v1/transit/decrypt/{name}", engine.decrypt)
    async with TestServer(app) as server:
        yield engine, str(server.make_url("")).rstrip("/")


class TestVault:
    async def test_keys_come_back(self, vault: tuple[Vault, str]) -> None:
        engine, address = vault
        await keys_come_back(of_guide("vault_kms.py")["VaultKms"](address, TOKEN), "everybody", "payroll")
        assert set(engine.asked) == {
            f"/v1/transit/{what}/{name}" for what in ("encrypt", "decrypt") for name in engine.keys
        }

    async def test_refusals(self, vault: tuple[Vault, str]) -> None:
        engine, address = vault
        kms_of = of_guide("vault_kms.py")["VaultKms"]
        about = (
            await KeyTools(kms_of(address, TOKEN)).encryption("everybody", {"payroll": "ssn"})
        ).column_key_metadata["ssn"]
        assert await is_refused(kms_of(address, "s.other"), about)
        engine.hidden = {"payroll"}
        assert await is_refused(kms_of(address, TOKEN), about)
        engine.asked.clear()
        for name in (b"../../sys/seal", b"payroll/../everybody", b"payroll?x", b"", b".."):
            assert await is_refused(kms_of(address, TOKEN), about.replace(b"payroll", name))
        assert engine.asked == []  # no request went anywhere else

    async def test_a_server_that_fails_is_no_refusal(self, vault: tuple[Vault, str]) -> None:
        engine, address = vault
        kms = of_guide("vault_kms.py")["VaultKms"](address, TOKEN)
        about = (await KeyTools(kms).encryption("everybody", {"payroll": "ssn"})).column_key_metadata["ssn"]
        engine.hidden = set()
        with pytest.raises(KeyMissingError, match="ClientResponseError was raised"):
            await DecryptionKeys.of(KeyTools(kms)).key_of(about.replace(b"vault:v1:", b"vault:v2:"), "ssn")
