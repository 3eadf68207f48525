"""How values on the command line are understood."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from resilient_pq.cli.shared_options import parse_schema, parse_size, split_names, storage


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1000000", 1_000_000),
        ("1_000_000", 1_000_000),
        ("512B", 512),
        ("8K", 8 * 1024),
        ("8M", 8 * 1024**2),
        ("8m", 8 * 1024**2),
        ("64MiB", 64 * 1024**2),
        ("64 MiB", 64 * 1024**2),
        ("8MB", 8_000_000),
        ("2GiB", 2 * 1024**3),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "1.5M", "-1", "8 X", "8MiBs", "0x10", "_1", "٣"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a valid size"):
        parse_size(text)


def test_names() -> None:
    assert split_names(None) is None
    assert split_names("a") == ["a"]
    assert split_names("a, b,a b") == ["a", "b", "a b"]
    for text in ("", ",", "a,", "a,,b"):
        with pytest.raises(typer.BadParameter):
            split_names(text)


def test_storage_options_are_json_where_they_can_be() -> None:
    found = storage(
        "http://localhost:8333",
        [
            "anon=true",
            'client_kwargs={"region_name": "eu-west-1"}',
            "n=30",
            "name=plain",
            "a=b=c",
            'quoted="7"',
            "e=",
        ],
    )
    assert found.options == {
        "anon": True,
        "client_kwargs": {"region_name": "eu-west-1"},
        "n": 30,
        "name": "plain",
        "a": "b=c",
        "quoted": "7",
        "e": "",
        "endpoint_url": "http://localhost:8333",
    }


@pytest.mark.parametrize("name", ["key", "secret", "token", "aws_secret_access_key", "password"])
@pytest.mark.parametrize("value", ["12345", "true", "12e45", "null"])
def test_credentials_stay_text(name: str, value: str) -> None:
    assert storage(None, [f"{name}={value}"]).options == {name: value}


def test_next_commands_lead_to_the_same_store_and_tell_no_secret() -> None:
    reached = storage(
        "http://localhost:8333",
        ["anon=false", "secret=abc", "KEY=def", 'client_kwargs={"aws_session_token": "ghi"}'],
    )
    command = reached.command(["rpq", "check", "s3://b/x"])
    assert command == (
        "rpq", "check", "s3://b/x", "--storage-option", "anon=false", "--endpoint-url", "http://localhost:8333",
    )  # fmt: skip


def test_options_of_next_commands_tell_no_secret_wherever_it_stands() -> None:
    reached = storage(
        "http://user:abc@localhost:8333",
        [
            'headers={"Authorization": "Bearer abc"}',
            'client_kwargs={"headers": {"X-Api": "abc"}}',
            "proxy=http://user:abc@proxy",
            "username=abc",
            "endpoint=https://user:abc@host/?sig=abc",
            'client_kwargs={"region_name": "eu-west-1"}',
        ],
    )
    assert reached.options["headers"] == {"Authorization": "Bearer abc"}
    assert "abc" not in repr(reached)
    command = reached.command(["rpq"])
    assert command[-2:] == ("--endpoint-url", "http://localhost:8333")
    assert [word.partition("?")[0] for word in command[1:-2] if not word.startswith("--")] == [
        "endpoint=https://host/", 'client_kwargs={"region_name": "eu-west-1"}',
    ]  # fmt: skip


@pytest.mark.parametrize("pair", ["", "=", "=abc", "abc"])
def test_what_is_no_pair(pair: str) -> None:
    with pytest.raises(typer.BadParameter, match="KEY=VALUE") as caught:
        storage(None, [pair])
    assert "abc" not in str(caught.value)


def test_a_schema_is_given_as_text_or_in_a_file(tmp_path: Path) -> None:
    text = "message m { required int64 id; }\n"
    (tmp_path / "schema").write_text("\ufeff" + text, encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"PAR1\xff\xfe")
    assert parse_schema(text) == text
    assert parse_schema(f"@{tmp_path}/schema") == text
    for name, words in (("binary", "--schema-from"), ("missing", "No such file")):
        with pytest.raises(typer.BadParameter, match=words):
            parse_schema(f"@{tmp_path / name}")
