"""A resilient file in a column of another one: which of them a recovery takes when parts of the outer one are gone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from file_bytes import file_bytes, recovered

import resilient_pq as rpq
from resilient_pq.recovery.evidence.records.record_scan import file_spans, outermost_file, scan_headers


async def outer_and_inner() -> tuple[bytes, bytes, pa.Table]:
    inner = await file_bytes(pa.table({"n": range(400)}), row_group_rows=10, checkpoint_every=1)
    table = pa.table({"id": range(20), "blob": [None] * 7 + [inner] + [None] * 12, "last": [i / 3 for i in range(20)]})
    outer = await file_bytes(table, compression="none", row_group_rows=10, options=rpq.WriteOptions(dictionary_bytes=0))
    assert outer.count(inner) == 1
    return outer, inner, table


@pytest.mark.parametrize(
    "how", ["a byte of the head is missing", "head zeroed", "head and footer", "head missing, cut"]
)
async def test_the_enclosing_file_is_taken(how: str) -> None:
    outer, inner, table = await outer_and_inner()
    ids = [file_id for file_id, *_ in map(astuple_of, file_spans(scan_headers(outer, 0)))]
    data = {
        "a byte of the head is missing": outer[1:],
        "head zeroed": bytes(200) + outer[200:],
        "head and footer": bytes(200) + outer[200:-200] + bytes(200),
        "head missing, cut": outer[1:-150],
    }[how]
    assert len(list(scan_headers(inner, 0))) > len(list(scan_headers(outer, 0))) - len(list(scan_headers(inner, 0)))
    assert outermost_file(scan_headers(data, 0)) == ids[0]
    report, found = await recovered(data)
    assert found.column_names == table.column_names
    assert found.equals(table.slice(0, found.num_rows)) or set(found["id"].to_pylist()) <= set(range(20))
    assert found.equals(table.take(found["id"])) and found.num_rows >= 10
    if how != "head zeroed":
        named = [finding for finding in report.findings if ids[1].hex() in finding.message]
        assert named, "nothing tells of the file within"
        assert not any(finding.costs_rows for finding in named)
        _, within = await recovered(data, file_id=ids[1].hex())
        assert within.equals(pa.table({"n": range(400)}))


async def test_one_record_of_the_outer_file_is_left() -> None:
    """It stands before the page that reaches over the inner file: that one is offered, and not taken."""
    outer, inner, _ = await outer_and_inner()
    within = outer.index(inner)
    mine, other = (span.file_id for span in file_spans(scan_headers(outer, 0)))
    last = max(at for at, header in scan_headers(outer, 0) if header.file_id == mine and at < within)
    data = outer[last - 1 : within + len(inner) - 10]
    with pytest.raises(rpq.NothingToRecoverError) as raised:
        await recovered(data)
    assert any(other.hex() in finding.message for finding in raised.value.report.findings)
    _, found = await recovered(data, file_id=other.hex())
    assert found["n"].to_pylist() == list(range(400))


async def test_another_file_is_told_of_only_where_nothing_says_which_is_meant(drive: Any) -> None:
    outer, inner, _ = await outer_and_inner()
    within = outer.index(inner)
    for data in (outer, outer[: within + len(inner) // 2], bytes(200) + outer[200:]):
        surveyed = drive(data).result
        assert len({header.file_id for header in surveyed.found.values()}) == 2
        assert surveyed.others == []
    for data in (outer[1:], outer[1:-150]):
        (other,) = drive(data).result.others
        assert other.start == within - 1 + len(b"PAR1")
        report, _ = await recovered(data)
        (told,) = [finding for finding in report.findings if other.file_id.hex() in finding.message]
        assert "no anchor tells which file is meant" in told.message


def astuple_of(span: object) -> tuple[bytes, int]:
    return span.file_id, span.start  # type: ignore[attr-defined]


async def test_a_file_id_has_to_be_one_and_to_be_there() -> None:
    outer, _, _ = await outer_and_inner()
    with pytest.raises(rpq.SchemaError, match="no file id"):
        await recovered(outer, file_id="outer")
    with pytest.raises(rpq.RecoveryError, match="no record of the file"):
        await recovered(outer, file_id="00" * 16)


async def test_a_shorter_file_over_a_longer_one() -> None:
    """The footer at the end is that of the old file, which a finding tells how to get; the anchor is the new one's."""
    old = await file_bytes(pa.table({"n": range(900)}), row_group_rows=100, compression="none")
    new = await file_bytes(pa.table({"n": range(5000, 5200)}), row_group_rows=100, compression="none")
    assert len(new) < len(old) // 2
    data = new + old[len(new) :]
    new_id, old_id = (file_spans(scan_headers(file, 0))[0].file_id.hex() for file in (new, old))
    for options in ({}, {"file_id": new_id}):
        report, found = await recovered(data, **options)
        assert found["n"].to_pylist() == list(range(5000, 5200))
        assert (report.outcome, report.kept and report.kept.rows_lost) == ("recovered", 0)
        assert options or any(old_id in finding.message for finding in report.findings)
    report, found = await recovered(data, file_id=old_id)
    assert set(found["n"].to_pylist()) < set(range(900)) and report.outcome == "partial"


async def test_the_schema_of_a_file_in_a_column_is_not_that_of_the_outer_one() -> None:
    """All footers of the outer file are gone; its row-group records name its columns, and the inner footer others."""
    inner = await file_bytes(pa.table({"n": range(9), "text": ["inner"] * 9}))
    table = pa.table(
        {"id": range(20), "name": [f"name {i}" for i in range(20)], "blob": [None] * 7 + [inner] + [None] * 12}
    )
    data = await file_bytes(table, compression="snappy", row_group_rows=10)
    gone = bytearray(data)
    mine = next(iter(scan_headers(data, 0)))[1].file_id
    for at, header in scan_headers(data, 0):
        if header.file_id == mine and header.kind in (1, 3, 4):
            gone[at : at + header.end - header.offset] = bytes(header.end - header.offset)
    _, found = await recovered(bytes(gone))
    assert found.column_names == table.column_names
    assert found["id"].to_pylist() == list(range(20))
