"""Credentials that expire while a store is in use, on a real client; and when newer ones are looked for, without one."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.exceptions
import pytest

from resilient_pq.errors import AccessDeniedError, CredentialsExpiredError, StoreError
from resilient_pq.io import RetryPolicy, S3Store, SinkOptions
from resilient_pq.io.s3.s3_credentials import Renewal
from resilient_pq.io.s3.s3_responses import from_s3_error
from resilient_pq.units import MiB

QUICK = RetryPolicy(seconds=20, base_delay=0.001, max_delay=0.01)


def refusal(code: str) -> bytes:
    """The body of an answer."""
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>it has expired</Message></Error>".encode()


EXPIRED = refusal("ExpiredToken")


class Wallet:
    """Where credentials come from; those that are put in replace the ones before."""

    def __init__(self, kind: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._kind, self._folder, self._patch = kind, folder, patch
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        if kind != "environment":
            patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
            patch.setenv("AWS_CONFIG_FILE", str(folder / "config"))
            patch.setenv("AWS_PROFILE", "nightly")
        if kind == "process":
            program = folder / "program.py"
            program.write_text(f"print(open({str(folder / 'token.json')!r}).read())")
            (folder / "config").write_text(f"[profile nightly]\ncredential_process = {sys.executable} {program}\n")

    def put(self, key: str, token: str) -> None:
        if self._kind == "environment":
            self._patch.setenv("AWS_ACCESS_KEY_ID", key)
            self._patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
            self._patch.setenv("AWS_SESSION_TOKEN", token)
        elif self._kind == "profile":
            lines = ["[nightly]", f"aws_access_key_id={key}", "aws_secret_access_key=secret"]
            (self._folder / "credentials").write_text("\n".join([*lines, f"aws_session_token={token}"]))
        else:
            found = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "secret", "SessionToken": token}
            (self._folder / "token.json").write_text(json.dumps(found))


@pytest.fixture(params=["environment", "profile", "process"])
def wallet(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wallet:
    found = Wallet(request.param, tmp_path, monkeypatch)
    found.put("FIRST", "1")
    return found


async def test_what_has_expired_is_looked_up_again(moto_proxy: Any, wallet: Wallet) -> None:
    """Reads, parts, listings, completions: each is repeated, by newer credentials."""
    s3, proxy = moto_proxy
    options = {"endpoint_url": s3.endpoint_url}
    tokens = itertools.count(2)

    def expire(method: str) -> None:
        proxy.on(method, status=403, body=b"" if method == "HEAD" else EXPIRED)
        number = next(tokens)
        wallet.put(f"KEY{number}", str(number))

    async with S3Store(options, retry=RetryPolicy(attempts=1, hedge_after=None)) as store:
        key = f"{s3.bucket}/expiring/a"
        info = await store.put(key, b"0123456789")
        assert "Credential=FIRST/" in proxy.requests[-1].headers["authorization"]
        expire("HEAD")
        await store.head(key)
        assert "Credential=KEY2/" in proxy.requests[-1].headers["authorization"]
        expire("GET")
        assert bytes(await store.read_range(key, 2, 5, pin=info)) == b"234"
        await store.read_range(key, 2, 5, pin=info)  # past botocore, as what follows
        expire("GET")
        assert bytes((await store.read_tail(key, 3)).data) == b"789"
        assert proxy.requests[-1].headers["x-amz-security-token"] == "4"
        expire("PUT")
        sink = await store.create(f"{s3.bucket}/expiring/b", SinkOptions(part_bytes=5 * MiB))
        await sink.write(bytes(6 * MiB), b"1")
        await sink.commit()
        expire("POST")
        await sink.complete()
        expire("GET")
        assert await store.list_names(f"{s3.bucket}/expiring") == ["a", "b"]
        expire("DELETE")
        await store.delete(key)
        assert not await store.exists(key)
    assert s3.read("expiring/b") == bytes(6 * MiB) + b"1"


async def test_newer_credentials_are_waited_for(moto_proxy: Any, wallet: Wallet) -> None:
    """Whoever renews them may be a moment late; a program that begins meanwhile waits as one that runs."""
    s3, proxy = moto_proxy
    for number, code in enumerate(("ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidAccessKeyId")):
        async with S3Store({"endpoint_url": s3.endpoint_url}, retry=QUICK) as store:
            if code == "InvalidAccessKeyId":  # which is not said of what expired, but of what was removed
                await store.put(f"{s3.bucket}/a", b"0123456789")
            proxy.on("PUT", times=5, status=403, body=refusal(code))
            refused = itertools.count(1)
            proxy.arrived = lambda n=number, of=refused: wallet.put(f"LATER{n}", "2") if next(of) == 5 else None
            await store.put(f"{s3.bucket}/a", f"again {code}".encode())
        proxy.arrived = lambda: None
        assert s3.read("a") == f"again {code}".encode()
        assert f"Credential=LATER{number}/" in proxy.requests[-1].headers["authorization"]


@pytest.mark.parametrize("wallet", ["environment"], indirect=True)
@pytest.mark.parametrize("status", [400, 403])
async def test_an_expired_token_is_waited_for_by_a_program_that_begins_with_a_head(
    moto_proxy: Any, wallet: Wallet, status: int
) -> None:
    """Its answer has no body: another request tells that the token has expired."""
    s3, proxy = moto_proxy
    async with S3Store({"endpoint_url": s3.endpoint_url}) as before:
        await before.put(f"{s3.bucket}/a", b"0123456789")
    proxy.on("HEAD", times=5, status=status, body=b"")
    proxy.on("GET", times=5, status=status, body=EXPIRED)
    refused = itertools.count(1)
    proxy.arrived = lambda: wallet.put("LATER", "2") if next(refused) == 10 else None
    async with S3Store({"endpoint_url": s3.endpoint_url}, retry=QUICK) as store:
        assert (await store.head(f"{s3.bucket}/a")).size == 10


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch", "AccessDenied"])
async def test_credentials_that_never_were_right_are_not_waited_for(moto_proxy: Any, wallet: Wallet, code: str) -> None:
    s3, proxy = moto_proxy
    for method in ("PUT", "HEAD", "GET"):
        proxy.on(method, times=100, status=403, body=b"" if method == "HEAD" else refusal(code))
    async with S3Store({"endpoint_url": s3.endpoint_url}, retry=QUICK) as store:
        for request in (store.put(f"{s3.bucket}/a", b"0123456789"), store.head(f"{s3.bucket}/a")):
            with pytest.raises(AccessDeniedError) as caught:
                await request
            assert type(caught.value) is AccessDeniedError
    assert (proxy.count("PUT"), proxy.count("HEAD"), proxy.count("GET")) == (1, 1, 1)


@pytest.mark.parametrize("options", [{"key": "k", "secret": "s", "token": "t"}, {"anon": True}])
async def test_credentials_that_the_caller_names_are_the_callers(moto_proxy: Any, options: dict[str, Any]) -> None:
    s3, proxy = moto_proxy
    async with S3Store({"endpoint_url": s3.endpoint_url, **options}, retry=QUICK) as store:
        proxy.on("GET", times=100, status=403, body=EXPIRED)
        with pytest.raises(AccessDeniedError):
            await store.list_names(s3.bucket)
    assert proxy.count("GET") == 1


# -- when to look --------------------------------------------------------------------------------


def refused(code: str, status: int) -> StoreError:
    """The error of ours for such an answer."""
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    cause = botocore.exceptions.ClientError(response, "HeadObject")
    error = from_s3_error(cause, bucket="b", url="s3://b/a", doing="head_object")
    assert isinstance(error, StoreError)
    error.__cause__ = cause
    return error


def credentials(name: str, token: str | None = "t") -> Any:
    frozen = SimpleNamespace(access_key=name, secret_key="s", token=token)

    async def get_frozen_credentials() -> Any:
        return frozen

    return SimpleNamespace(get_frozen_credentials=get_frozen_credentials)


class Lookups:
    """A renewal, what it finds, and how often it looks; other requests are refused for what they are."""

    def __init__(self, token: str | None = "t") -> None:
        self.count = 0
        self.now = 0.0
        self.first = self.newest = credentials("first", token)
        self.renewal = Renewal(SimpleNamespace(_credentials=self.first), self.look, clock=lambda: self.now)

    async def after(self, error: StoreError) -> StoreError | None:
        async def in_words() -> StoreError:
            return refused("AccessDenied", 403)

        return await self.renewal.after(error, self.first, in_words)

    async def look(self) -> Any:
        self.count += 1
        if isinstance(self.newest, Exception):
            raise self.newest
        return self.newest


@pytest.mark.parametrize(
    ("code", "status", "looks"),
    [
        ("ExpiredToken", 403, True),
        ("ExpiredToken", 400, True),
        ("ExpiredTokenException", 403, True),
        ("RequestExpired", 400, True),
        ("InvalidAccessKeyId", 403, True),
        ("403", 403, True),
        ("400", 400, True),
        ("AccessDenied", 403, False),
        ("SignatureDoesNotMatch", 403, False),
        ("NoSuchKey", 404, False),
        ("404", 404, False),
        ("InternalError", 500, False),
    ],
)
async def test_which_refusals_lead_to_a_look_up(code: str, status: int, looks: bool) -> None:
    found = Lookups()
    found.newest = credentials("second")
    outcome = await found.after(refused(code, status))
    assert (outcome is None, found.count) == (looks, int(looks))


async def test_lasting_credentials_do_not_expire_without_a_word() -> None:
    found = Lookups(token=None)
    error = refused("403", 403)
    assert await found.after(error) is error
    assert found.count == 0


async def test_a_refusal_without_a_word_leads_to_a_look_up_once_a_minute() -> None:
    """Credentials that may not do a thing are no reason to run their process for each request."""
    found = Lookups()
    found.renewal.granted()
    error = refused("403", 403)
    for _ in range(5):
        assert await found.after(error) is error
    assert found.count == 1
    found.now = 61.0
    assert await found.after(error) is error
    assert found.count == 2


async def test_requests_that_fail_together_look_once() -> None:
    found = Lookups()
    found.newest = credentials("second")
    error = refused("ExpiredToken", 403)
    assert [await found.after(error) for _ in range(8)] == [None] * 8
    assert found.count == 1


async def test_a_process_that_fails_for_a_while() -> None:
    found = Lookups()
    found.renewal.granted()
    found.newest = botocore.exceptions.CredentialRetrievalError(provider="custom-process", error_msg="no network")
    outcome = await found.after(refused("ExpiredToken", 403))
    assert isinstance(outcome, CredentialsExpiredError)
    assert outcome.retryable
