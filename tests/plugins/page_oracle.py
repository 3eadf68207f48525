"""Files of many small pages, ways to damage them, and what a recovery must make of them: every page that is whole.

What is left is computed by `page_layout` from the layout of the whole file; the values are those that were written.
"""

from __future__ import annotations

import asyncio
import functools
import io
import itertools
import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import page_layout
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_check import check_ledger

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.ledger.ledger_model import ByteUse, Confidence, PageState

POLICIES = ("drop", "null")
CODECS = ("none", "snappy", "gzip", "brotli", "lz4_raw", "zstd")
PART = 64 * 1024
#: Rows by number, each with the columns of the top level that are null in it since their values are lost.
Nulled = Mapping[int, frozenset[str]]
NOT_DAMAGE = (rpq.Damage.UNFINISHED, rpq.Damage.UNVERIFIED)


def rows_of(count: int, *, noise: int = 0) -> pa.Table:
    """Rows of flat and of nested columns, nulls in all but `id` and `kind`; `noise` bytes more in each row."""
    rng = random.Random(count)
    attributes = [None if i % 9 == 4 else [(f"key {j}", i * j) for j in range(i % 3)] for i in range(count)]
    points = [None if i % 8 == 5 else {"x": i / 7, "y": None if i % 3 else f"y {i}"} for i in range(count)]
    lists = [
        None if i % 6 == 2 else [[None if j == 2 else i + j for j in range(i % 4)]] * (i % 3) for i in range(count)
    ]
    columns: list[tuple[pa.Field, list[Any]]] = [
        (pa.field("id", pa.int64(), nullable=False), list(range(count))),
        (pa.field("kind", pa.string(), nullable=False), [f"kind {i % 5}" for i in range(count)]),
        (pa.field("town", pa.string()), [None if i % 7 == 0 else f"town {i % 3}" for i in range(count)]),
        (pa.field("score", pa.float64()), [None if i % 11 == 0 else rng.random() for i in range(count)]),
        (pa.field("note", pa.binary()), [rng.randbytes(noise + i % 6) for i in range(count)]),
        (pa.field("flag", pa.bool_()), [None if i % 5 == 3 else i % 3 == 0 for i in range(count)]),
        (pa.field("lists", pa.list_(pa.list_(pa.int32()))), lists),
        (pa.field("point", pa.struct({"x": pa.float64(), "y": pa.string()})), points),
        (pa.field("attributes", pa.map_(pa.string(), pa.int64())), attributes),
    ]
    arrays = [pa.array(values, column.type) for column, values in columns]
    return pa.Table.from_arrays(arrays, schema=pa.schema([column for column, _ in columns]))


@dataclass(frozen=True)
class Damaged:
    """What became of a file's bytes."""

    what: str  # In words, for whoever reads of a failure
    data: bytes = field(repr=False)  # The bytes that are there
    gone: tuple[range, ...] = field(repr=False)  # Those of the whole file that are not among them
    moved: bool = False  # Whether others lie elsewhere than they did

    @property
    def missing(self) -> page_layout.Gone:
        """The same as the oracle takes it."""
        return page_layout.Gone(self.gone)


