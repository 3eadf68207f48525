"""Levels out of validity and lists, and dense values out of slots."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.format.kernels import reference

U1, I8 = np.uint8, np.int64


def test_an_optional_node_adds_to_what_is_defined_so_far(kernels: ModuleType) -> None:
    definition = np.array([1, 0, 1, 1], U1)
    kernels.shred_optional(definition, None, np.array([True, True, False, True]), 1)
    assert definition.tolist() == [2, 0, 1, 2]
    kernels.shred_optional(definition, np.array([1, 9, 9, 0]), np.array([True, False]), 2)
    assert definition.tolist() == [2, 0, 1, 3]
    kernels.shred_optional(definition, None, None, 2)
    assert definition.tolist() == [3, 0, 1, 3]


def test_a_list_has_an_entry_for_each_element_or_one_for_none(kernels: ModuleType) -> None:
    definition = np.array([1, 0, 1, 1], U1)
    starts, lengths = np.array([5, 7, 0, 2]), np.array([2, 9, 0, 3])
    found = kernels.shred_repeated(definition, None, None, starts, lengths, 1, 1)
    assert [each.tolist() for each in found] == [[2, 2, 0, 1, 2, 2, 2], [0, 1, 0, 0, 0, 1, 1], [5, 6, 0, 0, 2, 3, 4]]
    inner = kernels.shred_repeated(*found, np.zeros(7, I8), np.array([0, 0, 1, 0, 2, 0, 0]), 2, 2)
    assert inner[0].tolist() == [2, 2, 0, 1, 3, 2, 3, 3]
    assert inner[1].tolist() == [0, 1, 0, 0, 0, 1, 1, 2]
    assert [each.dtype for each in inner] == [U1, U1, I8]


def test_slots_in_order_are_counted(kernels: ModuleType, guarded: Any) -> None:
    definition, offsets = np.array([1, 0, 1, 1], U1), np.array([3, 5, 5, 5, 8], np.int32)
    assert kernels.entries_in_order(definition, offsets, 0, 1) == 7
    with guarded(7, U1) as levels, guarded(7, U1) as repetition:
        kernels.lists_in_order(definition, None, offsets, 0, 3, 1, levels, repetition)
        assert levels.tolist() == [3, 3, 0, 1, 3, 3, 3]
        assert repetition.tolist() == [0, 1, 0, 0, 0, 1, 1]
        assert kernels.optional_in_order(levels, np.array([True, False, True, True, False]), 2, 3, 5) == 3
        assert levels.tolist() == [5, 3, 0, 1, 5, 5, 3]
        inner = np.array([0, 0, 2, 2, 3, 5])
        assert kernels.entries_in_order(levels, inner, 2, 5) is None, "what is null has elements"
        inner = np.array([0, 0, 0, 2, 3, 3])
        assert kernels.entries_in_order(levels, inner, 2, 5) == 8
        with guarded(8, U1) as below, guarded(8, U1) as deeper:
            kernels.lists_in_order(levels, repetition, inner, 2, 6, 2, below, deeper)
            assert below.tolist() == [5, 3, 0, 1, 6, 6, 6, 3]
            assert deeper.tolist() == [0, 1, 0, 0, 0, 2, 1, 1]


def test_slots_in_order_must_be_as_many_as_there_are(kernels: ModuleType) -> None:
    definition, room = np.array([1, 0, 1], U1), np.zeros(4, U1)
    for count in (1, 3):
        with pytest.raises(ValueError, match="slot that is not there"):
            kernels.optional_in_order(definition.copy(), np.ones(count, np.bool_), 1, 1, 2)
        with pytest.raises(ValueError, match="slot that is not there"):
            kernels.entries_in_order(definition, np.zeros(count + 1, I8), 1, 1)
        with pytest.raises(ValueError, match="slot that is not there"):
            kernels.lists_in_order(definition, None, np.zeros(count + 1, I8), 1, 2, 1, room[:3], room[:3])
    for offsets in ([], [0, 2, 1]):
        with pytest.raises(ValueError, match=r"one offset more|negative length"):
            kernels.entries_in_order(definition, np.array(offsets, I8), 1, 1)
    for size in (3, 5):
        with pytest.raises(ValueError, match="room"):
            kernels.lists_in_order(
                definition, None, np.array([0, 1, 3]), 1, 2, 1, np.zeros(size, U1), np.zeros(size, U1)
            )


def compacted(kernels: ModuleType, offsets: Any, present: Any) -> list[int] | None:
    """What `compact_offsets` makes of some; None where it makes nothing."""
    out = np.zeros(np.count_nonzero(present) + 1, offsets.dtype)
    return [int(offset) for offset in out] if kernels.compact_offsets(offsets, present, out) else None


def test_no_entries(kernels: ModuleType) -> None:
    none = np.empty(0, U1)
    kernels.shred_optional(none, None, np.empty(0, np.bool_), 0)
    found = kernels.shred_repeated(none, None, None, np.empty(0, I8), np.empty(0, I8), 0, 1)
    assert [len(each) for each in found] == [0, 0, 0]
    assert len(kernels.compact(np.empty(0, I8), np.empty(0, np.bool_))) == 0
    assert compacted(kernels, np.array([7], np.int32), np.empty(0, np.bool_)) == [7]


@pytest.mark.parametrize("slot", [-1, 2, 2**62])
def test_slots_that_are_not_there_are_the_callers_mistake(kernels: ModuleType, slot: int) -> None:
    definition, slots = np.array([0, 0], U1), np.array([0, slot])
    with pytest.raises(ValueError, match="slot that is not there"):
        kernels.shred_optional(definition.copy(), slots, np.array([True, True]), 0)
    with pytest.raises(ValueError, match="slot that is not there"):
        kernels.shred_repeated(definition, None, slots, np.zeros(2, I8), np.ones(2, I8), 0, 1)


def test_wrong_arguments_are_the_callers_mistake(kernels: ModuleType) -> None:
    definition = np.zeros(2, U1)
    with pytest.raises(ValueError, match="negative length"):
        kernels.shred_repeated(definition, None, None, np.zeros(2, I8), np.array([1, -1]), 0, 1)
    with pytest.raises(ValueError, match="one start per length"):
        kernels.shred_repeated(definition, None, None, np.zeros(1, I8), np.zeros(2, I8), 0, 1)
    with pytest.raises(ValueError, match="slot that is not there"):
        kernels.shred_optional(definition, None, np.array([True]), 0)
    with pytest.raises(ValueError, match="one flag per value"):
        kernels.compact(np.zeros(2), np.array([True]))
    with pytest.raises(ValueError, match="one offset more"):
        kernels.compact_offsets(np.zeros(2, np.int32), np.array([True, True]), np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="room"):
        kernels.compact_offsets(np.zeros(3, np.int32), np.array([True, True]), np.zeros(2, np.int32))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.int32, np.float32, np.int64, np.float64])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.97, 1.0])
def test_what_is_present_is_kept(kernels: ModuleType, dtype: Any, share: float) -> None:
    rng = np.random.default_rng(7)
    values, present = rng.integers(0, 100, 1003).astype(dtype), rng.random(1003) < share
    assert (kernels.compact(values, present) == values[present]).all()
    assert kernels.compact(values, present).dtype == dtype
    rows = rng.integers(0, 256, (1003, 12)).astype(U1)
    assert (kernels.compact(rows, present) == rows[present]).all()
    assert kernels.compact(rows[:, :0].copy(), present).shape == (np.count_nonzero(present), 0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets_of_what_is_present(kernels: ModuleType, dtype: Any) -> None:
    offsets = np.array([3, 5, 5, 9, 9, 9], dtype)
    present = np.array([True, False, True, True, False])
    assert compacted(kernels, offsets, present) == [3, 5, 9, 9]
    assert compacted(kernels, offsets, ~present) is None
    assert compacted(kernels, np.array([4, 4, 4], dtype), np.zeros(2, np.bool_)) == [4]


@st.composite
def _lists(draw: st.DrawFn) -> tuple[Any, ...]:
    num_slots, count = draw(st.integers(0, 5)), draw(st.integers(0, 12))
    few = st.integers(0, 4)
    slot = st.integers(-1, num_slots)
    return (
        np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), U1),
        np.array(draw(st.lists(few, min_size=count, max_size=count)), U1) if draw(st.booleans()) else None,
        np.array(draw(st.lists(slot, min_size=count, max_size=count)), I8) if draw(st.booleans()) else None,
        np.array(draw(st.lists(few, min_size=num_slots, max_size=num_slots)), I8),
        np.array(draw(st.lists(st.integers(-1, 4), min_size=num_slots, max_size=num_slots)), I8),
        draw(st.integers(0, 2)),
        draw(st.integers(1, 3)),
    )


def _or_mistake(outcome: Callable[..., Any], call: Callable[[], Any]) -> Any:
    try:
        return outcome(call)
    except ValueError:
        return ValueError


@given(lists=_lists(), flags=st.lists(st.booleans(), max_size=6))
@settings(deadline=None, max_examples=300)
def test_both_agree(native: ModuleType, outcome: Callable[..., Any], lists: Any, flags: list[bool]) -> None:
    assert _or_mistake(outcome, lambda: native.shred_repeated(*lists)) == _or_mistake(
        outcome, lambda: reference.shred_repeated(*lists)
    )
    definition, _, slots, starts, lengths, level, _ = lists
    found = []
    for kernels in (native, reference):
        levels = definition.copy()
        said = _or_mistake(outcome, lambda: kernels.shred_optional(levels, slots, np.array(flags, np.bool_), level))  # noqa: B023
        found.append((said, None if said is ValueError else levels.tolist()))
    assert found[0] == found[1]
    _agree_on_slots_in_order(native, outcome, lists, flags)
    offsets, present = np.cumsum([0, *lengths], dtype=np.int32), starts > 1
    assert compacted(native, offsets, present) == compacted(reference, offsets, present)
    assert outcome(lambda: native.compact(starts, present)) == outcome(lambda: reference.compact(starts, present))


def _agree_on_slots_in_order(native: ModuleType, outcome: Callable[..., Any], lists: Any, flags: list[bool]) -> None:
    definition, repetition, _, _, lengths, level, depth = lists
    offsets, base = np.cumsum([2, *lengths], dtype=np.int32), level // 2
    found = []
    for kernels in (native, reference):
        levels = definition.copy()
        valid = np.array(flags, np.bool_)
        risen = _or_mistake(outcome, lambda: kernels.optional_in_order(levels, valid, base, level, 4))  # noqa: B023
        total = _or_mistake(outcome, lambda: kernels.entries_in_order(definition, offsets, base, level))  # noqa: B023
        room = np.zeros((2, total if isinstance(total, int) else 3), U1)
        said = _or_mistake(
            outcome,
            lambda: kernels.lists_in_order(definition, repetition, offsets, base, 5, depth, *room),  # noqa: B023
        )
        found.append(
            (
                risen,
                total,
                None if risen is ValueError else levels.tolist(),
                said if said is ValueError else room.tolist(),
            )
        )
    assert found[0] == found[1]
