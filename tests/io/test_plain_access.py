"""GETs that need no botocore are those that botocore would have made; where it is not sure, they are left to it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from resilient_pq.errors import AccessDeniedError, NotFoundError, ObjectChangedError, StoreError, TransientError
from resilient_pq.io import RetryPolicy, S3Store
from resilient_pq.io.s3.plain_access import PlainAccess
from resilient_pq.io.s3.s3_client import S3Connection
from resilient_pq.io.s3.s3_gets import BucketRequest
from resilient_pq.io.s3.s3_options import s3fs_options
from resilient_pq.io.surroundings import surroundings

ONCE = RetryPolicy(attempts=1, hedge_after=None)
KEYS = {"key": "AKIDEXAMPLE", "secret": "s/ecret+"}
NAMED = {"AWS_ACCESS_KEY_ID": "FROMENV", "AWS_SECRET_ACCESS_KEY": "of/env"}


def access_of(options: Mapping[str, Any]) -> PlainAccess | None:
    return PlainAccess.of(s3fs_options(options), surroundings("s3")[0], 5)


@pytest.fixture(autouse=True)
def nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without credentials, and a home of its own."""
    others = ("AWS_", "FSSPEC_", "REQUESTS_CA_BUNDLE")
    for name in [name for name in os.environ if name.startswith(others) or "proxy" in name.lower()]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


# -- what botocore would do ------------------------------------------------------------------------------


async def by_botocore(options: Mapping[str, Any], bucket: str) -> tuple[BucketRequest | None, tuple[str, ...]]:
    """What it makes of a GET, and the credentials that it signs with."""
    connection = S3Connection(s3fs_options(options), 15, renews=False)
    filesystem = await connection.filesystem()
    sent: list[Any] = []

    def stop(request: Any, **_: Any) -> Any:
        sent.append(request)
        raise ConnectionAbortedError

    connection.client.meta.events.register_last("before-send.s3.GetObject", stop)
    try:
        await filesystem._call_s3("get_object", Bucket=bucket, Key="a/b", Range="bytes=0-9")
    except Exception:
        assert sent, "it refuses the request itself"
    assert connection.gets is not None
    found = await connection.gets._parse_request(sent, "a/b")
    credentials = connection.client._request_signer._credentials
    frozen = await credentials.get_frozen_credentials() if credentials is not None else None
    await connection.close()
    return found, () if frozen is None else (frozen.access_key, frozen.secret_key, frozen.token)


def told(request: BucketRequest) -> tuple[Any, ...]:
    """All but who asks."""
    same = {name: value for name, value in request.headers.items() if name not in ("user-agent", "accept-encoding")}
    return request.base, request.host, request.path, same, request.signed, request.region


regions = st.sampled_from(["us-east-1", "eu-central-1", "ap-southeast-2", "us-gov-west-1", "cn-north-1", "auto"])
endpoints = st.sampled_from(
    [
        "http://127.0.0.1:9000",
        "https://s3.example.com",
        "https://S3.Example.com:443",
        "http://s3.example.com:80/below/",
        "https://s3.eu-west-1.amazonaws.com",
        "http://[::1]:9000",
    ]
)
option_sets = st.fixed_dictionaries(
    {},
    optional={
        "endpoint_url": endpoints,
        "client_kwargs": st.fixed_dictionaries({}, optional={"region_name": regions}),
        "config_kwargs": st.fixed_dictionaries(
            {},
            optional={"s3": st.fixed_dictionaries({"addressing_style": st.sampled_from(["auto", "path", "virtual"])})},
        ),
        "token": st.just("T0KEN/with+signs="),
    },
)
environments = st.fixed_dictionaries(
    {},
    optional={
        "AWS_DEFAULT_REGION": regions,
        "AWS_REGION": regions,
        "AWS_ENDPOINT_URL": endpoints,
        "AWS_ENDPOINT_URL_S3": endpoints,
        "AWS_SESSION_TOKEN": st.just("of the environment"),
        "AWS_LAMBDA_FUNCTION_NAME": st.just("f"),
    },
)