@dataclass(frozen=True, repr=False)
class PagedFile:
    """A file of many pages, whole: its bytes, its rows, and where everything lies."""

    data: bytes
    table: pa.Table
    layout: page_layout.Layout

    def __repr__(self) -> str:
        return f"<{len(self.data)} bytes>"

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        printer.text(repr(self))  # what hypothesis shows

    def cut(self, end: int) -> Damaged:
        """The bytes before an offset."""
        return Damaged(f"cut at {end}", self.data[:end], (range(end, len(self.data)),))

    def written_over(self, *pieces: tuple[int, bytes]) -> Damaged:
        """Other bytes in the place of some."""
        data = bytearray(self.data)
        gone = []
        for offset, piece in pieces:
            data[offset : offset + len(piece)] = piece[: len(data) - offset]
        for offset, piece in pieces:
            end = min(offset + len(piece), len(data))
            gone += [range(i, i + 1) for i in range(offset, end) if data[i] != self.data[i]]
        what = ", ".join(f"{len(piece)} bytes at {offset}" for offset, piece in pieces)
        return Damaged(f"written over: {what}", bytes(data), tuple(gone))

    def flipped(self, offset: int, bit: int) -> Damaged:
        """One bit turned."""
        return self.written_over((offset, bytes([self.data[offset] ^ (1 << bit)])))

    def rearranged(self, size: int, order: Sequence[int]) -> Damaged:
        """Its parts of some size, by number, in another order; a number may be missing, or there twice."""
        parts = [range(at, min(at + size, len(self.data))) for at in range(0, len(self.data), size)]
        data = b"".join(self.data[parts[number].start : parts[number].stop] for number in order)
        gone = tuple(part for number, part in enumerate(parts) if number not in order)
        return Damaged(f"parts of {size} bytes in the order {list(order)}", data, gone, moved=True)

    @property
    def places(self) -> list[range]:
        """Everything that lies somewhere: headers and bodies of pages, records, indexes, and what is between them."""
        borders = {0, 4, len(self.data)}
        for record in self.layout.records:
            borders |= {record.place.start, record.place.start + page_layout.RECORD.size, record.place.stop}
        for row_group in self.layout.row_groups:
            for chunk in row_group.chunks:
                borders |= {place.start for page in chunk.pages for place in (page.header, page.body)}
                borders |= {chunk.place.stop} | ({chunk.offset_index.start} if chunk.offset_index else set())
        return [range(*pair) for pair in itertools.pairwise(sorted(borders))]

    def damaged_somewhere(self, rng: random.Random) -> Damaged:
        """One to four of these places damaged: a bit, a few bytes, the whole of it, or the 512-byte sectors it is in."""
        pieces = []
        for place in rng.sample(self.places, rng.choice([1, 1, 1, 2, 3, 4])):
            offset = rng.choice(place)
            match rng.randrange(5):
                case 0:
                    pieces.append((offset, bytes([self.data[offset] ^ (1 << rng.randrange(8))])))
                case 1:
                    pieces.append((offset, rng.randbytes(rng.randint(1, 30))))
                case 2:
                    pieces.append((place.start, rng.randbytes(len(place))))
                case 3:
                    pieces.append((place.start, bytes(len(place))))
                case 4:
                    pieces.append((offset // 512 * 512, bytes(512)))
        damaged = self.written_over(*pieces)
        if rng.random() < 0.15:
            end = rng.randrange(len(self.data))
            gone = (*damaged.gone, range(end, len(self.data)))
            return Damaged(f"{damaged.what}; cut at {end}", damaged.data[:end], gone)
        return damaged

    def without(self, start: int, end: int) -> Damaged:
        """The bytes of a range left out, those behind it moved up."""
        data = self.data[:start] + self.data[end:]
        return Damaged(f"without {start}..{end}", data, (range(start, end),), moved=True)

    def counts_rows(self, missing: page_layout.Gone) -> bool:
        """Whether the final footer is whole, which counts all rows."""
        return any(record.kind == page_layout.FINAL for record in self.layout.footers(missing))

    def expected(self, missing: page_layout.Gone, on_damage: str) -> tuple[Nulled, Nulled]:
        """The rows that are kept at best, by number, each with the columns that are null in it; and those by luck too."""
        best, lucky = (
            {row.number: row.nulled for row in self.layout.rows(missing, on_damage, by_luck=by_luck)}
            for by_luck in (False, True)
        )
        return best, lucky

    def values(self, numbers: Sequence[int], nulled: Nulled) -> pa.Table:
        """Rows as they were written, but for those columns that are null."""
        columns = [
            self.table.column(name).combine_chunks().take(
                pa.array([None if name in nulled.get(number, ()) else number for number in numbers], pa.int64())
            )
            for name in self.table.column_names
        ]  # fmt: skip
        return pa.Table.from_arrays(columns, schema=self.table.schema)


async def write_pages(table: pa.Table, **options: Any) -> PagedFile:
    """Write a table with pages of ten rows, row groups of forty, and a checkpoint after every second one."""
    write = {"page_rows": 10, **options.pop("options", {})}
    chosen = {"row_group_rows": 40, "checkpoint_every": 2, "checkpoint_overhead": 100.0, **options}
    store = MemoryStore()
    async with rpq.create((store, "file"), table.schema, options=rpq.WriteOptions(**write), **chosen) as writer:
        await writer.write(table)
    data = bytes((await store.read_tail("file", 1 << 40)).data)
    layout = page_layout.Layout(data)
    assert [row.number for row in layout.rows(())] == list(range(table.num_rows))
    read = pq.read_table(io.BytesIO(data))
    assert read.equals(table)
    return PagedFile(data, read, layout)


async def recover(*copies: bytes, **options: Any) -> tuple[rpq.Report, bytes | None]:
    """The report of a recovery, and the bytes it wrote; it leaves the input as it was."""
    store = MemoryStore()
    names = [f"damaged {number}" for number in range(len(copies))]
    for name, data in zip(names, copies, strict=True):
        await store.put(name, data)
    output: bytes | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
        try:
            report = await rpq.recover([(store, name) for name in names], (store, "out"), **options)
            output = bytes((await store.read_tail("out", 1 << 40)).data)
        except rpq.NothingToRecoverError as error:
            report = error.report
            with pytest.raises(rpq.NotFoundError):
                await store.head("out")
    for name, data in zip(names, copies, strict=True):
        assert bytes((await store.read_tail(name, 1 << 40)).data) == data
    report.to_json()
    accounted(report)
    return report, output


def accounted(report: rpq.Report) -> None:
    """Every byte and every row is accounted for once, and the report counts what the ledger counts."""
    assert report.kept is not None and report.kept.ledger is not None
    ledger = report.kept.ledger
    assert check_ledger(ledger) == []
    assert ledger.rows_kept == report.num_rows
    if report.outcome != rpq.Outcome.NOTHING:
        assert (None if ledger.uncounted else ledger.rows_lost) == report.kept.rows_lost


def called_whole(report: rpq.Report, damaged: Damaged) -> None:
    """No byte that was changed is said to be as it was written, be it data, or metadata that a checksum vouches for."""
    assert report.kept is not None and report.kept.ledger is not None
    missing = damaged.missing
    for region in report.kept.ledger.regions:
        decoded = region.use is ByteUse.METADATA and region.confidence is Confidence.DECODED
        if not decoded and (region.use is ByteUse.METADATA or region.state is PageState.WHOLE):
            assert missing.spare(range(region.start, region.end)), region


async def findings_of(data: bytes) -> list[rpq.Finding]:
    """What a check finds damaged."""
    store = MemoryStore()
    await store.put("out", data)
    report = await rpq.check((store, "out"))
    return [finding for finding in report.findings if finding.damage not in NOT_DAMAGE]


def span(numbers: Iterable[int]) -> str:
    """Numbers as spans, for people."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and spans[-1][1] == number:
            spans[-1][1] += 1
        else:
            spans.append([number, number + 1])
    return ", ".join(f"{first}..{end - 1}" for first, end in spans)


async def examine(file: PagedFile, damaged: Damaged, on_damage: str = "drop", *others: Damaged, **options: Any) -> None:
    """Recover a damaged file, alone or with other copies of it, and hold the output against the best that is possible.

    Every row whose pages are whole is there, with its values, and no other; the report counts them, and the output is
    a sound file.
    """
    copies = [damaged, *others]
    try:
        missing = page_layout.GoneInEach(copy.missing for copy in copies)
        best, lucky = file.expected(missing, on_damage)
        if on_damage != "drop":
            options["on_damage"] = on_damage
        report, output = await recover(*(copy.data for copy in copies), **options)
        if not damaged.moved and not others:
            called_whole(report, damaged)
        assert report.num_rows == (0 if output is None else pq.read_metadata(io.BytesIO(output)).num_rows)
        if output is None:
            assert not best, f"nothing was recovered; whole are the rows {span(best)}"
            return
        found = pq.read_table(io.BytesIO(output))
        if "id" not in found.column_names:  # nothing is left that names the columns, or tells how many there are
            assert not set(found.column_names) & set(file.table.column_names)
            return
        numbers = found.column("id").to_pylist()
        assert numbers == sorted(set(numbers)), "rows come twice, or in another order"
        lacking, more = set(best) - set(numbers), set(numbers) - set(lucky)
        assert not more, f"rows that cannot be there: {span(more)}"
        assert not lacking, f"rows that were whole: {span(lacking)}"
        if not found.equals(file.values(numbers, best)):
            # With luck there is more in the columns than could be asked for.
            assert best != lucky, "there are other values in the output"
            for row, written in zip(found.to_pylist(), file.values(numbers, {}).to_pylist(), strict=True):
                # Of a row that is there by luck, luck may have left anything else.
                null = {*best.get(row["id"], row.keys()), *lucky[row["id"]]}
                wrong = [
                    name for name in row if row[name] != written[name] and (row[name] is not None or name not in null)
                ]
                assert not wrong, f"{wrong} in row {row}, not {written}"
        assert report.kept is not None
        lost, said = file.table.num_rows - len(numbers), report.kept.rows_lost
        if file.counts_rows(missing):
            assert said == lost, f"{said} rows lost, not {lost}"
        else:  # nothing tells of rows that are no more in the file
            assert said is None or said <= lost, f"{said} rows lost of {lost}"
        assert not await findings_of(output)
    except BaseException as error:
        error.add_note(f"{' | '.join(copy.what for copy in copies)}; on_damage={on_damage!r}")
        raise


def bits_of_metadata(file: PagedFile) -> Iterator[tuple[int, int]]:
    """Every bit of what is no page's body, as offset and number of the bit."""
    bodies = {
        offset
        for row_group in file.layout.row_groups
        for chunk in row_group.chunks
        for page in chunk.pages
        for offset in page.body
    }
    for offset in range(len(file.data)):
        if offset not in bodies:
            for bit in range(8):
                yield offset, bit


@functools.cache
def paged(codec: str, version: str) -> PagedFile:
    """Four row groups of flat and nested columns, checkpoints behind the second and the fourth."""
    made = write_pages(rows_of(4 * 40 - 7), compression=codec, options={"data_page_version": version})
    return asyncio.run(made)


#: The files that the quick suite has too: each version, with and without a codec.
_QUICK = ("zstd 1.0", "snappy 1.0", "lz4_raw 2.0", "none 2.0")
_PAGED = [
    pytest.param(name, marks=() if name in _QUICK else pytest.mark.thorough)
    for name in (f"{codec} {version}" for version in ("1.0", "2.0") for codec in CODECS)
]


@pytest.fixture(scope="session", params=_PAGED)
def paged_file(request: pytest.FixtureRequest) -> PagedFile:
    """A file of many pages: of every codec, with pages of either version."""
    codec, version = request.param.split()
    return paged(codec, version)


@pytest.fixture(scope="session")
def one_paged_file() -> PagedFile:
    """One of them: zstd, pages 1.0."""
    return paged("zstd", "1.0")


@pytest.fixture(scope="session")
def snappy_file() -> PagedFile:
    """Another one: snappy, pages 1.0."""
    return paged("snappy", "1.0")


@pytest.fixture(scope="session")
def narrow_file() -> dict[str, PagedFile]:
    """Two row groups of four columns, by the version of their pages: small enough to try every bit."""
    table = rows_of(2 * 40).select(["id", "kind", "town", "lists"])
    return {
        version: asyncio.run(write_pages(table, checkpoint_every=1, options={"data_page_version": version}))
        for version in ("1.0", "2.0")
    }


@pytest.fixture(scope="session")
def file_of_parts() -> PagedFile:
    """About 1 MiB: every 64 KiB of it have a record of their own, which says where they belong."""
    table = rows_of(20 * 40, noise=1100).select(["id", "kind", "note", "lists"])
    file = asyncio.run(write_pages(table, checkpoint_every=4))
    heads = [record.place.start for record in file.layout.records]
    for start in range(0, len(file.data), PART):
        assert any(start <= head <= start + PART - page_layout.RECORD.size for head in heads)
    return file


@pytest.fixture(scope="session")
def write_paged() -> Callable[..., Any]:
    """`write_pages`: writes a table, and knows where everything lies."""
    return write_pages


@pytest.fixture(scope="session")
def nested_rows() -> Callable[..., pa.Table]:
    """`rows_of`: so many rows of flat and nested columns."""
    return rows_of


@pytest.fixture(scope="session")
def held_against_the_best() -> Callable[..., Any]:
    """`examine`: recovers, and compares with the best that is possible."""
    return examine


@pytest.fixture(scope="session")
def metadata_bits() -> Callable[[PagedFile], Iterator[tuple[int, int]]]:
    """`bits_of_metadata`: every bit that is in no page's body."""
    return bits_of_metadata


@pytest.fixture(scope="session")
def layout_of() -> Callable[[bytes], page_layout.Layout]:
    """Where everything lies in a whole file, ours or another's."""
    return page_layout.Layout
