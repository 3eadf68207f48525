"""The argument `keys`: what it may be, what is asked for, and what errors say."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Mapping
from typing import Any

import pytest

import resilient_pq as rpq
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.errors import KeyMissingError, OptionError, TransientError, UnsupportedError

FOOTER_KEY, SSN_KEY, NAME_KEY = b"0123456789012345", b"1234567890123450" * 2, b"1234567890123451"
ALL = (FOOTER_KEY, SSN_KEY, NAME_KEY)


def shows_a_key(text: str) -> bool:
    return any(shown in text for key in ALL for shown in (key.decode(), key.hex()))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda key: memoryview(key).cast("H")])
async def test_bytes_are_the_key_of_the_footer_alone(kind: Any) -> None:
    keys = DecryptionKeys.of(kind(FOOTER_KEY))
    assert rpq.Encryption(kind(FOOTER_KEY), {"ssn": kind(SSN_KEY)}).algorithm == "AES_GCM_V1"
    assert await DecryptionKeys.of({"ssn": kind(SSN_KEY)}).key_of(None, "ssn") == SSN_KEY
    assert await keys.key_of(b"anything", None) == FOOTER_KEY
    assert await keys.key_of(None, None) == FOOTER_KEY
    assert await keys.key_of(b"kc1", "ssn") is None


@pytest.mark.parametrize(
    "given",
    [
        {"kf": FOOTER_KEY, "kc1": SSN_KEY, "kc2": NAME_KEY},
        {b"kf": FOOTER_KEY, b"kc1": SSN_KEY, b"kc2": NAME_KEY},
        {"footer": FOOTER_KEY, "ssn": SSN_KEY, "name.first": NAME_KEY},
        {"footer": FOOTER_KEY, "ssn": SSN_KEY, "name": NAME_KEY},
        # Key metadata count before columns.
        {"footer": FOOTER_KEY, "kc1": SSN_KEY, "ssn": NAME_KEY, "name": NAME_KEY},
    ],
)
async def test_a_mapping_names_key_metadata_or_columns(given: Mapping[Any, bytes]) -> None:
    keys = DecryptionKeys.of(given)
    assert await keys.key_of(b"kf", None) == FOOTER_KEY
    assert await keys.key_of(b"kc1", "ssn") == SSN_KEY
    assert await keys.key_of(b"kc2", "name.first") == NAME_KEY
    assert await keys.key_of(b"kc3", "names") is None


async def test_without_key_metadata_a_column_is_found_by_its_path() -> None:
    keys = DecryptionKeys.of({"a.b": SSN_KEY, "é": NAME_KEY})
    assert await keys.key_of(None, "a.b.c") == SSN_KEY
    assert await keys.key_of(None, "é") == NAME_KEY
    assert await keys.key_of(None, "a") is None
    assert await keys.key_of(None, None) is None


async def asynchronous(key_metadata: bytes) -> bytes:
    return {b"kf": FOOTER_KEY, b"kc1": SSN_KEY, b"": NAME_KEY}[key_metadata]


def synchronous(key_metadata: bytes) -> bytes | None:
    assert threading.current_thread() is not threading.main_thread()  # a request to a service must not stop the loop
    return {b"kf": FOOTER_KEY, b"kc1": SSN_KEY, b"": NAME_KEY}.get(key_metadata)


class Service:
    async def __call__(self, key_metadata: bytes) -> bytes:
        return await asynchronous(key_metadata)


@pytest.mark.parametrize(
    "function",
    [asynchronous, synchronous, Service(), functools.partial(asynchronous), lambda name: asynchronous(bytes(name))],
)
async def test_a_function_gets_the_key_metadata(function: Any) -> None:
    keys = DecryptionKeys.of(function)
    assert await keys.key_of(b"kf", None) == FOOTER_KEY
    assert await keys.key_of(b"kc1", "ssn") == SSN_KEY
    assert await keys.key_of(None, None) == NAME_KEY
    assert await keys.key_of(b"other", "name") is None


async def test_each_key_is_asked_for_once_also_at_once() -> None:
    asked = []

    async def ask(key_metadata: bytes) -> bytes | None:
        asked.append(key_metadata)
        await asyncio.sleep(0)
        return SSN_KEY if key_metadata == b"kc" else None

    keys = DecryptionKeys.of(ask)
    columns = [f"c{i}" for i in range(20)]
    assert await asyncio.gather(*(keys.key_of(b"kc", column) for column in columns)) == [SSN_KEY] * 20
    assert await keys.key_of(b"none", "x") is None and await keys.key_of(b"none", "x") is None
    assert asked == [b"kc", b"none"]


async def test_who_is_cancelled_takes_nobody_with_him() -> None:
    begun = asyncio.Event()

    async def ask(_: bytes) -> bytes:
        begun.set()
        await asyncio.sleep(0.01)
        return SSN_KEY

    keys = DecryptionKeys.of(ask)
    first = asyncio.create_task(keys.key_of(b"kc", "a"))
    await begun.wait()
    second = asyncio.create_task(keys.key_of(b"kc", "b"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == SSN_KEY


@pytest.mark.parametrize("refusal", [KeyError("kc1"), PermissionError("not you"), KeyMissingError("gone")])
async def test_a_refusal_is_a_missing_key_and_its_cause_is_told(refusal: Exception) -> None:
    def refuse(_: bytes) -> bytes:
        raise refusal

    keys = DecryptionKeys.of(refuse)
    assert await keys.key_of(b"kc1", "ssn") is None
    error = keys.missing(b"kc1", "ssn")
    assert error.__cause__ is refusal and error.where.column == "ssn"
    assert "ssn" in error.message and "kc1" in str(error.hint)
    assert keys.missing(b"kc2", "name").__cause__ is None


def test_a_missing_key_says_what_to_pass() -> None:
    keys = DecryptionKeys.of({"footer": FOOTER_KEY})
    assert str(keys.missing(b"kc1", "ssn").hint).endswith("as \"ssn\", or by its key metadata, b'kc1'")
    assert 'as "footer"' in str(keys.missing(None, None).hint)
    assert "--keys" not in str(DecryptionKeys.of(lambda _: None).missing(b"kc1", "ssn").hint)
    assert len(str(keys.missing(b"x" * 10_000, "ssn").hint)) < 250


async def test_a_function_that_fails_is_told_with_column_and_key_metadata() -> None:
    def fail(_: bytes) -> bytes:
        raise RuntimeError(f"got {SSN_KEY!r}")

    def unreachable(_: bytes) -> bytes:
        raise TransientError("the service does not answer")

    with pytest.raises(KeyMissingError, match=r"RuntimeError .* the column ssn \(key metadata b'kc1'\)") as caught:
        await DecryptionKeys.of(fail).key_of(b"kc1", "ssn")
    assert isinstance(caught.value.__cause__, RuntimeError) and not shows_a_key(str(caught.value))
    with pytest.raises(TransientError) as passed:
        await DecryptionKeys.of(unreachable).key_of(b"kc1", "ssn")
    assert passed.value.where.column == "ssn"


@pytest.mark.parametrize("answer", [SSN_KEY[:15], SSN_KEY.decode(), 5])
async def test_an_answer_that_is_no_key_is_refused(answer: Any) -> None:
    with pytest.raises(OptionError, match=r"of the column ssn .* 16, 24 or 32") as caught:
        await DecryptionKeys.of(lambda _: answer).key_of(b"kc1", "ssn")
    assert SSN_KEY[:15].decode() not in str(caught.value)


@pytest.mark.parametrize("given", [None, 5, "0123456789012345", b"short", {"a": b"short"}, {"a": "no"}, {5: SSN_KEY}])
def test_what_gives_no_keys_is_refused(given: Any) -> None:
    with pytest.raises(OptionError) as caught:
        DecryptionKeys.of(given)
    assert "short" not in str(caught.value) and not shows_a_key(str(caught.value))


async def test_a_source_gets_the_place_of_the_file() -> None:
    class Source:
        def keys_of(self, place: Any) -> Any:
            assert place == ("store", "a.parquet")
            return {b"kc1": SSN_KEY}.get

    keys = DecryptionKeys.of(Source(), ("store", "a.parquet"))  # type: ignore[arg-type]
    assert await keys.key_of(b"kc1", "ssn") == SSN_KEY


async def test_no_repr_shows_a_key() -> None:
    keys = DecryptionKeys.of({"footer": FOOTER_KEY, "ssn": SSN_KEY})
    await keys.key_of(None, None)
    assert repr(keys) == "DecryptionKeys(1 known)"


def test_an_encrypted_file_is_not_followed() -> None:
    with pytest.raises(UnsupportedError, match="cannot be followed"):
        rpq.open("day.parquet", keys=FOOTER_KEY, follow=True)