@example({}, {}, "bucket", "options")
@example({"client_kwargs": {"region_name": "us-east-1"}}, {}, "bucket", "environment")
@example({"endpoint_url": "http://s3.example.com:80/below/", "config_kwargs": {"s3": {"addressing_style": "virtual"}}}, {}, "bucket", "options")  # fmt: skip
@given(
    options=option_sets,
    environment=environments,
    bucket=st.sampled_from(["bucket", "bu.ck.et", "Bucket_9", "a--x-s3", "123"]),
    credentials=st.sampled_from(["options", "client", "environment", "anonymous"]),
)
def test_what_is_made_without_botocore_is_what_botocore_makes(
    options: dict[str, Any], environment: dict[str, str], bucket: str, credentials: str
) -> None:
    if credentials == "options":
        options = {**options, **KEYS}
    elif credentials == "client":
        named = {"aws_access_key_id": "OFCLIENT", "aws_secret_access_key": "s"}
        options = {**options, "client_kwargs": {**options.get("client_kwargs", {}), **named}}
    elif credentials == "environment":
        environment = {**environment, **NAMED}
    else:
        options = {**options, "anon": True}
    with mock.patch.dict(os.environ, environment):
        access = access_of(options)
        ours = access and access.bucket_request(bucket)
        if ours is None or access is None:
            return
        theirs, signed_by = asyncio.run(by_botocore(options, bucket))
    assert theirs is not None
    assert told(ours) == told(theirs)
    assert (access.credentials or ()) == signed_by


def test_the_property_is_of_something() -> None:
    found = [access_of({**KEYS, **more}) for more in ({}, {"endpoint_url": "http://h:1"}, {"token": "t"})]
    assert all(access is not None and access.bucket_request("bucket") is not None for access in found)
    assert access_of({"anon": True}) is not None
    with mock.patch.dict(os.environ, NAMED):
        assert access_of({}) is not None


def test_a_region_of_the_configuration_file(nothing_set: Path) -> None:
    (nothing_set / ".aws").mkdir()
    (nothing_set / ".aws/config").write_text(
        "[default]\nregion = eu-west-3\noutput = json\n[profile x]\nsso_start_url=y\n"
    )
    (nothing_set / ".aws/credentials").write_text("[default]\naws_access_key_id=A\naws_secret_access_key=B\n")
    access = access_of(KEYS)
    assert access is not None and access.region == "eu-west-3"
    assert access.credentials == ("AKIDEXAMPLE", "s/ecret+", None)
    theirs, signed_by = asyncio.run(by_botocore(KEYS, "bucket"))
    ours = access.bucket_request("bucket")
    assert ours is not None and theirs is not None and told(ours) == told(theirs)
    assert signed_by == access.credentials


