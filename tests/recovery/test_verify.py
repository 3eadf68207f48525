"""Findings about chunks, records and indexes."""

from __future__ import annotations

from typing import Any

import pytest

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import EncodingError, FormatError
from resilient_pq.format.footer import read_footer
from resilient_pq.format.resilience_records import HEADER_SIZE, RecordKind
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.report import Damage
from resilient_pq.recovery.verification import checksum_checks


def contents_of(data: bytes) -> Contents:
    footer = read_footer(memoryview(data), 0)
    return Contents.of(footer)  # type: ignore[arg-type]


def first_chunk(data: bytes) -> Any:
    contents = contents_of(data)
    return chunk_read(contents, 0, contents.schema.leaves[0])


def of(data: bytes, place: ByteRange) -> memoryview:
    return memoryview(data)[place.start : place.end]


def test_a_whole_chunk_has_no_finding(small: Any) -> None:
    chunk = first_chunk(small.data)
    assert checksum_checks.examine_chunk(chunk, of(small.data, chunk.range)) == []


def test_a_damaged_page_is_named_with_its_bytes(small: Any) -> None:
    chunk = first_chunk(small.data)
    data = small.zeroed((chunk.range.end - 1, chunk.range.end))
    if data == small.data:
        data = small.data[: chunk.range.end - 1] + b"\xff" + small.data[chunk.range.end :]
    (finding,) = checksum_checks.examine_chunk(chunk, of(data, chunk.range))
    assert (finding.damage, finding.costs_rows) == (Damage.CORRUPT, True)
    assert (finding.where.row_group, finding.where.column) == (0, "id")
    assert finding.start is not None and finding.end == chunk.range.end


def test_what_memory_is_too_small_for_is_not_damaged(small: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = first_chunk(small.data)

    def too_much(*_: Any, **__: Any) -> None:
        raise EncodingError("too much") from MemoryError()

    monkeypatch.setattr(checksum_checks, "verify_chunk", lambda *_: False)  # as a file without checksums
    monkeypatch.setattr(checksum_checks, "decode", too_much)
    (finding,) = checksum_checks.examine_chunk(chunk, of(small.data, chunk.range))
    assert (finding.damage, finding.costs_rows) == (Damage.UNVERIFIED, False)


def test_all_but_the_data_is_expected_somewhere(small: Any) -> None:
    """With the data and the final record, what is expected leaves no byte of the file over."""
    contents = contents_of(small.data)
    places = [expected.range for expected in checksum_checks.expected_metadata(contents)]
    places += [chunk_read(contents, ordinal, leaf).range for ordinal in range(5) for leaf in contents.schema.leaves]
    (final,) = small.records(RecordKind.FINAL)
    assert contents.footer.record == final
    at = 0
    for place in sorted(places):
        assert place.start == at
        at = place.end
    assert at == final.offset


def test_of_a_checkpoint_all_but_itself_is_expected(small: Any) -> None:
    checkpoint = small.records(RecordKind.CHECKPOINT)[-1]
    expected = list(checksum_checks.expected_metadata(contents_of(small.data[: checkpoint.end])))
    assert [found.what for found in expected if found.kind == RecordKind.CHECKPOINT] == ["checkpoint 1"]
    assert max(found.range.end for found in expected) == checkpoint.offset


def test_of_the_anchor_only_the_magic_is_expected(small: Any) -> None:
    (anchor,) = small.records(RecordKind.ANCHOR)
    expected = checksum_checks.expected_metadata(contents_of(small.data[: anchor.end]))
    assert [found.range for found in expected] == [ByteRange(0, 4)]


def test_a_record_is_compared_with_all_that_it_should_be(small: Any) -> None:
    contents = contents_of(small.data)
    (anchor,) = small.records(RecordKind.ANCHOR)
    expected = next(e for e in checksum_checks.expected_metadata(contents) if e.kind == RecordKind.ANCHOR)
    data = bytearray(of(small.data, expected.range))
    assert checksum_checks.examine_expected(expected, memoryview(data), anchor.file_id) is None
    assert checksum_checks.examine_expected(expected, memoryview(data), b"?" * 16) is not None
    assert checksum_checks.examine_expected(expected, memoryview(data)[:-1], anchor.file_id) is not None
    assert checksum_checks.examine_expected(expected, memoryview(data)[: HEADER_SIZE - 1], anchor.file_id) is not None
    data[-1] ^= 1
    finding = checksum_checks.examine_expected(expected, memoryview(data), anchor.file_id)
    assert finding is not None
    assert (finding.start, finding.end, finding.costs_rows) == (anchor.offset, anchor.end, False)


@pytest.mark.parametrize("what", ["column index", "offset index", "bloom filter"])
def test_an_index_is_compared_with_its_checksum(small: Any, what: str) -> None:
    expected = next(e for e in checksum_checks.expected_metadata(contents_of(small.data)) if e.what == what)
    data = bytearray(of(small.data, expected.range))
    assert checksum_checks.examine_expected(expected, memoryview(data), b"") is None
    data[0] ^= 1
    finding = checksum_checks.examine_expected(expected, memoryview(data), b"")
    assert finding is not None and not finding.costs_rows


def test_a_footer_that_names_impossible_places_is_refused(small: Any) -> None:
    contents = contents_of(small.data)
    pairs = contents.metadata.row_groups[0].columns[0].meta_data.key_value_metadata  # type: ignore[union-attr]
    for pair in pairs or ():
        if pair.key == "rpq.record":
            pair.value = f"{1 << 60}:5"
    with pytest.raises(FormatError, match=r"rpq\.record"):
        list(checksum_checks.expected_metadata(contents))
