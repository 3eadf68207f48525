"""Storage options as others spell them, and those that nobody does."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import s3fs
from aiobotocore.session import AioSession
from botocore.exceptions import HTTPClientError
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.errors import SchemaError, StoreError, UnsupportedError
from resilient_pq.io import S3Store, resolve
from resilient_pq.io.s3.s3_options import s3fs_options
from resilient_pq.io.s3.s3_responses import from_s3_error

#: As s3fs has it, and how Polars, delta-rs, obstore and DuckDB's neighbours write it.
SPELLINGS: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    ({"key": "K"}, [{"aws_access_key_id": "K"}, {"access_key_id": "K"}, {"AWS_ACCESS_KEY_ID": "K"}]),
    ({"secret": "S"}, [{"aws_secret_access_key": "S"}, {"secret_access_key": "S"}]),
    ({"token": "T"}, [{"aws_session_token": "T"}, {"session_token": "T"}, {"aws_token": "T"}]),
    (
        {"endpoint_url": "http://h:1"},
        [
            {"aws_endpoint": "http://h:1"},
            {"aws_endpoint_url": "http://h:1"},
            {"endpoint": "http://h:1"},
            {"AWS_ENDPOINT_URL_S3": "http://h:1"},
        ],
    ),
    (
        {"client_kwargs": {"region_name": "eu-west-1"}},
        [
            {"region": "eu-west-1"},
            {"aws_region": "eu-west-1"},
            {"aws_default_region": "eu-west-1"},
            {"region_name": "eu-west-1"},
        ],
    ),
    ({"anon": True}, [{"skip_signature": "true"}, {"aws_skip_signature": True}]),
    ({"anon": False}, [{"skip_signature": "false"}]),
    ({"profile": "p"}, [{"aws_profile": "p"}]),
    ({}, [{"allow_http": "true"}, {"aws_allow_http": True}, {"aws_region": None}]),
    (
        {"config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        [{"aws_virtual_hosted_style_request": "true"}, {"virtual_hosted_style_request": True}],
    ),
]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(ours, theirs) for ours, spellings in SPELLINGS for theirs in spellings], ids=str
)
def test_a_spelling_of_others(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert s3fs_options(theirs) == ours


def test_what_s3fs_takes_is_left_alone() -> None:
    names = [
        name for name in inspect.signature(s3fs.S3FileSystem.__init__).parameters if name not in ("self", "kwargs")
    ]
    options: dict[str, Any] = dict.fromkeys([*names, "profile", "use_listings_cache", "skip_instance_cache"], "a")
    options |= {"client_kwargs": {"use_ssl": object()}, "config_kwargs": {"user_agent": object()}}
    options |= {"s3_additional_kwargs": {"a": object()}, "session": AioSession()}
    assert s3fs_options(options) == options


def test_options_of_the_caller_are_not_changed() -> None:
    inner = {"use_ssl": True}
    options = {"region": "eu-west-1", "client_kwargs": inner}
    assert s3fs_options(options) == {"client_kwargs": {"use_ssl": True, "region_name": "eu-west-1"}}
    assert inner == {"use_ssl": True}
    assert s3fs_options(s3fs_options(options)) == s3fs_options(options)


@given(st.permutations(["key", "aws_access_key_id", "access_key_id"]), st.booleans())
def test_one_thing_said_twice(names: list[str], same: bool) -> None:
    values = ["SECRET-1", "SECRET-1" if same else "SECRET-2", "SECRET-1"]
    options = dict(zip(names, values, strict=True))
    if same:
        assert s3fs_options(options) == {"key": "SECRET-1"}
        return
    with pytest.raises(UnsupportedError, match="contradict each other") as caught:
        s3fs_options(options)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("endpiont_url", "endpoint_url"),
        ("secrett", "secret"),
        ("Key", "key"),
        ("aws_acess_key_id", "aws_access_key_id"),
        ("aws_regoin", "aws_region"),
        ("client_kwarg", "client_kwargs"),
        ("config_kwargs_", "config_kwargs"),
    ],
)
def test_a_misspelt_option_is_named(name: str, meant: str) -> None:
    with pytest.raises(UnsupportedError, match=f"there is no '{name}'") as caught:
        resolve("s3://b/a", {name: "SECRET"})
    assert caught.value.hint == f"did you mean '{meant}'?"
    assert "SECRET" not in str(caught.value)


def test_an_option_that_is_like_no_other() -> None:
    with pytest.raises(UnsupportedError, match="there is no 'warp'") as caught:
        S3Store({"warp": 9})
    assert "endpoint_url" in str(caught.value.hint)


async def test_a_store_is_reached_by_the_words_of_polars(s3: Any) -> None:
    options = {
        "aws_access_key_id": s3.key,
        "aws_secret_access_key": s3.secret,
        "aws_endpoint_url": s3.endpoint_url,
        "aws_region": s3.region,
        "aws_allow_http": "true",
    }
    async with S3Store(options) as store, S3Store(s3.storage_options) as other:
        await store.put(f"{s3.bucket}/a", b"by other words")
        assert store.command_arguments == ("--endpoint-url", s3.endpoint_url)
        assert bytes((await other.read_tail(f"{s3.bucket}/a", 5)).data) == b"words"


@pytest.mark.parametrize("name", ["client_kwargs", "config_kwargs", "s3_additional_kwargs"])
@pytest.mark.parametrize("value", ["{bad", [1], 5])
def test_options_that_are_no_dict_are_named(name: str, value: object) -> None:
    with pytest.raises(UnsupportedError, match=f"'{name}' is not a dict") as caught:
        s3fs_options({name: value})
    assert "JSON" in str(caught.value)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("s3://b/k", {"client_kwargs": {"nonsense": "SECRET"}}, "nonsense"),
    ("s3://b/k", {"client_kwargs": {"config": "SECRET"}}, "config"),
    ("s3://b/k", {"client_kwargs": {"region_name": 5}}, "client_kwargs.region_name"),
    ("s3://b/k", {"client_kwargs": {"verify": 5}}, "client_kwargs.verify"),
    ("s3://b/k", {"client_kwargs": {"endpoint_url": "http://me:SECRET@h"}}, "client_kwargs.endpoint_url"),
    ("s3://b/k", {"config_kwargs": {"nonsense": "SECRET"}}, "nonsense"),
    ("s3://b/k", {"config_kwargs": {"conect_timeout": 5}}, "conect_timeout"),
    *(("s3://b/k", {"config_kwargs": {name: "SECRET"}}, f"config_kwargs.{name}")
      for name in ("connect_timeout", "read_timeout", "max_pool_connections", "proxies", "s3", "retries")),
    ("s3://b/k", {"config_kwargs": {"retries": {"max_attempts": "SECRET"}}}, "config_kwargs.retries.max_attempts"),
    ("s3://b/k", {"session": {}}, "session"),
    ("s3://b/k", {"endpoint_url": "http://me:SECRET@h:1"}, "endpoint_url"),
    ("s3://b/k", {"key": 5}, "key"),
    ("s3://b/k", {"aws_session_token": 5}, "token"),
    ("http://h/k", {"headers": "SECRET"}, "headers"),
    ("http://h/k", {"headers": {"a": 5}}, "headers"),
    ("http://h/k", {"client_kwargs": "SECRET"}, "client_kwargs"),
    ("http://h/k", {"client_kwargs": {"headers": "SECRET"}}, "client_kwargs.headers"),
    ("http://h/k", {"client_kwargs": {"timeout": 5}}, "client_kwargs.timeout"),
    ("http://h/k", {"client_kwargs": {"nonsense": "SECRET"}}, "nonsense"),
    ("http://h/k", {"cookies": "SECRET"}, "cookies"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "options", "place"), WRONG, ids=str)
def test_a_value_of_another_kind_is_refused_before_any_request(url: str, options: dict[str, Any], place: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        resolve(url, options)
    assert f"'{place}'" in str(caught.value) and "SECRET" not in str(caught.value)


def test_a_policy_that_is_none() -> None:
    with pytest.raises(SchemaError, match="RetryPolicy"):
        resolve("s3://b/k", {"retry": 5})


@pytest.mark.parametrize("error", [TypeError("'<=' not supported"), ValueError("no header of this kind")])
def test_what_no_repetition_mends_is_not_repeated(error: Exception) -> None:
    ours = from_s3_error(HTTPClientError(error=error), bucket="b", url="s3://b/k", doing="head_object")
    assert isinstance(ours, StoreError) and not ours.retryable