LEFT: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no credentials": ({}, {}),
    "half of them": ({"key": "A"}, {}),
    "half of them in the environment": ({}, {"AWS_ACCESS_KEY_ID": "A"}),
    "two of them": ({**KEYS, "client_kwargs": {"aws_access_key_id": "B", "aws_secret_access_key": "C"}}, {}),
    "a token alone": ({"token": "t"}, NAMED),
    "a profile": ({**KEYS, "profile": "p"}, {}),
    "a profile of the environment": (KEYS, {"AWS_PROFILE": "p"}),
    "a user": ({"username": "u", "password": "p"}, {}),
    "two endpoints": ({**KEYS, "endpoint_url": "http://a", "client_kwargs": {"endpoint_url": "http://b"}}, {}),
    "requester pays": ({**KEYS, "requester_pays": True}, {}),
    "other arguments": ({**KEYS, "s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256"}}, {}),
    "other certificates": ({**KEYS, "client_kwargs": {"verify": False}}, {}),
    "a proxy": ({**KEYS, "config_kwargs": {"proxies": {"http": "http://p"}}}, {}),
    "a proxy of the environment": (KEYS, {"https_proxy": "http://p"}),
    "dual stack": ({**KEYS, "config_kwargs": {"s3": {"use_dualstack_endpoint": True}}}, {}),
    "dual stack of the environment": (KEYS, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
    "another signature": ({**KEYS, "config_kwargs": {"signature_version": "s3"}}, {}),
    "certificates of the environment": (KEYS, {"AWS_CA_BUNDLE": "/x"}),
    "certificates for requests": (KEYS, {"REQUESTS_CA_BUNDLE": "/x"}),
    "endpoints that are to be ignored": (KEYS, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
    "a role": ({}, {"AWS_ROLE_ARN": "r", "AWS_WEB_IDENTITY_TOKEN_FILE": "/t"}),
    "what expires": ({}, {**NAMED, "AWS_CREDENTIAL_EXPIRATION": "2030-01-01T00:00:00Z"}),
    "an older name of the token": ({}, {**NAMED, "AWS_SECURITY_TOKEN": "t"}),
    "options of fsspec": (KEYS, {"FSSPEC_S3_ENDPOINT_URL": "http://h"}),
    "an access point of the endpoint": ({**KEYS, "endpoint_url": "https://s3.eu-west-1.amazonaws.com"}, {}),
    "an empty key": ({"key": "", "secret": "s"}, {}),
    "no port": ({**KEYS, "endpoint_url": "http://h:99999"}, {}),
}


@pytest.mark.parametrize("case", LEFT)
def test_what_is_left_to_botocore(case: str) -> None:
    options, environment = LEFT[case]
    with mock.patch.dict(os.environ, environment):
        assert access_of(options) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config", "[default]\nregion=eu-west-3\ns3 =\n  addressing_style = path\n"),
        ("config", "[default]\nendpoint_url=http://h\n"),
        ("config", "[profile default]\nregion=eu-west-3\n"),
        ("config", "region=eu-west-3\n"),
        ("config", "\xff"),
        ("credentials", "[default]\nregion=eu-west-3\n"),
    ],
)
def test_configuration_files_that_are_left_to_botocore(nothing_set: Path, file: str, text: str) -> None:
    (nothing_set / ".aws").mkdir()
    (nothing_set / ".aws" / file).write_text(text, "latin-1")
    assert access_of(KEYS) is None


