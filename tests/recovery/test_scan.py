"""Records found in bytes, wherever they lie."""

from __future__ import annotations

from typing import Any

from resilient_pq.format.resilience_records import HEADER_SIZE, RECORD_MAGIC, RecordChain, RecordKind
from resilient_pq.recovery.evidence.records.record_scan import in_place, outermost_file, scan_headers

ONE, OTHER = b"1" * 16, b"2" * 16


def record(file_id: bytes, offset: int, payload: bytes = b"payload") -> bytes:
    return RecordChain(file_id).record(RecordKind.CHUNK, offset, payload, num_rows=0, num_row_groups=0)


def test_every_header_is_found_with_its_place() -> None:
    first = record(ONE, 100)
    data = bytes(7) + first + RECORD_MAGIC + bytes(200) + record(ONE, 9)
    found = list(scan_headers(data, 93))
    assert [offset for offset, _ in found] == [100, 93 + len(data) - len(first)]
    assert [header.offset for header in in_place(found)] == [100]


def test_a_magic_within_a_magic_hides_nothing() -> None:
    data = RECORD_MAGIC[:4] + RECORD_MAGIC + record(ONE, 12)
    assert [offset for offset, _ in scan_headers(data, 0)] == [12]


def test_a_header_that_is_cut_or_changed_is_none() -> None:
    whole = record(ONE, 0)
    assert list(scan_headers(whole[: HEADER_SIZE - 1], 0)) == []
    for at in range(HEADER_SIZE):
        changed = bytearray(whole)
        changed[at] ^= 0x10
        assert list(scan_headers(changed, 0)) == [], at


def test_a_header_with_a_damaged_payload_is_one() -> None:
    whole = bytearray(record(ONE, 0))
    whole[-1] ^= 1
    ((offset, header),) = scan_headers(whole, 0)
    assert offset == 0
    assert not header.holds(whole[HEADER_SIZE:])


def test_the_outermost_file_is_that_which_encloses_the_others() -> None:
    def found(*places: tuple[bytes, int, int]) -> Any:
        return [
            (at, header) for file_id, offset, at in places for _, header in scan_headers(record(file_id, offset), 0)
        ]

    inside = [(OTHER, offset, 1000 + offset) for offset in range(0, 2000, 200)]
    assert outermost_file(found((ONE, 500, 499), *inside, (ONE, 9000, 8999))) == ONE
    assert outermost_file(found(*inside)) == OTHER
    # Beside each other: the one whose records lie nearest to where they say, then the longer one.
    assert outermost_file(found((ONE, 100, 100), *inside)) == ONE
    assert outermost_file(found((ONE, 100, 90), *inside)) == ONE
    assert outermost_file(found((ONE, 100, 3100), *inside)) == OTHER
    assert outermost_file(found((ONE, 100, 1100), *inside)) == OTHER
    # Without the beginning of either the longer one: how many bytes are missing tells nothing.
    assert outermost_file(found((ONE, 9000, 100), (ONE, 9900, 1000), (OTHER, 9000, 700), (OTHER, 9500, 1200))) == ONE
    # But the one that began before the other, and ends behind it, has that one within it.
    inside = [(OTHER, 666 + offset, 431 + offset) for offset in range(0, 30_000, 1000)]
    assert outermost_file(found(*inside, (ONE, 38_495, 34_399), (ONE, 40_000, 35_904))) == ONE
    assert outermost_file(found(*inside, (ONE, 34_600, 34_399), (ONE, 36_105, 35_904))) == OTHER
    assert outermost_file([]) is None
