"""Servers that break the standard of range requests: what is read from them is right, or refused."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

import resilient_pq as rpq
from resilient_pq.errors import ObjectChangedError, StoreError, UnsupportedError
from resilient_pq.io import FetchCounters, HttpStore, ObjectTail, RetryPolicy, S3Store, counting
from resilient_pq.io.transfer import ranged_get

DATA = bytes(range(256)) * 400
QUICK = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01)


@pytest.fixture
async def store() -> AsyncIterator[HttpStore]:
    async with HttpStore(retry=QUICK) as store:
        yield store


async def tail_of(store: Any, url: str, size: int) -> tuple[ObjectTail, int]:
    """A tail, and how many requests it was counted as beyond the one that the caller counts."""
    with counting(FetchCounters()) as counters:
        return await store.read_tail(url, size), counters.requests


def asked(site: Any) -> list[str]:
    """Method and range of the requests since the last time."""
    found = [f"{method} {headers.get('Range', '')}".rstrip() for method, headers in site.asked]
    site.asked.clear()
    return found


# -- tails -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffixes", ["begin", "whole"])
async def test_a_suffix_of_other_bytes(site: Any, store: HttpStore, suffixes: str) -> None:
    """What comes is no suffix: the size is asked for, and no suffix again."""
    site.suffixes, size = suffixes, len(DATA)
    tail, more = await tail_of(store, site.url, 1000)
    assert (bytes(tail.data), tail.offset, tail.info.size) == (DATA[-1000:], size - 1000, size)
    assert asked(site) == ["GET bytes=-1000", "HEAD", f"GET bytes={size - 1000}-{size - 1}"]
    assert more == 2
    tail, more = await tail_of(store, site.url, 1000)
    assert bytes(tail.data) == DATA[-1000:]
    assert asked(site) == ["HEAD", f"GET bytes={size - 1000}-{size - 1}"]
    assert more == 1


async def test_no_suffix_at_all(site: Any, store: HttpStore) -> None:
    """A server that refuses all suffixes is found out by the first larger file."""
    site.suffixes, size = "none", len(DATA)
    tail, more = await tail_of(store, site.url, 1000)
    assert bytes(tail.data) == DATA[-1000:]
    last = f"GET bytes={size - 1000}-{size - 1}"
    assert asked(site) == ["GET bytes=-1000", "GET bytes=0-999", "HEAD", last]
    assert more == 3
    assert bytes((await store.read_tail(site.url, 1000)).data) == DATA[-1000:]
    assert asked(site) == ["HEAD", last]


async def test_a_suffix_longer_than_the_file_is_refused(site: Any, store: HttpStore) -> None:
    """Small files cost two requests then, larger ones still one."""
    site.long_suffixes = False
    for _ in range(2):
        tail, more = await tail_of(store, site.url, 10**6)
        assert (bytes(tail.data), tail.offset) == (DATA, 0)
        assert asked(site) == ["GET bytes=-1000000", "GET bytes=0-999999"]
        assert more == 1
        tail, more = await tail_of(store, site.url, 10)
        assert bytes(tail.data) == DATA[-10:]
        assert asked(site) == ["GET bytes=-10"]
        assert not more


async def test_an_empty_file_has_no_range(site: Any, store: HttpStore) -> None:
    site.data = b""
    tail, more = await tail_of(store, site.url, 10)
    assert (tail.info.size, bytes(tail.data)) == (0, b"")
    assert asked(site) == ["GET bytes=-10", "GET bytes=0-9", "HEAD"]
    assert more == 2
    site.data = DATA
    assert bytes((await store.read_tail(site.url, 10)).data) == DATA[-10:]
    assert asked(site) == ["GET bytes=-10"]


async def test_a_suffix_without_its_range_is_not_taken_for_the_file(site: Any, store: HttpStore) -> None:
    """1,000 bytes of status 200 may be a small file or the end of a large one: only its size tells."""
    site.part_status, site.content_range = 200, ""
    with pytest.raises(StoreError, match="does not say which"):
        await store.read_tail(site.url, 1000)
    site.data = DATA[:1000]
    assert bytes((await store.read_tail(site.url, 1000)).data) == DATA[:1000]


async def test_a_part_without_its_range(site: Any, store: HttpStore) -> None:
    site.content_range = ""
    with pytest.raises(StoreError, match="does not say which"):
        await store.read_tail(site.url, 1000)
    with pytest.raises(StoreError, match="does not say which"):
        await store.read_range(site.url, 0, 10, pin=await store.head(site.url))


async def test_a_range_of_unknown_size(site: Any, store: HttpStore) -> None:
    """The standard allows it; the size is known by other means."""
    site.content_range = "bytes {begin}-{last}/*"
    tail = await store.read_tail(site.url, 1000)
    assert (bytes(tail.data), tail.info.size) == (DATA[-1000:], len(DATA))
    assert bytes(await store.read_range(site.url, 5, 9, pin=tail.info)) == DATA[5:9]


# -- ranges ------------------------------------------------------------------------------------------


async def test_parts_of_status_200(site: Any, store: HttpStore) -> None:
    site.part_status = 200
    tail = await store.read_tail(site.url, 1000)
    assert (bytes(tail.data), tail.info.size) == (DATA[-1000:], len(DATA))
    assert bytes(await store.read_range(site.url, 5, 9, pin=tail.info)) == DATA[5:9]


@pytest.mark.parametrize("lacking", [1, 400, 1000])
async def test_a_body_that_ends_too_early_goes_on_where_it_ended(site: Any, store: HttpStore, lacking: int) -> None:
    """It ends as a whole one does: only the bytes that are missing tell."""
    info, size = await store.head(site.url), len(DATA)
    site.short_by = [lacking]
    with counting(FetchCounters()) as counters:
        assert bytes(await store.read_range(site.url, 5000, 6000, pin=info)) == DATA[5000:6000]
    assert asked(site)[1:] == ["GET bytes=5000-5999", f"GET bytes={6000 - lacking}-5999"]
    assert (counters.retries, counters.resumed) == (1, int(lacking < 1000))
    site.short_by = [lacking]
    assert bytes((await store.read_tail(site.url, 1000)).data) == DATA[-1000:]
    last = f"GET bytes={size - lacking}-{size - 1}"
    assert asked(site) == ["GET bytes=-1000", last]
    site.short_by = [1000] * 9
    with pytest.raises(StoreError, match="cut short"):
        await store.read_range(site.url, 5000, 6000, pin=info)


async def test_a_body_that_ends_before_what_was_asked_for(site: Any, store: HttpStore) -> None:
    """The server begins earlier than it was told to, and does not even come to the first byte that is wanted."""
    info = await store.head(site.url)
    site.earlier, site.length, site.short_by = 300, False, [1100]
    assert bytes(await store.read_range(site.url, 5000, 6000, pin=info)) == DATA[5000:6000]
    assert asked(site)[1:] == ["GET bytes=5000-5999"] * 2


@pytest.mark.parametrize("said", ["bytes 7-10/{size}", "bytes 0-3/{size}", "bytes 50000-50003/{size}"])
async def test_other_bytes_than_were_asked_for(site: Any, store: HttpStore, said: str) -> None:
    info = await store.head(site.url)
    site.content_range = said
    with pytest.raises(StoreError, match=r"asked for 11\.\.15"):
        await store.read_range(site.url, 11, 15, pin=info)


async def test_another_size_is_another_file(site: Any, store: HttpStore) -> None:
    info = await store.head(site.url)
    site.content_range = "bytes {begin}-{last}/102401"
    with pytest.raises(ObjectChangedError, match="102,401"):
        await store.read_range(site.url, 11, 15, pin=info)


async def test_a_body_that_is_not_the_range_it_is_called(site: Any, store: HttpStore) -> None:
    info = await store.head(site.url)
    site.whole_bodies = True
    with pytest.raises(StoreError, match="called them 'bytes 11-14/102400'"):
        await store.read_range(site.url, 11, 15, pin=info)


async def test_a_server_that_ignores_ranges_of_a_large_file(
    site: Any, store: HttpStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a size what comes before the range is read over; then it is said how to read the file instead."""
    monkeypatch.setattr(ranged_get, "_MOST_READ_OVER", 50_000)
    site.ranges = False
    info = await store.head(site.url)
    assert bytes(await store.read_range(site.url, 50_000, 50_010, pin=info)) == DATA[50_000:50_010]
    with pytest.raises(UnsupportedError, match=r"ignores ranges.*102,400") as caught:
        await store.read_range(site.url, 50_001, 50_010, pin=info)
    assert "simplecache::" in str(caught.value)
    assert caught.value.where.key == site.url


