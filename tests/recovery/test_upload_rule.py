"""Which parts of an upload make a whole file, compared with an oracle that plays the protocol part by part."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.io import Part
from resilient_pq.recovery.uploads.upload_rule import MIN_PART_BYTES, size_of, upload_parts
from resilient_pq.units import MiB

SIZES = st.sampled_from([0, 1, MiB - 1, MiB, MiB + 1, 5 * MiB - 1, 5 * MiB, 5 * MiB + 1, 8 * MiB, 8 * MiB + 77])


def parts_of(*sizes: int, first: int = 1) -> list[Part]:
    return [Part(first + i, size, f"{first + i}-{size}") for i, size in enumerate(sizes)]


def numbers(parts: Sequence[Part] | None) -> list[int] | None:
    return None if parts is None else [part.number for part in parts]


def rule_by_recursion(sizes: dict[int, list[int]], number: int = 1) -> list[tuple[int, int]] | None:
    """The rule as the documents put it, from the first part on: None where no part is short."""
    if number not in sizes:
        return None
    size = max(sizes[number])
    if size / MiB != size // MiB:
        return [(number, size)]
    following = rule_by_recursion(sizes, number + 1)
    return None if following is None else [(number, size), *following]


@given(st.lists(st.tuples(st.integers(1, 8), SIZES), max_size=24), st.randoms(use_true_random=False))
def test_any_listing(listed: list[tuple[int, int]], shuffle: random.Random) -> None:
    parts = [Part(number, size, f"{number}-{size}") for number, size in listed]
    sizes: dict[int, list[int]] = {}
    for number, size in listed:
        sizes.setdefault(number, []).append(size)
    found = upload_parts(parts)
    expected = rule_by_recursion(sizes)
    by_rule = None if found.by_rule is None else [(part.number, part.size) for part in found.by_rule]
    assert by_rule == expected
    run = next(number for number in range(1, 10) if number not in sizes)
    assert numbers(found.gap_free) == list(range(1, run))
    assert size_of(found.gap_free) == sum(max(sizes[number]) for number in range(1, run))
    assert found.gap == (run if any(number > run for number in sizes) else None)
    assert found.num_bytes == sum(max(each) for each in sizes.values())
    for chosen in (found.chosen(), found.chosen(gap_free=True)):
        behind = found.behind(chosen)
        assert (*chosen, *behind) == found.listed
    shuffle.shuffle(parts)
    assert upload_parts(parts) == found


@given(st.data())
def test_every_moment_of_a_writer_gives_its_newest_checkpoint(data: st.DataObject) -> None:
    """A writer is stopped after any of its PUTs; an independent account says how far the last commit went."""
    part = 5 * MiB
    drawn = data.draw(
        st.lists(st.integers(0, 7 * part).filter(lambda end: end % MiB), min_size=1, max_size=6, unique=True)
    )
    committed, *ends = sorted(drawn)
    if committed > part:
        ends, committed = [committed, *ends], 1000  # the anchor, in the first part
    steps = [(1, committed, committed)]  # number and size of a part, and what is stored once it was put
    for end in ends:
        opened, last = committed // part + 1, end // part + 1
        length = dict.fromkeys(range(opened, last), part) | {last: end - (last - 1) * part}
        early = data.draw(st.permutations([number for number in length if number != opened]))
        steps += [(number, length[number], committed) for number in early]
        steps += [(opened, length[opened], end)]
        committed = end
    stop = data.draw(st.integers(1, len(steps)))
    listed = [Part(number, size, f"{number}-{size}") for number, size, _ in steps[:stop]]
    found = upload_parts(data.draw(st.permutations(listed)))
    assert found.by_rule is not None and found.fits_rule
    assert found.chosen() == found.by_rule
    assert size_of(found.by_rule) == steps[stop - 1][2]


def test_an_upload_of_nothing() -> None:
    found = upload_parts([])
    assert (found.by_rule, found.gap_free, found.gap, found.fits_rule) == (None, (), None, False)
    assert found.chosen() == found.before_another == ()


def test_parts_of_the_next_checkpoint_are_behind_the_open_slot() -> None:
    found = upload_parts(parts_of(8 * MiB, 3 * MiB + 5, 8 * MiB, 100))
    assert found.fits_rule
    assert numbers(found.chosen()) == [1, 2]
    assert numbers(found.behind(found.chosen())) == [3, 4]
    assert numbers(found.chosen(gap_free=True)) == [1, 2, 3, 4]


def test_parts_that_no_writer_of_ours_sends() -> None:
    found = upload_parts(parts_of(10_000_000, 10_000_000, 10_000_000))
    assert not found.fits_rule
    assert numbers(found.by_rule) == [1]
    assert numbers(found.chosen()) == [1, 2, 3], "a file would be lost behind its first part"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((MIN_PART_BYTES, MIN_PART_BYTES), [1, 2]),
        ((MIN_PART_BYTES, MIN_PART_BYTES - 1), [1]),
        ((1, MIN_PART_BYTES), []),
    ],
)
def test_parts_that_another_may_follow(sizes: tuple[int, ...], expected: list[int]) -> None:
    assert numbers(upload_parts(parts_of(*sizes)).before_another) == expected
