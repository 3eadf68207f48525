"""A file cut anywhere gives back all rows of which every column's page is whole, those of the row group in flight too."""

from __future__ import annotations

import random
from typing import Any

import pytest

POLICIES = ("drop", "null")


def borders(file: Any) -> list[int]:
    return sorted({place.start for place in file.places})


async def test_cuts_at_borders_and_anywhere(paged_file: Any, held_against_the_best: Any) -> None:
    size = len(paged_file.data)
    rng = random.Random(size)
    near = [border + by for border, by in zip(rng.sample(borders(paged_file), 3), (-1, 0, 1), strict=True)]
    for i, end in enumerate([*near, rng.randrange(size)]):
        if 0 <= end < size:
            await held_against_the_best(paged_file, paged_file.cut(end), POLICIES[i % 2])


async def test_the_last_column_of_the_row_group_in_flight(one_paged_file: Any, held_against_the_best: Any) -> None:
    """Its first pages are whole, and all of the other columns: rows that no record counts yet."""
    chunk = one_paged_file.layout.row_groups[2].chunks[-1]
    for page in chunk.pages:
        if not page.is_dictionary:
            damaged = one_paged_file.cut(page.body.stop)
            assert len(one_paged_file.layout.rows(damaged.gone)) == 80 + page.first_row + page.num_rows
            await held_against_the_best(one_paged_file, damaged)


async def test_the_first_columns_of_the_row_group_in_flight(one_paged_file: Any, held_against_the_best: Any) -> None:
    """Rows need all columns, or null in those that may be null."""
    row_group = one_paged_file.layout.row_groups[1]
    for chunk in row_group.chunks:
        damaged = one_paged_file.cut(chunk.place.stop)
        rows = [len(one_paged_file.layout.rows(damaged.gone, on_damage)) for on_damage in POLICIES]
        assert rows == [80 if chunk is row_group.chunks[-1] else 40, 40 if chunk.path == ("id",) else 80]
        for on_damage in POLICIES:
            await held_against_the_best(one_paged_file, damaged, on_damage)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on_damage", POLICIES)
async def test_a_cut_at_every_byte(paged_file: Any, held_against_the_best: Any, on_damage: str) -> None:
    # Near a border every byte; within a page or a record one in nine, another one in each file.
    near = {border + by for border in borders(paged_file) for by in range(-2, 3)}
    for end in range(len(paged_file.data)):
        if end in near or end % 9 == len(paged_file.data) % 9:
            await held_against_the_best(paged_file, paged_file.cut(end), on_damage)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("on_damage", POLICIES)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
async def test_a_cut_at_really_every_byte(
    narrow_file: Any, held_against_the_best: Any, version: str, on_damage: str
) -> None:
    file = narrow_file[version]
    for end in range(len(file.data)):
        await held_against_the_best(file, file.cut(end), on_damage)
