"""The damaged ends of files of others: what is named is right, the file's own, and all that its bytes still tell."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import ALL, sampled

from resilient_pq import sync as rpq
from resilient_pq.damage.partial_metadata import partial_metadata
from resilient_pq.format import compact_protocol
from resilient_pq.format.footer import MAGIC, ChunkSums, Footer, read_footer
from resilient_pq.format.resilience_records import RECORD_MAGIC, RecordChain, RecordKind
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.evidence.footers.footer_evidence import find_shift, is_within, pages_begin
from resilient_pq.recovery.evidence.footers.footer_search import find_footer
from resilient_pq.recovery.evidence.footers.torn_footer import TornFooter
from resilient_pq.recovery.evidence.located_row_group import Method

WRITERS = ("pyarrow", "DuckDB", "Polars", "fastparquet")


class Driven:
    """Drives the search by hand, and counts."""

    def __init__(self, data: bytes, **options: Any) -> None:
        self.num_bytes = self.num_requests = self.largest = 0
        self.found: TornFooter | None = None
        asking = find_footer(len(data), **options)
        try:
            wanted = next(asking)
            while True:
                assert 0 <= wanted.start <= wanted.end <= len(data)
                self.num_bytes += wanted.size
                self.num_requests += 1
                self.largest = max(self.largest, wanted.size)
                wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
        except StopIteration as stop:
            self.found = stop.value


def find(data: bytes) -> TornFooter:
    found = Driven(data).found
    assert found is not None
    return found


def messages(found: TornFooter) -> str:
    return "\n".join(finding.message for finding in found.findings)


def rows(count: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": [f"name {i % 7}" if i % 5 else None for i in range(count)],
            "tags": [list(range(i % 4)) for i in range(count)],
        }
    )


@cache
def by_pyarrow(count: int = 50, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows(count), sink, row_group_size=10, **options)
    return sink.getvalue()


@cache
def written_by(writer: str, folder: Path) -> bytes:
    path = folder / writer
    table = rows(5000) if writer == "DuckDB" else rows(50)
    match writer:
        case "pyarrow":
            return by_pyarrow(write_page_index=True)
        case "DuckDB":
            import duckdb

            duckdb.register("given", table)
            duckdb.sql(f"copy given to '{path}' (format parquet, row_group_size 2048)")
            duckdb.unregister("given")
        case "Polars":
            import polars

            polars.from_arrow(table).write_parquet(path, row_group_size=10)
        case "fastparquet":
            import fastparquet

            flat = table.drop_columns("tags").to_pandas()
            fastparquet.write(str(path), flat, row_group_offsets=10, write_index=False)
    return path.read_bytes()


@pytest.fixture(scope="module", params=WRITERS)
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written_by(request.param, tmp_path_factory.getbasetemp())


def contents_of(data: bytes) -> Contents:
    return Contents.of(read_footer(memoryview(data), 0))  # type: ignore[arg-type]


def hold_cut(data: bytes, size: int, whole: Contents) -> None:
    """What a file cut to `size` bytes tells, against what the bytes of its metadata tell by themselves."""
    start = whole.footer.start
    expected = partial_metadata(data[start : min(size, start + whole.footer.length)])
    found = Driven(data[:size]).found
    if not expected.has_schema:
        assert found is None
        return
    assert found is not None
    assert found.contents.schema == whole.schema
    assert found.contents.metadata.row_groups == expected.row_groups
    assert list(found.columns) == expected.columns
    assert found.complete == (size >= start + whole.footer.length)
    assert found.num_rows == expected.num_rows
    assert (found.start, found.shift) == (start, 0)
    if found.complete:
        assert not any(finding.costs_rows for finding in found.findings)
    elif len(expected.row_groups) < len(whole.metadata.row_groups):
        assert any(finding.costs_rows for finding in found.findings)


@sampled(200, ALL, 900)
def test_a_cut_in_the_footer(theirs: bytes, count: int) -> None:
    whole = contents_of(theirs)
    sizes = range(whole.footer.start, len(theirs))
    near = range(len(theirs) - 12, len(theirs))
    for size in {*random.Random(1).sample(sizes, min(count, len(sizes))), *near}:
        hold_cut(theirs, size, whole)


def hold_cut_and_filled(data: bytes, size: int, padding: bytes, whole: Contents) -> None:
    """Cut in the footer, and zeros behind: zeros can end what was cut, but never to something else than it was."""
    found = Driven(data[:size] + padding).found
    before = partial_metadata(data[whole.footer.start : size])
    if found is None:
        assert not before.has_schema or not data[size - 1], "the last byte of the schema may be taken for padding"
        return
    named = found.contents.metadata.row_groups
    originals = whole.metadata.row_groups
    assert len(before.row_groups) <= len(named) + (not data[size - 1])
    for row_group, original in zip(named, originals, strict=False):
        assert row_group.num_rows == original.num_rows
        for chunk, other in zip(row_group.columns, original.columns, strict=True):
            assert chunk.meta_data is not None and other.meta_data is not None
            for name in ("num_values", "codec", "type", "data_page_offset", "total_compressed_size"):
                assert getattr(chunk.meta_data, name) == getattr(other.meta_data, name)


def test_zeros_in_the_schema_are_no_columns() -> None:
    """They could be read as columns without a name, or as the rest of what is said of one."""
    data = by_pyarrow()
    whole = contents_of(data)
    sizes = range(whole.footer.start, whole.footer.start + 200)
    found = [found for size in sizes if (found := Driven(data[:size] + bytes(4096)).found) is not None]
    assert found
    assert all(each.contents.schema == whole.schema for each in found)


@sampled(100, ALL, 900)
@pytest.mark.parametrize("padding", [bytes(4096), b"\xff" * 4096], ids=["zeros", "ones"])
def test_a_cut_in_the_footer_and_padding_behind_it(theirs: bytes, padding: bytes, count: int) -> None:
    whole = contents_of(theirs)
    sizes = range(whole.footer.start, len(theirs))
    for size in random.Random(2).sample(sizes, min(count, len(sizes))):
        hold_cut_and_filled(theirs, size, padding, whole)


@pytest.mark.parametrize("count", [1, 63, 64, 512, 3_000_000])
@pytest.mark.parametrize("byte", [b"\x00", b"\xff"])
def test_padding_behind_the_end(theirs: bytes, count: int, byte: bytes) -> None:
    found = find(theirs + count * byte)
    whole = contents_of(theirs)
    assert found.contents == whole
    assert found.complete and found.end == len(theirs)
    assert found.rebuilt.row_groups[-1].method is Method.FOOTER
    assert f"{count:,} bytes of" in messages(found)
    hold_view(found, theirs, theirs)


def test_junk_behind_the_end(theirs: bytes) -> None:
    junk = random.Random(3).randbytes(100_000)
    found = find(theirs + junk)
    assert found.contents == contents_of(theirs)
    (behind,) = found.findings  # of the end itself nothing is missing
    assert "stand behind the end" in behind.message
    assert (behind.start, behind.end) == (len(theirs), len(theirs) + len(junk))


def test_a_number_of_rows_is_not_believed_where_the_damage_may_begin_in_it() -> None:
    """A block of something else begins within it: its last byte is another one, and what follows are no row groups."""
    data = by_pyarrow(200)
    at = data.rindex(b"\x16\x90\x03\x19")  # 200 rows, and the row groups
    found = find(data[: at + 2] + b"\x0c" + b"%" * 200 + data[at + 203 :])
    assert partial_metadata(data[: at + 2][found.start :] + b"\x0c").num_rows == 776
    assert (found.complete, found.num_rows, found.num_row_groups) == (False, None, None)


@pytest.mark.parametrize(
    "change", [(b"\0", b"\0"), (b"\n", b"\r\n"), (b"\r\n", b"\n")], ids=["as it was", "CR LF", "LF"]
)
def test_metadata_behind_the_beginning_of_a_file_are_of_that_file(change: tuple[bytes, bytes]) -> None:
    """In a page of the outer file, and whatever a transfer as text made of its first record."""
    chain = RecordChain(b"1" * 16)
    for kind in (RecordKind.ANCHOR, RecordKind.CHUNK):
        inner = b"PAR1" + chain.record(kind, 4, b"schema", num_rows=0, num_row_groups=0)
        data = bytes(50) + inner.replace(*change)
        asking = is_within(len(data))
        place = next(asking)
        with pytest.raises(StopIteration) as stop:
            asking.send(memoryview(data)[place.start : place.end])
        assert stop.value.value is (kind is RecordKind.ANCHOR)


@pytest.mark.parametrize("lost", range(1, 9))
def test_the_tail_of_a_file_without_row_groups(lost: int) -> None:
    """Its own length and magic are nothing that stands behind it; other bytes are, and nobody knows whose they are."""
    sink = io.BytesIO()
    pq.ParquetWriter(sink, pa.schema([("n", pa.int64())])).close()
    empty = sink.getvalue()
    for damaged in (empty[:-lost], empty[:-lost] + b"\xee" * lost):
        found = find(damaged)
        assert found.complete and "the footer is whole" in messages(found)
    for head, said in ((empty, ()), (b"\xee" * 4 + empty[4:], ("the magic at the beginning is damaged",))):
        found = find(head + b"\xee" * 200)
        assert not found.complete
        metadata, *others = sorted(found.findings, key=lambda finding: "tell the schema" not in finding.message)
        assert metadata.costs_rows and "tell the schema" in metadata.message
        assert [finding.message.split(";")[0] for finding in others] == [*said], "the metadata are where they were"


@pytest.mark.parametrize("changed", range(1, 9))
def test_every_byte_of_the_tail_overwritten(theirs: bytes, changed: int) -> None:
    whole = contents_of(theirs)
    for value in (0x00, 0x20, 0xFF):
        data = bytearray(theirs)
        data[-changed] = value
        found = find(bytes(data))
        assert found.complete
        assert found.contents.metadata == whole.metadata
        assert not any(finding.costs_rows for finding in found.findings)


def test_the_magic_at_the_beginning(theirs: bytes) -> None:
    found = find(b"\0\0\0\0" + theirs[4:])
    assert found.contents == contents_of(theirs)
    assert "magic at the beginning" in messages(found)


def hold_view(found: TornFooter, data: bytes, original: bytes) -> None:
    """Through the view every chunk that is there lies where the metadata have it."""
    assert found.view.size == len(original)
    for known in found.rebuilt.row_groups:
        for chunk in known.chunks:
            assert chunk is not None
            for at, place in found.view.places(chunk.read.range):
                start = chunk.read.range.start + at
                assert data[place.start : place.end] == original[start : start + place.size]
    if found.shift == 0:
        assert found.view.is_in_place


@pytest.mark.parametrize("missing", [1, 4, 100])
def test_bytes_missing_at_the_beginning(theirs: bytes, missing: int) -> None:
    found = find(theirs[missing:])
    assert found.shift == -missing
    assert found.contents.metadata == contents_of(theirs).metadata
    assert found.contents.footer.start == found.start + missing
    assert f"{missing} bytes are missing" in messages(found)
    hold_view(found, theirs[missing:], theirs)


def test_bytes_added_at_the_beginning(theirs: bytes) -> None:
    added = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\r\n"
    found = find(added + theirs)
    assert (found.shift, found.complete) == (len(added), True)
    hold_view(found, added + theirs, theirs)
    assert found.contents.metadata == contents_of(theirs).metadata
    (before,) = [finding for finding in found.findings if "something else" in finding.message]
    assert (before.start, before.end, before.where.offset) == (0, len(added), 0)


@pytest.mark.parametrize("length", [16, 512])
def test_zeros_within_the_metadata(theirs: bytes, length: int) -> None:
    """What is named is right, whatever the damage leaves; and of what stands before it nothing is lost."""
    whole = contents_of(theirs)
    start, end = whole.footer.start, whole.footer.start + whole.footer.length
    for at in random.Random(4).sample(range(start, end - length), 60):
        data = theirs[:at] + bytes(length) + theirs[at + length :]
        before = partial_metadata(theirs[start:at])
        found = Driven(data).found
        if found is None:
            assert not before.has_schema
            continue
        named = found.contents.metadata.row_groups
        assert named[: len(before.row_groups)] == before.row_groups
        rows_before = [known.rows_before for known in found.rebuilt.row_groups]
        for row_group, ordinal, count in zip(named, found.ordinals, rows_before, strict=True):
            original = whole.metadata.row_groups[ordinal]
            assert row_group.num_rows == original.num_rows
            assert row_group.columns[0].meta_data == original.columns[0].meta_data or at < start + 200
            assert count in (None, sum(each.num_rows for each in whole.metadata.row_groups[:ordinal]))


@pytest.mark.parametrize("damaged", [0, 1, 3, 4])
def test_a_row_group_of_which_the_metadata_are_damaged(damaged: int) -> None:
    """All others are named, behind it too, and where its own data lie is known."""
    data = by_pyarrow(write_page_index=True)
    whole = contents_of(data)
    originals = whole.metadata.row_groups
    at = data.index(compact_protocol.encode(originals[damaged]), whole.footer.start)
    length = len(compact_protocol.encode(originals[damaged]))
    for first in range(at, at + length - 40, 97):
        found = find(data[:first] + b"\xaa" * 40 + data[first + 40 :])
        others = [ordinal for ordinal in range(5) if ordinal != damaged]
        assert list(found.ordinals) == others
        assert found.contents.metadata.row_groups == [originals[ordinal] for ordinal in others]
        if damaged < 4:
            assert found.contents.metadata.created_by == whole.metadata.created_by
            assert found.contents.key_value == whole.key_value
        known = found.rebuilt.row_groups
        assert [each.rows_before for each in known] == [10 * ordinal for ordinal in others]
        assert [each.ordinal for each in known] == others
        assert "4 of 5 row groups" in messages(found)


@pytest.mark.thorough
def test_every_bit_of_the_metadata(theirs: bytes) -> None:
    """A bit can change what is named without a trace; but never to row groups of other chunks in silence."""
    whole = contents_of(theirs)
    for at in range(whole.footer.start, len(theirs) - 8):
        for bit in range(8):
            data = bytearray(theirs)
            data[at] ^= 1 << bit
            found = Driven(bytes(data) + bytes(512)).found
            if found is None:
                continue
            assert len(found.ordinals) == len(set(found.ordinals)) == len(found.contents.metadata.row_groups)
            assert list(found.ordinals) == sorted(found.ordinals)
            assert len(found.rebuilt.row_groups) == len(found.ordinals)
            missing = len(found.ordinals) < len(whole.metadata.row_groups)
            assert not missing or any(finding.costs_rows for finding in found.findings)


def test_known_row_groups(theirs: bytes) -> None:
    whole = contents_of(theirs)
    rebuilt = find(theirs + bytes(512)).rebuilt
    assert rebuilt.schema == whole.schema
    assert rebuilt.metadata.row_groups == [] and rebuilt.metadata.created_by == whole.metadata.created_by
    total = 0
    for ordinal, (known, row_group) in enumerate(zip(rebuilt.row_groups, whole.metadata.row_groups, strict=True)):
        assert (known.ordinal, known.num_rows, known.rows_before) == (ordinal, row_group.num_rows, total)
        assert all(chunk is not None for chunk in known.chunks)
        assert 4 <= known.start < known.end <= whole.footer.start
        total += row_group.num_rows


# -- files within files ----------------------------------------------------------------------------------


@cache
def with_files_in_a_column(inner: bytes) -> bytes:
    """A file, not compressed, with whole files in a column, one of them in its last page."""
    table = pa.table({"number": [1, 2, 3], "file": pa.array([inner, inner, inner], pa.binary())})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=1, compression="none", use_dictionary=False)
    return sink.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data, start: data[:start],
        lambda data, start: data[:start] + bytes(4096),
        lambda data, start: data[: start - 3],
        lambda data, start: data[: start + 30],
        lambda data, start: data[:start] + bytes(len(data) - start),
    ],
)
def test_a_file_within_a_column_is_not_the_file(damage: Callable[[bytes, int], bytes]) -> None:
    for inner in (by_pyarrow(), by_pyarrow(10), with_files_in_a_column(by_pyarrow(20))):
        outer = with_files_in_a_column(inner)
        assert Driven(damage(outer, contents_of(outer).footer.start)).found is None


def test_the_schema_that_begins_a_file_of_ours_within_a_column_is_not_that_of_the_outer_file(
    tmp_path: Path,
) -> None:
    """Of the record around it nothing is whole but its first bytes, as in a page that is compressed."""
    with rpq.create(str(tmp_path / "inner"), rows(5).schema) as writer:
        writer.write(rows(5))
    inner = (tmp_path / "inner").read_bytes()
    header = len(MAGIC) + len(RECORD_MAGIC) + 2
    inner = inner[:header] + inner[header + 1 :]
    outer = with_files_in_a_column(inner[: inner.index(RECORD_MAGIC, header)])
    assert Driven(outer[: contents_of(outer).footer.start]).found is None


def test_a_cut_anywhere_in_a_file_with_files_in_it() -> None:
    outer = with_files_in_a_column(by_pyarrow(20))
    whole = contents_of(outer)
    some = random.Random(5).sample(range(len(outer)), 300)
    found = {size: found for size in some if (found := Driven(outer[:size]).found) is not None}
    assert found
    for size, each in found.items():
        assert size > whole.footer.start
        assert each.contents.schema == whole.schema


def test_the_outer_footer_is_taken_before_the_inner_ones() -> None:
    outer = with_files_in_a_column(by_pyarrow())
    for data in (outer + bytes(4096), outer[:-1], outer[:-5] + b"XXXXX", outer[:-400]):
        found = find(data)
        assert found.contents.schema == contents_of(outer).schema


def test_row_groups_lie_behind_bytes_that_were_added_only_where_a_file_begins_there(carving: Any) -> None:
    """Without the magic, the metadata may be those of a file within a column."""
    empty = io.BytesIO()
    pq.ParquetWriter(empty, rows(0).schema).close()
    for data in (by_pyarrow(), empty.getvalue()):
        whole = contents_of(data)
        for magic, shift in ((b"PAR1", 100), (b"XXXX", None)):
            asking = find_shift(whole.metadata, 100 + whole.footer.start, has_magic=False)
            assert carving.drive(asking, bytes(100) + magic + data[4:]) == shift


# -- bounds ----------------------------------------------------------------------------------------------


def test_what_is_read_of_a_large_file_without_a_footer() -> None:
    data = b"PAR1" + random.Random(6).randbytes(24 << 20)
    driven = Driven(data, reach=4 << 20)
    assert driven.found is None
    assert driven.num_bytes < 9 << 20
    assert driven.largest <= 8 << 20


def lying_tails() -> bytes:
    """Many a magic, each with a length that leads to what looks like metadata."""
    data = bytearray(b"PAR1" + (b"PAR1\x15\x02\x19\x2c\x48\x01a\x15\x02\x00" + bytes(100)) * 20_000)
    for i in range(20_000):
        data += (len(data) - 8 - 114 * i).to_bytes(4, "little") + b"PAR1"
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        lying_tails(),
        b"PAR1" * 100_000,
        b"PAR1" + b"\x15\x02\x19\x2c" * 50_000,
        b"PAR1" + b"\x15\x02\x19\x2c\x48\x01a\x15\x02\x00" * 20_000,
        b"PAR1" + b"\x15\x02\x19\xfc\xff\xff\xff\x07" + b"\x48\x01a\x15\x02\x00" * 600_000,
    ],
    ids=["tails", "magics", "shapes", "roots", "elements"],
)
def test_what_only_looks_like_metadata_costs_a_bounded_number_of_bytes(data: bytes) -> None:
    driven = Driven(data)
    assert driven.found is None
    assert driven.num_bytes < 700 << 20
    assert driven.num_requests < 50_000


@pytest.mark.parametrize("data", [b"", b"P", b"PAR1", b"PAR1PAR1", b"PAR1\0\0\0\0PAR1", bytes(100_000)])
def test_nothing_to_be_found(data: bytes) -> None:
    assert Driven(data).found is None


def test_sums_of_ours_that_are_none_are_passed_over(tmp_path: Path) -> None:
    """Of a file of ours whose records are all gone, and in whose torn footer one sum is damaged."""
    path = tmp_path / "torn.parquet"
    with rpq.create(path, row_group_rows=10, checkpoint_every=None) as writer:
        writer.write(rows(50))
    data = bytearray(path.read_bytes())
    at = data.rindex(b"rpq.crc32") + 11
    data[at : at + 4] = b"????"
    whole = bytes(data).replace(b"\xd7RPQ\r\n\x1a\n", bytes(8))[:-8]
    known = find(whole).rebuilt.row_groups
    assert [each.num_rows for each in known] == [10] * 5
    sums = [ChunkSums.of(chunk.read.metadata) for each in known for chunk in each.chunks if chunk is not None]
    assert sums.count(None) == 1 and len(sums) == 15
    path.write_bytes(whole)
    rpq.recover(path, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == rows(50).to_pydict()


def test_pages_begin_only_where_their_headers_can_be_read(carving: Any) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"a": list(range(100)), "b": [str(i) for i in range(100)]}), out)
    data = out.getvalue()
    metadata = read_footer(data, 0)
    assert isinstance(metadata, Footer)
    chunks = metadata.metadata.row_groups[0].columns
    for body, begin in ((data, True), (b"\xff" * len(data), False)):
        assert carving.drive(pages_begin(chunks, 0, len(data)), body) is begin
