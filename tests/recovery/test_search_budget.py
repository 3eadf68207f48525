"""Searches cost what is in proportion to the bytes searched, whatever these are, and say where they ended."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.errors import FormatError
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import MemoryStore
from resilient_pq.recovery.carve import CarveLimits
from resilient_pq.recovery.carve.stretch_placement import StretchPlacement
from resilient_pq.recovery.evidence.footers import footer_strategies
from resilient_pq.recovery.evidence.footers.footer_search import find_footer, footer_budget
from resilient_pq.recovery.evidence.search_budget import SearchBudget
from resilient_pq.recovery.report import Damage


def test_a_budget_is_in_proportion_and_bounded() -> None:
    budgets = [SearchBudget.of(size, free=10, per_byte=0.5, most=100).limit for size in (0, 20, 100, 1 << 40)]
    assert budgets == [10, 20, 60, 100]


def test_what_is_spent_is_counted_and_never_exceeds_the_limit() -> None:
    budget = SearchBudget(10)
    assert budget.allows(7) and not budget.allows(4) and budget.allows(3)
    assert (budget.spent, budget.ended) == (10, True)
    finding = budget.finding("nothing else", 3, 5)
    assert (finding.damage, finding.start, finding.end, finding.costs_rows) == (Damage.UNVERIFIED, 3, 5, True)
    assert "not searched further" in finding.message


def many_small_pages(columns: int, rows: int, **options: Any) -> bytes:
    """Pages of one kind, as many as there can be, of which none says where a chunk begins."""
    rng = random.Random(columns)
    table = pa.table({f"c{i}": [rng.getrandbits(60) for _ in range(rows)] for i in range(columns)})
    out = io.BytesIO()
    pq.write_table(
        table, out, use_dictionary=False, data_page_size=8, write_batch_size=2, compression="none", **options
    )
    return out.getvalue()


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> list[SearchBudget]:
    """The budgets of all searches for a place of pages."""
    budgets = []
    run = StretchPlacement.run

    def counted(placing: StretchPlacement) -> None:
        run(placing)
        budgets.append(placing.layout.steps)

    monkeypatch.setattr(StretchPlacement, "run", counted)
    return budgets


@pytest.mark.parametrize("holes", [0, 20])
def test_tiny_pages_of_one_kind(holes: int, carving: Any, spent: list[SearchBudget]) -> None:
    data = many_small_pages(6, 300, row_group_size=100)
    metadata, end = carving.footer_of(data)
    rng = random.Random(holes)
    damaged = bytearray(data[:end])
    for _ in range(holes):
        at = rng.randrange(4, end - 50)
        damaged[at : at + 50] = bytes(50)
    limits = CarveLimits(free_steps=10_000, steps_per_byte=1)
    for schema in (Schema.from_elements(metadata.schema), None):
        rebuilt = carving.carve(bytes(damaged), schema, limits=limits)
        if not spent:  # no columns could be made up
            assert schema is None and not rebuilt.row_groups
            continue
        budget = spent.pop()
        assert budget.spent <= budget.limit <= 10_000 + len(data)
        assert not budget.ended or any("not searched further" in finding.message for finding in rebuilt.findings)


@pytest.mark.thorough
def test_a_text_transfer_of_a_file_of_tiny_pages(carving: Any, spent: list[SearchBudget]) -> None:
    data = many_small_pages(4, 4000, row_group_size=400)
    assert len(data) > 400_000
    metadata, end = carving.footer_of(data)
    changed = data[:end].replace(b"\r\n", b"\n").replace(b"\x0d", b"\x0a")
    assert len(changed) <= end
    carving.carve(changed, Schema.from_elements(metadata.schema))
    (budget,) = spent
    assert budget.spent <= budget.limit <= 250_000 + 2 * len(data)


def test_what_only_looks_like_a_footer(carving: Any) -> None:
    """Each of many shapes of file metadata is an attempt; they end, and that is told."""
    data = (b"PAR1" + b"\x15\x02\x19\x2c\x48\x06schema\x15\x02\x00" * 40_000)[:430_000]
    budget = footer_budget(len(data))
    assert carving.drive(find_footer(len(data), budget=budget), data) is None
    assert budget.spent <= budget.limit <= 64 << 20
    assert budget.ended


@pytest.mark.parametrize("limit", [10, None])
async def test_a_search_for_a_footer_that_was_given_up_is_told_of(
    limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if limit is not None:
        monkeypatch.setattr(footer_strategies, "footer_budget", lambda _: SearchBudget(limit))
    store, data = MemoryStore(), many_small_pages(2, 20) + bytes(50)
    await store.put("file", data)
    report = await rpq.check((store, "file"))
    told = [finding for finding in report.findings if "there may be a footer" in finding.message]
    expected = [] if limit is None else [(Damage.UNVERIFIED, 0, len(data))]
    assert [(one.damage, one.start, one.end) for one in told] == expected


def test_taking_more_than_is_left_says_what_to_do() -> None:
    budget = SearchBudget(10)
    budget.take(10)
    with pytest.raises(FormatError, match="given up") as raised:
        budget.take()
    assert "--schema-from" in (raised.value.hint or "")
    assert budget.ended
