"""Each request of a read broken in each way: the rows are right, or an error of ours names the object.

The read is one with all kinds of requests: of the file's end, of the rest of the footer, of page indexes, of pages.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq import (
    AccessDeniedError,
    ChecksumError,
    NotFoundError,
    ObjectChangedError,
    ReadOptions,
    ResilientPQError,
    StoreError,
    ThrottledError,
    TransientError,
)
from resilient_pq.io import HttpStore, RetryPolicy
from resilient_pq.io.memory_store import MemoryStore

ROWS = pa.table(
    {
        "n": range(2_000),
        "s": [f"text {i % 900}" for i in range(2_000)],
        "f": [i / 3 for i in range(2_000)],
    }
)
#: Both row groups have such rows, and each of their columns pages without any.
FILTERS = [("n", ">=", 700), ("n", "<", 1_300)]
#: Nothing but what is wanted, so that there are many requests; and an end that is shorter than the footer.
OPTIONS = ReadOptions(tail_bytes=64, merge_gap=0)
QUICK = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01, hedge_after=None)
NUM_REQUESTS = 11
#: One of each kind.
SAMPLED = (0, 1, 3, 7, NUM_REQUESTS - 1)
FOREVER = 10_000
#: The last bytes of the file, which are its page index and footer.
INDEX_BYTES = 3_000

Edit = Callable[[bytes, bytes], tuple[bytes, bytes]]


def _of_another_version(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    return head.replace(b'"v1"', b'"v2"'), body


def _shorter(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """A range that ends one byte early, and says so."""
    return _said(head, 0, -1, len(body) - 1), body[:-1]


def _later(head: bytes, body: bytes) -> tuple[bytes, bytes]:
    """A range that begins one byte late, and says so."""
    return _said(head, 1, 0, len(body) - 1), body[1:]


def _said(head: bytes, start: int, last: int, length: int) -> bytes:
    def moved(match: re.Match[bytes]) -> bytes:
        return b"bytes %d-%d/" % (int(match[1]) + start, int(match[2]) + last)

    head = re.sub(rb"bytes (\d+)-(\d+)/", moved, head)
    return re.sub(rb"(?i)(content-length: )\d+", rb"\g<1>%d" % length, head)


#: What is done to a request, as the proxy takes it, and the error when that is done every time.
PASSING: dict[str, tuple[dict[str, Any], type[StoreError]]] = {
    "500": ({"status": 500}, TransientError),
    "503": ({"status": 503, "headers": {"Retry-After": "0"}}, ThrottledError),
    "reset before it is passed on": ({"reset": True}, TransientError),
    "reset after it is passed on": ({"lose_reply": True}, TransientError),
    "closed before the body": ({"cut_after": 0}, TransientError),
    "cut in the body": ({"cut_after": 7}, TransientError),
}
#: The same of what is not asked for again.
FINAL: dict[str, tuple[dict[str, Any], type[StoreError]]] = {
    "403": ({"status": 403}, AccessDeniedError),
    "404": ({"status": 404}, NotFoundError),
    "another ETag": ({"edit": _of_another_version}, ObjectChangedError),
    "another range": ({"edit": _later}, StoreError),
}


@pytest.fixture(scope="module")
def data() -> bytes:
    """Two row groups, of pages of some hundred rows."""

    async def write() -> bytes:
        store, small = MemoryStore(), {"row_group_rows": 1_000, "page_bytes": 1_600}
        plain = {"compression": "none", "encodings": "PLAIN", "checkpoint_every": None}
        async with rpq.create((store, "file"), **small, **plain) as writer:  # type: ignore[arg-type]
            await writer.write(ROWS)
        return bytes((await store.read_tail("file", 1 << 40)).data)

    return asyncio.run(write())


class Source:
    """The file behind a proxy, on a web server that holds reads to its version."""

    def __init__(self, proxy: Any, url: str, site: Any) -> None:
        self.proxy = proxy  # Breaks requests
        self.url = url  # Of the file, through the proxy
        self.site = site  # The web server
        self.retry = QUICK  # When requests are sent again

    async def read(self, options: ReadOptions = OPTIONS) -> pa.Table:
        """What is read of the file by a store of its own."""
        self.proxy.requests.clear()
        async with HttpStore(retry=self.retry) as store, rpq.open((store, self.url), options=options) as file:
            return pa.table(await file.read(filters=FILTERS))

    async def read_indexes(self) -> list[Any]:
        """The page index, out of what opening the file brings."""
        async with HttpStore(retry=QUICK) as store, rpq.open((store, self.url)) as file:
            of_columns = [await file.column_index(group, column) for group in (0, 1) for column in range(3)]
            return [*of_columns, *[await file.offset_index(group, 0) for group in (0, 1)]]


@pytest.fixture
async def source(data: bytes, site: Any, http_proxy: Callable[[str], Any]) -> Source:
    site.data = data
    server, _, name = site.url.rpartition("/")
    proxy = http_proxy(server)
    return Source(proxy, f"{proxy.endpoint_url}/{name}", site)


EXPECTED = ROWS.slice(700, 600)


async def test_the_read_has_requests_of_every_kind(source: Source) -> None:
    assert (await source.read()).equals(EXPECTED)
    asked = [request.headers["range"] for request in source.proxy.requests]
    assert asked[0] == "bytes=-64" and len(asked) == NUM_REQUESTS
    starts = [int(each.removeprefix("bytes=").partition("-")[0]) for each in asked[1:]]
    footer, wave = starts[0], starts[1:]
    assert footer == max(starts), "the rest of the footer"
    turn = next(i for i in range(1, len(wave)) if wave[i] < wave[i - 1])
    assert turn >= 2 and SAMPLED[2] <= turn < SAMPLED[3], "indexes, which lie behind the pages, and then pages"


async def _check_passing(source: Source, name: str, positions: Sequence[int]) -> None:
    fault, error = PASSING[name]
    for at in positions:
        source.proxy.on("GET", skip=at, **fault)
        assert (await source.read()).equals(EXPECTED), at
        assert source.proxy.count("GET") == NUM_REQUESTS + 1, at
        source.proxy.on("GET", skip=at, times=FOREVER, **fault)
        await _check_refused(source, error)


async def _check_final(source: Source, name: str, positions: Sequence[int]) -> None:
    fault, error = FINAL[name]
    for at in positions:
        source.proxy.on("GET", skip=at, **fault)
        if name == "another range" and at == 0:
            # Without a pin the size of the file is asked for instead, and never a suffix again.
            assert (await source.read()).equals(EXPECTED)
        else:
            await _check_refused(source, error)


async def _check_refused(source: Source, error: type[StoreError]) -> None:
    with pytest.raises(error) as caught:
        await source.read()
    assert caught.value.where.key == source.url and source.url in str(caught.value)
    source.proxy.mend()
    assert (await source.read()).equals(EXPECTED), "nothing of it stays"


@pytest.mark.parametrize("requests", either([SAMPLED], [range(NUM_REQUESTS)]), ids=["some", "all"])
@pytest.mark.parametrize("name", PASSING)
async def test_what_passes(source: Source, name: str, requests: Sequence[int]) -> None:
    await _check_passing(source, name, requests)


@pytest.mark.parametrize("requests", either([SAMPLED], [range(NUM_REQUESTS)]), ids=["some", "all"])
@pytest.mark.parametrize("name", FINAL)
async def test_what_does_not_pass(source: Source, name: str, requests: Sequence[int]) -> None:
    await _check_final(source, name, requests)


@pytest.mark.parametrize("at", SAMPLED)
async def test_a_range_that_ends_early_goes_on_there(source: Source, at: int) -> None:
    source.proxy.on("GET", skip=at, edit=_shorter)
    assert (await source.read()).equals(EXPECTED)


# --- bits -------------------------------------------------------------------------------------------------------


def _flipping(rng: random.Random, flipped: list[int], last: int | None = None) -> Edit:
    """One bit of a body, or of the last bytes of it."""

    def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        spoiled, least = bytearray(body), len(body) - min(last or len(body), len(body))
        at = rng.randrange(8 * least, 8 * len(body))
        spoiled[at // 8] ^= 1 << at % 8
        flipped.append(at)
        return head, bytes(spoiled)

    return edit


async def _check_bits(
    source: Source, at: int, times: int, options: ReadOptions = OPTIONS, last: int | None = None
) -> None:
    """The rows are right whichever bit of the body, or of the last bytes of it, flipped."""
    rng, flipped = random.Random(at), list[int]()
    for _ in range(times):
        source.proxy.on("GET", skip=at, edit=_flipping(rng, flipped, last))
        try:
            found = await source.read(options)
        except ResilientPQError as error:
            raise AssertionError(f"bit {flipped[-1]} of the body: {error}") from error
        assert found.equals(EXPECTED), flipped[-1]
    assert len(flipped) == times


async def test_flipped_bits_of_a_tail_with_all_indexes(source: Source) -> None:
    await _check_bits(source, 0, 24, ReadOptions(), INDEX_BYTES)
    rng, flipped = random.Random(1), list[int]()
    wanted = await source.read_indexes()
    for _ in range(24):
        source.proxy.on("GET", edit=_flipping(rng, flipped, INDEX_BYTES))
        assert await source.read_indexes() == wanted, flipped[-1]


@pytest.mark.parametrize(
    ("at", "count"), either([(at, 8) for at in SAMPLED], [(at, 100) for at in range(NUM_REQUESTS)])
)
async def test_a_flipped_bit(source: Source, at: int, count: int) -> None:
    await _check_bits(source, at, count)


async def test_a_bit_flips_in_the_first_two_answers_for_every_range(source: Source) -> None:
    """Bytes are damaged only when they come so every time."""
    flip, seen = _flipping(random.Random(3), []), Counter[bytes]()

    def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        wanted = re.findall(rb"bytes \d+-\d+/", head)[0]
        seen[wanted] += 1
        return flip(head, body) if seen[wanted] <= 2 else (head, body)

    source.proxy.on("GET", times=FOREVER, edit=edit)
    source.retry = RetryPolicy(base_delay=0.001, hedge_after=None)
    assert (await source.read()).equals(EXPECTED)
    assert max(seen.values()) >= 3


async def test_damage_that_comes_twice_alike_is_read_no_more(source: Source, data: bytes) -> None:
    """It is what the store has."""
    spoiled = bytearray(data)
    spoiled[data.index(b"text 700") + 5] ^= 4
    source.site.data = bytes(spoiled)
    for attempts, most in ((None, 2), (2, 1)):
        source.retry = RetryPolicy(attempts=attempts, hedge_after=None)
        with pytest.raises(ChecksumError):
            await source.read()
        asked = Counter(request.headers.get("range") for request in source.proxy.requests if request.method == "GET")
        assert max(asked.values()) == most
