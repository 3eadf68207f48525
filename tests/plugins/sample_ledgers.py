"""Ledgers to show and to count with: of a real file that was damaged in known places, and of made-up ones.

The real one is what a salvage should make of the file; which pages are lost, and which rows with them, follows from
the layout that was written and from the damage alone.
"""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from resilient_pq import sync as rpq
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers
from resilient_pq.recovery.ledger.ledger_model import (
    ByteUse,
    Confidence,
    Ledger,
    LedgerSource,
    Region,
    RowsFate,
    complete_regions,
)
from resilient_pq.units import KiB

ROW_GROUPS = 12
ROWS = 2000
PAGE_ROWS = 500
_RECORDS = {
    RecordKind.ANCHOR: "anchor",
    RecordKind.ROW_GROUP: "row-group record",
    RecordKind.CHECKPOINT: "checkpoint",
    RecordKind.FINAL: "footer",
    RecordKind.CHUNK: "chunk record",
}
ZEROED = "its checksum does not hold: 0x1f2e3d4c is stored, the bytes have 0x00000000"
NO_DICTIONARY = "its dictionary page is lost, and too large to have a copy"
TORN = "the file ends before it"


@dataclass(frozen=True)
class Page:
    """A page as it was written; `first_row` is None for a dictionary page."""

    row_group: int
    column: str
    number: int
    start: int
    body: int
    end: int
    first_row: int | None
    num_rows: int


@dataclass(frozen=True)
class Layout:
    """Where everything lies in a file that is whole."""

    data: bytes
    columns: tuple[str, ...]
    pages: tuple[Page, ...]
    others: tuple[Region, ...]
    checkpoints: tuple[tuple[int, int], ...]

    def page(self, row_group: int, column: str, number: int) -> Page:
        return next(p for p in self.pages if (p.row_group, p.column, p.number) == (row_group, column, number))


def _table() -> dict[str, list[Any]]:
    dice = random.Random(1)
    rows = range(ROW_GROUPS * ROWS)
    return {
        "event_id": list(rows),
        "occurred_at": [1_700_000_000_000 + 250 * i + dice.randrange(200) for i in rows],
        "customer.id": [dice.randrange(1 << 40) for _ in rows],
        "customer.country": [dice.choice(("AT", "CH", "DE", "FR", "IT")) for _ in rows],
        "price": [dice.random() for _ in rows],
        "quantity": [dice.randrange(1 << 30) for _ in rows],
        "note": [dice.randbytes(24).hex() for _ in rows],
        "refunded": [dice.random() < 0.1 for _ in rows],
    }


@cache
def _layout() -> Layout:
    table = _table()
    data = _write(table)
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    pages: list[Page] = []
    for ordinal in range(ROW_GROUPS):
        for number in range(len(table)):
            chunk = metadata.row_group(ordinal).column(number)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            raw = memoryview(data)[start : start + chunk.total_compressed_size]
            pages += _pages(ordinal, chunk.path_in_schema, raw, start)
    headers = in_place(scan_headers(data, 0))
    kept = {"use": ByteUse.METADATA, "confidence": Confidence.CHECKSUM}
    others = [Region(0, 0, 4, what="magic", **kept)]  # type: ignore[arg-type]
    others += [Region(0, h.offset, h.end, what=_RECORDS[RecordKind(h.kind)], **kept) for h in headers]  # type: ignore[arg-type]
    checkpoints = tuple((h.offset, h.num_rows) for h in headers if h.kind == RecordKind.CHECKPOINT)
    return Layout(data, tuple(table), tuple(pages), tuple(others), checkpoints)