def test_configuration_of_fsspec_is_left_to_it(nothing_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec.config

    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": "http://h"})
    assert access_of(KEYS) is None
    monkeypatch.delitem(fsspec.config.conf, "s3")
    assert access_of(KEYS) is not None
    (nothing_set / ".config/fsspec").mkdir(parents=True)
    (nothing_set / ".config/fsspec/a.json").write_text("{}")
    assert access_of(KEYS) is None


# -- on servers that compare signatures ------------------------------------------------------------------


@pytest.fixture
def objects(s3_server: Any) -> tuple[Any, list[str]]:
    names = [f"plain/{name}" for name in ("a", "b c+d", "köln~", "e/f?g#h%20i")]
    for name in names:
        s3_server.client.put_object(Bucket=s3_server.bucket, Key=name, Body=bytes(range(256)) * 40)
    return s3_server, names


async def test_real_servers_grant_them(objects: Any) -> None:
    s3, names = objects
    data = bytes(range(256)) * 40
    async with S3Store(s3.storage_options, retry=ONCE) as store:
        for name in names:
            tail = await store.read_tail(f"{s3.bucket}/{name}", 10)
            assert bytes(await store.read_range(f"{s3.bucket}/{name}", 5, 50, pin=tail.info)) == data[5:50]
        s3.client.put_object(Bucket=s3.bucket, Key=names[-1], Body=data[::-1])
        with pytest.raises(ObjectChangedError):
            await store.read_range(f"{s3.bucket}/{names[-1]}", 5, 50, pin=tail.info)
        with pytest.raises(NotFoundError, match="no such object"):
            await store.read_tail(f"{s3.bucket}/plain/none", 5)
        assert store._client.connection.client is None, "botocore has made no client"


async def test_what_is_refused_is_asked_for_by_botocore(moto_proxy: Any) -> None:
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="plain/a", Body=b"0123456789")
    async with S3Store(s3.storage_options, retry=ONCE) as store:
        proxy.on("GET", status=400, body=b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>")
        assert bytes((await store.read_tail(f"{s3.bucket}/plain/a", 3)).data) == b"789"
        by_botocore = ["amz-sdk-invocation-id" in request.headers for request in proxy.requests]
        assert by_botocore == [False, True]


async def test_credentials_that_expire_are_looked_up_again(moto_proxy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By botocore, which asks the environment as it is then, and from then on."""
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="plain/a", Body=b"0123456789")
    for name, value in {**NAMED, "AWS_SESSION_TOKEN": "1"}.items():
        monkeypatch.setenv(name, value)
    async with S3Store({"endpoint_url": s3.endpoint_url}, retry=ONCE) as store:
        tail = await store.read_tail(f"{s3.bucket}/plain/a", 3)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEWER")
        proxy.on("GET", status=403, body=b"<Error><Code>ExpiredToken</Code></Error>")
        for _ in range(2):
            assert bytes(await store.read_range(f"{s3.bucket}/plain/a", 2, 5, pin=tail.info)) == b"234"
    keys = [request.headers["authorization"].split("=")[1].split("/")[0] for request in proxy.requests]
    assert keys == ["FROMENV", "FROMENV", "NEWER", "NEWER"]


FAULTS: dict[str, tuple[dict[str, Any], type[StoreError]]] = {
    "denied": ({"status": 403, "body": b"<Error><Code>AccessDenied</Code></Error>"}, AccessDeniedError),
    "slow down": ({"status": 503, "body": b"<Error><Code>SlowDown</Code></Error>"}, TransientError),
    "an internal error": ({"status": 500}, TransientError),
    "a redirect": ({"status": 301}, StoreError),
    "a skewed clock": ({"status": 403, "body": b"<Error><Code>RequestTimeTooSkewed</Code></Error>"}, AccessDeniedError),
    "a reset": ({"reset": True}, TransientError),
    "a body that breaks off": ({"cut_after": 1}, TransientError),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_errors_are_those_of_botocore(moto_proxy: Any, fault: str) -> None:
    """The same kind, the same words and the same hint."""
    s3, proxy = moto_proxy
    s3.client.put_object(Bucket=s3.bucket, Key="plain/a", Body=b"0123456789")
    what, _ = FAULTS[fault]
    errors = []
    for more in ({}, {"requester_pays": True}):
        proxy.on("GET", times=3, **what)
        async with S3Store({**s3.storage_options, **more}, retry=ONCE) as store:
            with pytest.raises(StoreError) as caught:
                await store.read_tail(f"{s3.bucket}/plain/a", 3)
        proxy.mend()
        errors.append((type(caught.value), str(caught.value), caught.value.hint, caught.value.status))
    assert errors[0] == errors[1]


def test_nothing_of_botocore_is_imported_to_read(moto_server: Any) -> None:
    moto_server.client.put_object(Bucket=moto_server.bucket, Key="plain/a", Body=b"0123456789")
    script = f"""
import asyncio, os, sys
from resilient_pq.io import S3Store
async def main():
    async with S3Store({moto_server.storage_options!r}) as store:
        assert (await store.read_tail("{moto_server.bucket}/plain/a", 3)).data == b"789"
asyncio.run(main())
found = {{"botocore", "aiobotocore", "s3fs", "fsspec"}} & set(sys.modules)
assert not found, found
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
