"""Which rung comes next: the cheapest that can still tell something, and each at most once."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

from resilient_pq.recovery.evidence.strategy import Facts, Strategy, next_strategy

FLAGS = [field.name for field in fields(Facts) if field.name != "tried"]


def climb(facts: Facts) -> list[Strategy]:
    """All rungs that are tried when none of them tells anything new."""
    rungs: list[Strategy] = []
    while (rung := next_strategy(facts)) is not None:
        rungs.append(rung)
        facts = replace(facts, tried=facts.tried | {rung})
    return rungs


def test_a_whole_footer_is_enough() -> None:
    assert climb(Facts(footer_whole=True)) == [Strategy.FOOTER]


def test_a_file_of_ours_is_never_searched_for_pages_while_its_records_tell() -> None:
    records = Facts(records_found=True, schema_known=True)
    assert climb(records) == [Strategy.FOOTER, Strategy.RECORDS]
    assert climb(replace(records, row_groups_missing=True))[-1] is Strategy.CHUNK_RECORDS


def test_parts_are_put_back_before_anything_is_concluded_from_their_places() -> None:
    moved = Facts(records_found=True, schema_known=True, displaced=True, row_groups_missing=True)
    assert climb(moved) == [Strategy.FOOTER, Strategy.RECORDS, Strategy.PLACEMENT, Strategy.CHUNK_RECORDS]


def test_records_without_a_schema_end_in_carving() -> None:
    assert climb(Facts(records_found=True)) == [Strategy.FOOTER, Strategy.RECORDS, Strategy.TRUE_END, Strategy.CARVING]


def test_a_file_of_others_is_carved_last() -> None:
    everything = [Strategy.FOOTER, Strategy.RECORDS, Strategy.IDENTITY, Strategy.TRUE_END, Strategy.CARVING]
    assert climb(Facts()) == everything
    assert climb(Facts(metadata_found=True)) == everything[:-1]


def test_what_is_something_else_is_not_searched() -> None:
    assert climb(Facts(not_parquet=True)) == [Strategy.FOOTER, Strategy.RECORDS, Strategy.IDENTITY]


def test_every_climb_ends_and_repeats_nothing() -> None:
    for values in itertools.product((False, True), repeat=len(FLAGS)):
        rungs = climb(Facts(frozenset(), *values))
        assert len(rungs) == len(set(rungs))
        assert rungs[0] is Strategy.FOOTER