def _write(table: dict[str, list[Any]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.parquet"
        with rpq.create(
            path,
            compression="none",
            row_group_rows=ROWS,
            checkpoint_every=3,
            checkpoint_overhead=100.0,
            options=rpq.WriteOptions(page_rows=PAGE_ROWS),
        ) as writer:
            writer.write(table)
        return path.read_bytes()


def _pages(ordinal: int, column: str, raw: memoryview, start: int) -> Iterator[Page]:
    first_row = 0
    for number, page in enumerate(pages_of(raw, start)):
        body = page.end - page.header.compressed_page_size
        if page.data_header is None:
            yield Page(ordinal, column, number, page.offset, body, page.end, None, 0)
            continue
        yield Page(ordinal, column, number, page.offset, body, page.end, first_row, page.num_values)
        first_row += page.num_values


def damaged(on_damage: str = "drop") -> Ledger:
    """The file with 64 KiB zeroed, a dictionary lost, a page header overwritten, a bit flipped, and its tail torn."""
    layout = _layout()
    note = layout.page(4, "note", 2)
    holes = [(note.start + 100, note.start + 100 + 64 * KiB)]
    size = layout.page(11, "price", 2).start + 1000
    header = layout.page(2, "price", 1)
    flipped = layout.page(8, "quantity", 3)
    copied = layout.page(9, "customer.country", 0)
    lost: dict[Page, str] = {}
    mended = {header: "header-copy", flipped: "bit-repair", copied: "dictionary-copy"}
    for page in layout.pages:
        if page.end > size:
            lost[page] = TORN
        elif any(page.start < end and start < page.end for start, end in holes):
            lost[page] = ZEROED
        elif page.row_group == 6 and page.column == "customer.country":
            lost[page] = NO_DICTIONARY if page.number else ZEROED
    fates = tuple(_fates(layout, lost, on_damage))
    regions, missing = _regions(layout, lost, mended, fates, size, on_damage)
    for other in layout.others:
        if any(other.start < end and start < other.end for start, end in holes) or other.end > size >= other.start:
            broken = replace(other, end=min(other.end, size), use=ByteUse.LOST, confidence=None, reason=ZEROED)
            regions.append(broken)
        elif other.end <= size:
            regions.append(other)
    return Ledger(
        sources=(LedgerSource("s3://lake/events/2026-11-20.parquet", size, '"8c1f0a"'),),
        columns=layout.columns,
        row_groups=(ROWS,) * ROW_GROUPS,
        regions=complete_regions(size, regions),
        rows=fates,
        checkpoints=tuple(place for place in layout.checkpoints if place[0] < size),
        missing=tuple(missing),
        on_damage=on_damage,
    )


def _fates(layout: Layout, lost: dict[Page, str], on_damage: str) -> Iterator[RowsFate]:
    """Runs of rows that lost the same columns for the same reason."""
    for ordinal in range(ROW_GROUPS):
        first = 0
        last = ordinal == ROW_GROUPS - 1
        while first < ROWS:
            gone = [page for page in lost if page.row_group == ordinal and _covers(page, first)]
            end = min([ROWS, *_edges(lost, ordinal, first)])
            columns = tuple(name for name in layout.columns if name in {page.column for page in gone})
            nulled = columns if on_damage == "null" and not last else ()
            kept = not columns or bool(nulled)
            named = "" if nulled else f"{', '.join(columns)}: "
            reason = f"{named}{lost[gone[0]]}" if gone else None
            method = "row-group-record" if not last else "chunk-records"
            confidence = Confidence.CHECKSUM if kept else None
            rows = end - first
            yield RowsFate(ordinal * ROWS + first, rows, ordinal, kept, nulled, method, confidence, reason)
            first = end


def _covers(page: Page, row: int) -> bool:
    return page.first_row is not None and page.first_row <= row < page.first_row + page.num_rows


def _edges(lost: dict[Page, str], ordinal: int, row: int) -> list[int]:
    pages = [page for page in lost if page.row_group == ordinal and page.first_row is not None]
    edges = {edge for page in pages for edge in (page.first_row or 0, (page.first_row or 0) + page.num_rows)}
    return [edge for edge in edges if edge > row]


def _regions(
    layout: Layout,
    lost: dict[Page, str],
    mended: dict[Page, str],
    fates: Sequence[RowsFate],
    size: int,
    on_damage: str,
) -> tuple[list[Region], list[Region]]:
    there: list[Region] = []
    missing: list[Region] = []
    for page in layout.pages:
        kept = None if page.first_row is None else _rows_kept(page, fates)
        what = "dictionary page" if page.first_row is None else "page"
        reason = lost.get(page)
        if reason is None and kept == 0:
            reason = "its rows went with values that another column lost"
        how = mended.get(page)
        if how is not None and reason is None:
            reason = {"bit-repair": "its checksum does not hold"}.get(how, "its bytes were overwritten")
        believed = Confidence.REPAIRED if how == "bit-repair" else Confidence.CHECKSUM
        region = Region(
            source=0,
            start=min(page.start, size),
            end=min(page.end, size),
            use=ByteUse.LOST if page in lost or kept == 0 else ByteUse.DATA,
            what=what,
            row_group=page.row_group,
            column=page.column,
            page=page.number,
            mended=how,
            confidence=None if page in lost else believed,
            reason=reason,
            first_row=page.first_row,
            num_rows=None if page.first_row is None else page.num_rows,
            rows_kept=kept,
        )
        if region.size:
            there.append(region)
        else:
            missing.append(replace(region, start=page.start, end=page.start))
    return there, missing


def _rows_kept(page: Page, fates: Sequence[RowsFate]) -> int:
    first = page.row_group * ROWS + (page.first_row or 0)
    end = first + page.num_rows
    return sum(
        max(min(end, (fate.first_row or 0) + (fate.num_rows or 0)) - max(first, fate.first_row or 0), 0)
        for fate in fates
        if fate.kept
    )


def made_up(
    columns: Sequence[str], row_groups: int, pages: int, *, lost: int = 0, seed: int = 0, url: str = "made-up.parquet"
) -> Ledger:
    """Chunks of pages of 100 bytes and 10 rows each, of which some lost their values and got nulls for them."""
    dice = random.Random(seed)
    count = row_groups * len(columns) * pages
    gone = set(dice.sample(range(count), lost))
    regions: list[Region] = []
    nulls: dict[tuple[int, int], list[str]] = {}
    for number in range(count):
        ordinal, place = divmod(number, len(columns) * pages)
        column, page = divmod(place, pages)
        broken = number in gone
        if broken:
            nulls.setdefault((ordinal, page), []).append(columns[column])
        regions.append(
            Region(
                source=0,
                start=number * 100,
                end=number * 100 + 100,
                use=ByteUse.LOST if broken else ByteUse.DATA,
                what="page",
                row_group=ordinal,
                column=columns[column],
                page=page,
                confidence=None if broken else Confidence.CHECKSUM,
                reason=ZEROED if broken else None,
                first_row=page * 10,
                num_rows=10,
                rows_kept=10,
            )
        )
    fates = []
    for ordinal in range(row_groups):
        for page in range(pages):
            nulled = tuple(nulls.get((ordinal, page), ()))
            first = (ordinal * pages + page) * 10
            reason = ZEROED if nulled else None
            fates.append(RowsFate(first, 10, ordinal, True, nulled, "footer", Confidence.CHECKSUM, reason))
    return Ledger(
        sources=(LedgerSource(url, count * 100),),
        columns=tuple(columns),
        row_groups=(pages * 10,) * row_groups,
        regions=tuple(regions),
        rows=tuple(fates),
        on_damage="null",
    )


class SampleLedgers:
    """What the tests ask for ledgers."""

    damaged = staticmethod(damaged)
    made_up = staticmethod(made_up)


@pytest.fixture(scope="session")
def sample_ledgers() -> SampleLedgers:
    return SampleLedgers()
