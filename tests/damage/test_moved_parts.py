"""Parts of a file in another order, twice, or not there: each is put back where its records say that it belongs."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest
from sampled import ALL, sampled

PART = 64 * 1024


def exchanged(file: Any, first: int, second: int) -> Any:
    order = list(range(-(-len(file.data) // PART)))
    order[first], order[second] = order[second], order[first]
    return file.rearranged(PART, order)


@sampled(3, ALL, 3600)
async def test_two_parts_exchanged(file_of_parts: Any, held_against_the_best: Any, count: int) -> None:
    """No byte is gone, and no row is."""
    pairs = list(combinations(range(len(file_of_parts.data) // PART + 1), 2))
    for first, second in random.Random(4).sample(pairs, min(count, len(pairs))):
        damaged = exchanged(file_of_parts, first, second)
        assert len(file_of_parts.layout.rows(damaged.gone)) == file_of_parts.table.num_rows
        await held_against_the_best(file_of_parts, damaged)


async def test_the_last_part_first(file_of_parts: Any, held_against_the_best: Any) -> None:
    """It is shorter than the others, and so all of these have moved by less than a part."""
    last = len(file_of_parts.data) // PART
    await held_against_the_best(file_of_parts, file_of_parts.rearranged(PART, [last, *range(last)]))


async def test_a_part_twice(file_of_parts: Any, held_against_the_best: Any) -> None:
    """Behind itself, elsewhere, or in the place of another."""
    parts = list(range(len(file_of_parts.data) // PART + 1))
    for order in (
        [*parts[:4], 3, *parts[4:]],
        [*parts[:9], 3, *parts[9:]],
        [*parts[:9], 3, *parts[10:]],
    ):
        await held_against_the_best(file_of_parts, file_of_parts.rearranged(PART, order))


async def test_a_part_twice_behind_all_rows(file_of_parts: Any, held_against_the_best: Any) -> None:
    """It stands within the last checkpoint: the row groups are in their places, and the end of the file is not."""
    *_, checkpoint, final = (record.place for record in file_of_parts.layout.records if record.kind in (3, 4))
    border = checkpoint.stop // PART
    assert checkpoint.start < border * PART < checkpoint.stop <= final.start
    parts = list(range(len(file_of_parts.data) // PART + 1))
    for part in (0, 3):
        twice = [*parts[:border], part, *parts[border:]]
        await held_against_the_best(file_of_parts, file_of_parts.rearranged(PART, twice))


@pytest.mark.parametrize("on_damage", ["drop", "null"])
async def test_a_part_missing(file_of_parts: Any, held_against_the_best: Any, on_damage: str) -> None:
    last = len(file_of_parts.data) // PART
    for part in (0, 6, last):
        damaged = file_of_parts.without(part * PART, (part + 1) * PART)
        await held_against_the_best(file_of_parts, damaged, on_damage)


@pytest.mark.parametrize("count", [1, 4, 1000, 4096, 200_000])
async def test_the_head_gone(file_of_parts: Any, held_against_the_best: Any, count: int) -> None:
    await held_against_the_best(file_of_parts, file_of_parts.without(0, count))


async def test_all_in_another_order(file_of_parts: Any, held_against_the_best: Any) -> None:
    order = list(range(len(file_of_parts.data) // PART + 1))
    random.Random(1).shuffle(order)
    await held_against_the_best(file_of_parts, file_of_parts.rearranged(PART, order))


@pytest.mark.thorough
@pytest.mark.timeout(3600)
async def test_every_part_missing_twice_or_in_the_place_of_another(
    file_of_parts: Any, held_against_the_best: Any
) -> None:
    parts = list(range(len(file_of_parts.data) // PART + 1))
    for part in parts:
        for on_damage in ("drop", "null"):
            await held_against_the_best(
                file_of_parts, file_of_parts.rearranged(PART, parts[:part] + parts[part + 1 :]), on_damage
            )
        for place in parts:
            twice = [*parts[:place], part, *parts[place:]]
            await held_against_the_best(file_of_parts, file_of_parts.rearranged(PART, twice))
            instead = [*parts[:place], part, *parts[place + 1 :]]
            await held_against_the_best(file_of_parts, file_of_parts.rearranged(PART, instead))


@pytest.mark.thorough
@pytest.mark.timeout(3600)
async def test_many_bytes_missing_or_more(file_of_parts: Any, held_against_the_best: Any) -> None:
    """Anywhere, not at the border of a part: what is behind has moved."""
    rng = random.Random(2)
    for _ in range(150):
        start = rng.randrange(len(file_of_parts.data))
        end = min(start + rng.choice([1, 16, 512, 5000, 70_000]), len(file_of_parts.data))
        await held_against_the_best(file_of_parts, file_of_parts.without(start, end), rng.choice(["drop", "null"]))
