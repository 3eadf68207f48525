"""How locations are shown, which is without anything that opens them."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.io.location import (
    Address,
    cause_to_show,
    fingerprint,
    is_shown,
    is_web,
    scrubbed,
    shown,
    without_query,
)

SECRETS = st.text("abcdefXYZ0123456789-_.~+=&%", min_size=1, max_size=12).map(lambda text: f"se4{text}ret")
QUERIES = st.lists(st.tuples(st.sampled_from(["sig", "X-Amz-Signature", "token"]), SECRETS), max_size=3).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
)


@given(
    scheme=st.sampled_from(["http", "https", "HTTPS", "ftp", "sftp", "webdav", "custom-fs"]),
    chain=st.sampled_from(["", "simplecache::", "zip://in.parquet::", "filecache::zip://a@b::"]),
    user=st.none() | SECRETS,
    password=st.none() | SECRETS | SECRETS.map(lambda text: f"a@{text}:"),
    host=st.sampled_from(["host", "host:81", "[::1]:81"]),
    path=st.sampled_from(["", "/", "/a b/day=1/c@d.parquet"]),
    query=QUERIES,
    fragment=st.none() | SECRETS,
)
def test_no_secret_of_any_place_of_a_url_is_shown(
    scheme: str,
    chain: str,
    user: str | None,
    password: str | None,
    host: str,
    path: str,
    query: str,
    fragment: str | None,
) -> None:
    of_the_web = scheme.lower() in ("http", "https", "webdav")
    who = "" if user is None else f"{user}@" if password is None else f"{user}:{password}@"
    behind = f"?{query}" if query else ""
    behind += f"#{fragment}" if fragment is not None and (of_the_web or query) else ""
    url = f"{chain}{scheme}://{who}{host}{path}{behind}"
    found = shown(url)
    assert "se4" not in found
    assert found.startswith(f"{chain.replace('a@', '')}{scheme}://{host}{path}")
    assert shown(found) == found
    assert (found == url) == (not who and not behind and "a@" not in chain)
    assert is_shown(found) == bool(behind)
    assert without_query(found) == f"{chain.replace('a@', '')}{scheme}://{host}{path}"
    assert "se4" not in scrubbed(f"GET failed: 400, message='no', url='{url}'") or " " in path
    assert "se4" not in repr([Address(url)])


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://host", "http://host"),
        ("https://[::1]:81/a@b", "https://[::1]:81/a@b"),
        ("http://[no host/a", "http://[no host/a"),
        ("simplecache::https://user:pa::ss@host/a", "simplecache::https://host/a"),
        ("https://user:pa/ss@host/a", "https://host/a"),
        ("sftp://user:pa?ss@host/a", "sftp://host/a"),
        ("ftp://user:pass@host/day-?.parquet", "ftp://host/day-?.parquet"),
        ("gs://bucket/part#1.parquet", "gs://bucket/part#1.parquet"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("abfs://user:pass@host/a", "abfs://host/a"),
        ("github://org:repo@branch/a", "github://org:repo@branch/a"),
        ("s3://bucket/what?a=b.parquet", "s3://bucket/what?a=b.parquet"),
        ("s3://arn:aws:s3:eu-west-1:1:accesspoint/x/a@b", "s3://arn:aws:s3:eu-west-1:1:accesspoint/x/a@b"),
        ("s3://KEY:SECRET/WITH/SLASH@bucket/a", "s3://bucket/a"),
        ("/folder/a@b?c=d.parquet", "/folder/a@b?c=d.parquet"),
        ("C:\\folder\\a", "C:\\folder\\a"),
        ("C:/folder/a@b/c", "C:/folder/a@b/c"),
        ("./day:1@b/c", "./day:1@b/c"),
        ("/srv/day:1@b/c", "/srv/day:1@b/c"),
        ("day:1@b.parquet", "day:1@b.parquet"),
        ("s3://bucket/day:1@b/c", "s3://bucket/day:1@b/c"),
        ("file:///day:1@b/c", "file:///day:1@b/c"),
    ],
)
def test_what_is_a_name_stays(url: str, expected: str) -> None:
    assert shown(url) == expected
    assert not is_shown(expected)


@given(
    before=st.sampled_from(["", "http:/", "https//", "https/", "http:", "ftp:/", "http:///", "https:////"]),
    user=SECRETS,
    password=SECRETS | SECRETS.map(lambda text: f"{text}/{text}"),
    host=st.sampled_from(["host", "host:81", "[::1]:81", "127.0.0.1"]),
)
def test_no_password_of_a_mistyped_url_is_shown(before: str, user: str, password: str, host: str) -> None:
    found = shown(f"{before}{user}:{password}@{host}/a/t.parquet")
    assert found == f"{before}{host}/a/t.parquet"
    assert shown(found) == found


def test_two_signatures_of_one_object_stay_two() -> None:
    one, other = (shown(f"https://host/a.parquet?sig={number}") for number in (1, 2))
    assert one != other
    assert one.startswith("https://host/a.parquet?~")
    assert fingerprint("https://u:a@host/a") != fingerprint("https://u:b@host/a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cannot parse '/a.parquet?X-Amz-Signature=se4ret': no", "cannot parse '/a.parquet?~"),
        ("Invalid endpoint: user:se4ret@host:80", "Invalid endpoint: host:80"),
        ('Could not connect to the endpoint URL: "http://user:se4ret@host:80/b/a"', 'URL: "http://host:80/b/a"'),
        ("at 12:30:00 in a:b", "at 12:30:00 in a:b"),
    ],
)
def test_what_libraries_say(text: str, expected: str) -> None:
    found = scrubbed(text)
    assert expected in found
    assert "se4ret" not in found
    assert scrubbed(found) == found


def test_an_address_is_a_string_that_hides_itself() -> None:
    url = "https://u:se4ret@host/a?sig=se4ret"
    address = pickle.loads(pickle.dumps(Address(url)))
    assert (address, type(address), str(address)) == (url, Address, url)
    assert repr((address, 1)) == f"({shown(url)!r}, 1)"
    assert repr(Address("bucket/a")) == "'bucket/a'"


def test_which_urls_only_read() -> None:
    for url in ("http://h/a", "HTTPS://h/a", "simplecache::https://h/a", "zip://in::http://h/a.zip"):
        assert is_web(url)
    for url in ("s3://b/http://x", "http", "/a/http://x", "zip://http::file:///a.zip"):
        assert not is_web(url)


def test_causes_are_cut_where_they_hold_a_url() -> None:
    harmless = ValueError("seven")
    assert cause_to_show(harmless) is harmless
    told = OSError("no")
    told.__cause__ = ValueError("http://h/a?sig=se4ret")
    assert cause_to_show(told) is None
    unseen = OSError("no")
    unseen.__context__ = KeyError("http://u:se4ret@h/a")
    assert cause_to_show(unseen) is None