# -- versions ----------------------------------------------------------------------------------------


async def test_ranges_without_etag_are_compared_afterwards(site: Any, store: HttpStore) -> None:
    info = await store.head(site.url)
    site.etag_of_parts = False
    with counting(FetchCounters()) as counters:
        assert bytes(await store.read_range(site.url, 5, 9, pin=info)) == DATA[5:9]
    assert asked(site) == ["HEAD", "GET bytes=5-8", "HEAD"]
    assert counters.requests == 1
    site.conditions, site.etag = False, '"v2"'
    with pytest.raises(ObjectChangedError):
        await store.read_range(site.url, 5, 9, pin=info)


async def test_an_etag_that_is_not_named_any_more(site: Any, store: HttpStore) -> None:
    info = await store.head(site.url)
    site.conditions, site.etag = False, None
    with pytest.raises(ObjectChangedError):
        await store.read_range(site.url, 5, 9, pin=info)


# -- a real server that breaks the standard ----------------------------------------------------------


async def test_a_file_on_rclone(rclone_s3: Any) -> None:
    """Written, read in two round trips, and found to have been replaced though If-Match is ignored."""
    url, options = rclone_s3.url("table.parquet"), {"storage_options": rclone_s3.storage_options}
    noise = random.Random(1)
    numbers = [noise.getrandbits(60) for _ in range(60_000)]

    async def write(times: int) -> None:
        async with rpq.create(url, **options, compression="none") as writer:
            await writer.write({"a": [times + number for number in numbers], "b": numbers})

    await write(1)
    async with rpq.open(url, **options) as file:
        assert file.counters.requests == 1
        assert (await file.read(columns=["a"])).num_rows == 60_000
        assert file.counters.requests == 2
        await write(2)
        with pytest.raises(ObjectChangedError):
            await file.read(columns=["b"])


async def test_a_small_file_on_rclone(rclone_s3: Any) -> None:
    """It refuses a suffix longer than the object."""
    url = rclone_s3.url("small.parquet")
    async with rpq.create(url, storage_options=rclone_s3.storage_options) as writer:
        await writer.write({"a": [1, 2, 3]})
    async with rpq.open(url, storage_options=rclone_s3.storage_options) as file:
        assert file.counters.requests == 2
        assert (await file.read()).num_rows == 3


async def test_nothing_on_rclone(rclone_s3: Any) -> None:
    async with S3Store(rclone_s3.storage_options) as store:
        await store.put(f"{rclone_s3.bucket}/nothing", b"")
        assert (await store.read_tail(f"{rclone_s3.bucket}/nothing", 10)).info.size == 0
