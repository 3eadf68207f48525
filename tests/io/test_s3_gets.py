"""GETs that we send ourselves are byte for byte those that botocore would have sent, or it sends them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import pytest
from aiobotocore.awsrequest import AioAWSResponse
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.errors import AccessDeniedError, NotFoundError, ObjectChangedError
from resilient_pq.io import FetchCounters, RetryPolicy, S3Store, counting
from resilient_pq.io.s3.s3_client import S3Client
from resilient_pq.io.s3.s3_gets import amz_date, authorization

WHEN = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
DATA = bytes(range(256)) * 40
CREDENTIALS = {"key": "AKIDEXAMPLE", "secret": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}

# -- signatures --------------------------------------------------------------------------------------

visible = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40).map(lambda text: f"v{text}")
names = st.from_regex(r"x-amz-[a-z][a-z0-9-]{0,10}", fullmatch=True).filter(
    lambda name: name not in ("x-amz-date", "x-amz-content-sha256", "x-amz-security-token")
)


@given(
    key=st.text(min_size=1, max_size=60).filter(lambda key: key.isprintable()),
    extra=st.dictionaries(names, values, max_size=4),
    access_key=visible.map(lambda key: key.replace("/", "-").replace(",", "-")),
    secret_key=visible,
    token=st.none() | visible,
    region=st.sampled_from(["us-east-1", "eu-central-1", "auto"]),
    when=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
)
def test_signatures_are_those_of_botocore(
    key: str,
    extra: dict[str, str],
    access_key: str,
    secret_key: str,
    token: str | None,
    region: str,
    when: datetime,
) -> None:
    from botocore.utils import percent_encode

    when = when.replace(tzinfo=UTC, microsecond=0)
    path = f"/bucket/{percent_encode(key, safe='/~')}"
    request = botocore.awsrequest.AWSRequest("GET", f"https://s3.example.com:9000{path}", headers=dict(extra))
    request.context["payload_signing_enabled"] = True
    credentials = botocore.credentials.Credentials(access_key, secret_key, token)
    with mock.patch("botocore.auth.get_current_datetime", return_value=when):
        botocore.auth.S3SigV4Auth(credentials, "s3", region).add_auth(request)
    headers = {name.lower(): value for name, value in request.headers.items()}
    expected = headers.pop("authorization")
    assert headers["x-amz-date"] == amz_date(when)
    headers["host"] = "s3.example.com:9000"
    found = authorization("GET", path, headers, when=when, region=region, access_key=access_key, secret_key=secret_key)
    assert found == expected


# -- requests ----------------------------------------------------------------------------------------


class Wire:
    """What aiobotocore sends by, and what is sent; every answer is a part of an object."""

    sent: ClassVar[list[Any]] = []  # Every request
    statuses: ClassVar[list[int]] = []  # Of the next answers; 206 without
    _sessions: ClassVar[dict[str, Any]] = {}  # s3fs looks whether all are closed

    def __init__(self, *_: Any, **__: Any) -> None:
        return

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: Any) -> None:
        return

    async def send(self, request: Any) -> Any:
        self.sent.append(request)
        status = self.statuses.pop(0) if self.statuses else 206
        headers = {"content-range": "bytes 0-9/100", "content-length": "10", "etag": '"e"'}
        found = AioAWSResponse(request.url, status, headers if status < 300 else {}, SimpleNamespace())
        found._content = b"" if status < 300 else b"<Error><Code>SignatureDoesNotMatch</Code></Error>"
        return found


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> type[Wire]:
    """Nothing is sent anywhere, and time stands still."""
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_: WHEN)
    monkeypatch.setattr("resilient_pq.io.s3.s3_gets.datetime", SimpleNamespace(now=lambda _: WHEN))
    monkeypatch.setattr(Wire, "sent", [])
    monkeypatch.setattr(Wire, "statuses", [])
    return Wire


def said(request: Any) -> tuple[str, str, dict[str, str]]:
    """A request, without what only counts requests."""
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in request.headers.items()
        if not name.lower().startswith("amz-sdk-")
    }
    return request.method, str(request.url), headers


async def get(client: S3Client, bucket: str, key: str, **parameters: str) -> dict[str, Any]:
    return await client.call("get_object", key, Bucket=bucket, Key=key, **parameters)


SSE_KEY = base64.b64encode(bytes(32)).decode()
REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "aws": (CREDENTIALS, "bucket"),
    "a bucket with dots": (CREDENTIALS, "bu.ck.et"),
    "another region": ({**CREDENTIALS, "client_kwargs": {"region_name": "eu-west-3"}}, "bucket"),
    "session token": ({**CREDENTIALS, "token": "T0KEN/with+signs="}, "bucket"),
    "anonymous": ({"anon": True}, "bucket"),
    "requester pays": ({**CREDENTIALS, "requester_pays": True}, "bucket"),
    "an endpoint": ({**CREDENTIALS, "endpoint_url": "http://127.0.0.1:9000"}, "bucket"),
    "an endpoint with a usual port": ({**CREDENTIALS, "endpoint_url": "https://S3.Example.com:443"}, "bucket"),
    "an endpoint below a path": ({**CREDENTIALS, "endpoint_url": "http://127.0.0.1:9000/s3"}, "bucket"),
    "an endpoint of IPv6": ({**CREDENTIALS, "endpoint_url": "http://[::1]:9000"}, "bucket"),
    "path style": ({**CREDENTIALS, "config_kwargs": {"s3": {"addressing_style": "path"}}}, "bucket"),
    "virtual style": (
        {
            **CREDENTIALS,
            "endpoint_url": "http://s3.example.com",
            "config_kwargs": {"s3": {"addressing_style": "virtual"}},
        },
        "bucket",
    ),
    "dual stack": ({**CREDENTIALS, "config_kwargs": {"s3": {"use_dualstack_endpoint": True}}}, "bucket"),
    "acceleration": ({**CREDENTIALS, "config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "bucket"),
    "signed payloads": ({**CREDENTIALS, "config_kwargs": {"s3": {"payload_signing_enabled": True}}}, "bucket"),
    "an access point": (CREDENTIALS, "arn:aws:s3:us-west-2:123456789012:accesspoint/point"),
    "a key of the customer": (
        {
            **CREDENTIALS,
            "s3_additional_kwargs": {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": SSE_KEY},
        },
        "bucket",
    ),
}


@pytest.mark.parametrize("case", REQUESTS)
async def test_requests_are_those_of_botocore(wire: type[Wire], case: str) -> None:
    """Whatever is learnt from the first GET holds for every other one."""
    options, bucket = REQUESTS[case]
    options = {**options, "config_kwargs": {**options.get("config_kwargs", {}), "http_session_cls": wire}}
    ours, theirs = S3Client(options), S3Client({**options, "fixed_upload_size": True})  # so that they share nothing
    await theirs.connection.filesystem()
    theirs.connection.gets = None
    for client in (ours, theirs):
        await get(client, bucket, "first", Range="bytes=-100")
    for key in ("a/b c/d+e&f=g", "köln/東京~x", "//a/../b?c#d%20e"):
        for more in ({}, {"IfMatch": '"etag"'}):
            wire.sent.clear()
            for client in (ours, theirs):
                await get(client, bucket, key, Range="bytes=0-9", **more)
            assert said(wire.sent[0]) == said(wire.sent[1])
            assert isinstance(wire.sent[0], SimpleNamespace), "it is ours"


async def test_another_kind_of_signature_is_left_to_botocore(wire: type[Wire]) -> None:
    config = {"signature_version": "s3", "http_session_cls": wire}
    client = S3Client({**CREDENTIALS, "config_kwargs": config})
    for _ in range(3):
        await get(client, "bucket", "a", Range="bytes=0-9")
    assert not any(isinstance(request, SimpleNamespace) for request in wire.sent)


KEY = CREDENTIALS["key"]
SIGNED = (
    f"AWS4-HMAC-SHA256 Credential={KEY}/20260203/us-east-1/s3/aws4_request, SignedHeaders=host, Signature={'0' * 64}"
)


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("https://h/a", SIGNED.replace("/s3/", "/s3express/")),
        ("https://h/a", SIGNED.replace(KEY, "ANOTHER")),
        ("https://h/a", SIGNED.replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256")),
        ("https://h/a", "Bearer token"),
        ("https://h/a?X-Amz-Signature=0", ""),
        ("https://h/b", SIGNED),
    ],
)
async def test_what_is_not_understood(wire: type[Wire], url: str, header: str) -> None:
    client = S3Client({**CREDENTIALS, "config_kwargs": {"http_session_cls": wire}})
    await client.connection.filesystem()
    assert client.connection.gets is not None
    headers = {"Authorization": header, "X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}
    right = SimpleNamespace(url="https://h/a", headers={**headers, "Authorization": SIGNED})
    assert await client.connection.gets._parse_request([right], "a") is not None
    wrong = SimpleNamespace(url=url, headers=headers)
    assert await client.connection.gets._parse_request([wrong], "a") is None


async def test_a_session_with_hooks_is_left_to_botocore(wire: type[Wire]) -> None:
    from aiobotocore.session import AioSession

    client = S3Client({**CREDENTIALS, "session": AioSession(), "config_kwargs": {"http_session_cls": wire}})
    await client.connection.filesystem()
    assert client.connection.gets is None


async def test_a_store_that_refuses_our_first_request(wire: type[Wire]) -> None:
    """botocore asks in its place, and from then on."""
    client = S3Client({**CREDENTIALS, "config_kwargs": {"http_session_cls": wire}})
    await get(client, "bucket", "a", Range="bytes=0-9")
    wire.statuses.append(403)
    with counting(FetchCounters()) as counters:
        assert (await get(client, "bucket", "a", Range="bytes=0-9"))["ETag"] == '"e"'
        await get(client, "bucket", "a", Range="bytes=0-9")
    assert counters.requests == 1
    assert [isinstance(request, SimpleNamespace) for request in wire.sent] == [False, True, False, False]


async def test_a_store_that_refuses_later(wire: type[Wire]) -> None:
    """What is refused after that is refused: the permission may be gone."""
    client = S3Client({**CREDENTIALS, "config_kwargs": {"http_session_cls": wire}})
    for _ in range(2):
        await get(client, "bucket", "a", Range="bytes=0-9")
    wire.statuses.append(403)
    with pytest.raises(AccessDeniedError, match="secret key does not belong") as caught:
        await get(client, "bucket", "a", Range="bytes=0-9")
    assert caught.value.status == 403


async def test_credentials_that_are_refreshed(wire: type[Wire]) -> None:
    client = S3Client({**CREDENTIALS, "config_kwargs": {"http_session_cls": wire}})
    await get(client, "bucket", "a", Range="bytes=0-9")
    frozen = SimpleNamespace(access_key="NEWER", secret_key="other", token="another")

    async def get_frozen_credentials() -> Any:
        return frozen

    client.connection.client._request_signer._credentials = SimpleNamespace(
        get_frozen_credentials=get_frozen_credentials
    )
    await get(client, "bucket", "a", Range="bytes=0-9")
    headers = wire.sent[-1].headers
    assert headers["x-amz-security-token"] == "another"
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=NEWER/")
    assert ";x-amz-security-token," in headers["authorization"]


# -- on a server that compares signatures ------------------------------------------------------------


async def test_a_real_server_grants_them(seaweedfs_proxy: Any) -> None:
    s3, proxy = seaweedfs_proxy
    keys = [f"{s3.bucket}/gets/{name}" for name in ("a", "b c+d", "köln~")]
    async with S3Store(s3.storage_options, retry=RetryPolicy(attempts=1)) as store:
        for key in keys:
            await store.put(key, DATA)
        proxy.requests.clear()
        for key in keys:
            tail = await store.read_tail(key, 10)
            assert bytes(await store.read_range(key, 5, 50, pin=tail.info)) == DATA[5:50]
        by_botocore = ["amz-sdk-invocation-id" in request.headers for request in proxy.requests]
        assert by_botocore == [True] + [False] * 5
        await store.put(keys[0], DATA[::-1])
        with pytest.raises(ObjectChangedError):
            await store.read_range(keys[0], 5, 50, pin=tail.info)
        await store.delete(keys[0])
        with pytest.raises(NotFoundError, match="no such object"):
            await store.read_tail(keys[0], 5)
    wrong = {**s3.storage_options, "secret": "wrong"}
    async with S3Store(wrong, retry=RetryPolicy(attempts=1)) as store:
        with pytest.raises(AccessDeniedError):
            await store.read_tail(keys[1], 5)
