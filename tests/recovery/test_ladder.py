"""Which rung comes next: the cheapest that can still tell something, and each at most once."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

from resilient_pq.recovery.ladder import Facts, Rung, next_rung

FLAGS = [field.name for field in fields(Facts) if field.name != "climbed"]


def climb(facts: Facts) -> list[Rung]:
    """All rungs that are tried when none of them tells anything new."""
    rungs: list[Rung] = []
    while (rung := next_rung(facts)) is not None:
        rungs.append(rung)
        facts = replace(facts, climbed=facts.climbed | {rung})
    return rungs


def test_a_whole_footer_is_enough() -> None:
    assert climb(Facts(footer_whole=True)) == [Rung.FOOTER]


def test_a_file_of_ours_is_never_searched_for_pages_while_its_records_tell() -> None:
    records = Facts(records_found=True, schema_known=True)
    assert climb(records) == [Rung.FOOTER, Rung.RECORDS]
    assert climb(replace(records, row_groups_missing=True))[-1] is Rung.CHUNK_RECORDS


def test_parts_are_put_back_before_anything_is_concluded_from_their_places() -> None:
    moved = Facts(records_found=True, schema_known=True, displaced=True, row_groups_missing=True)
    assert climb(moved) == [Rung.FOOTER, Rung.RECORDS, Rung.PLACEMENT, Rung.CHUNK_RECORDS]


def test_records_without_a_schema_end_in_carving() -> None:
    assert climb(Facts(records_found=True)) == [Rung.FOOTER, Rung.RECORDS, Rung.TRUE_END, Rung.CARVING]


def test_a_file_of_others_is_carved_last() -> None:
    everything = [Rung.FOOTER, Rung.RECORDS, Rung.IDENTITY, Rung.TRUE_END, Rung.CARVING]
    assert climb(Facts()) == everything
    assert climb(Facts(metadata_found=True)) == everything[:-1]


def test_what_is_something_else_is_not_searched() -> None:
    assert climb(Facts(not_parquet=True)) == [Rung.FOOTER, Rung.RECORDS, Rung.IDENTITY]


def test_every_climb_ends_and_repeats_nothing() -> None:
    for values in itertools.product((False, True), repeat=len(FLAGS)):
        rungs = climb(Facts(frozenset(), *values))
        assert len(rungs) == len(set(rungs))
        assert rungs[0] is Rung.FOOTER
