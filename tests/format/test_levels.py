"""Definition and repetition levels, against the tables of the Dremel paper and a record-at-a-time oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resilient_pq.errors import EncodingError
from resilient_pq.format.levels import (
    AssembledOptional,
    AssembledRepeated,
    Listed,
    Optional,
    Repeated,
    Step,
    Steps,
    row_starts,
    shred,
)


def optional(*valid: bool) -> Optional:
    return Optional(np.array(valid, np.bool_))


def repeated(*lengths: int) -> Repeated:
    sizes = np.array(lengths, np.int64)
    return Repeated(np.cumsum(sizes) - sizes, sizes)


@dataclass(frozen=True)
class Column:
    """A leaf of an example: its steps over the slots of its parents, and its levels as published."""

    steps: tuple[Step, ...]
    repetition: list[int]
    definition: list[int]
    num_rows: int = 2

    @property
    def way(self) -> list[bool]:
        return [isinstance(step, Repeated) for step in self.steps]


#: The document schema and the records r1 and r2 of the Dremel paper.
NAMES = repeated(3, 1)
LANGUAGES = repeated(2, 0, 1, 0)
DREMEL = {
    "DocId": Column((), [0, 0], [0, 0]),
    "Links.Backward": Column((optional(True, True), repeated(0, 2)), [0, 0, 1], [1, 2, 2]),
    "Links.Forward": Column((optional(True, True), repeated(3, 1)), [0, 1, 1, 0], [2, 2, 2, 2]),
    "Name.Language.Code": Column((NAMES, LANGUAGES), [0, 2, 1, 1, 0], [2, 2, 1, 2, 1]),
    "Name.Language.Country": Column((NAMES, LANGUAGES, optional(True, False, True)), [0, 2, 1, 1, 0], [3, 2, 1, 3, 1]),
    "Name.Url": Column((NAMES, optional(True, True, False, True)), [0, 1, 1, 0], [2, 2, 1, 2]),
}

#: The address book of "Dremel made simple with Parquet", and its smaller examples.
CONTACTS = repeated(2, 0)
ADDRESS_BOOK = {
    "owner": Column((), [0, 0], [0, 0]),
    "ownerPhoneNumbers": Column((repeated(2, 0),), [0, 1, 0], [1, 1, 0]),
    "contacts.name": Column((CONTACTS,), [0, 1, 0], [1, 1, 0]),
    "contacts.phoneNumber": Column((CONTACTS, optional(True, False)), [0, 1, 0], [2, 1, 0]),
    "a.b.c": Column(
        (
            optional(False, True, True, True),
            optional(False, False, True, True),
            optional(False, False, False, True),
        ),
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        num_rows=4,
    ),
    "level1.level2": Column((repeated(2, 2), repeated(3, 4, 1, 2)), [0, 2, 2, 1, 2, 2, 2, 0, 1, 2], [2] * 10),
}

EXAMPLES = pytest.mark.parametrize(
    "column",
    [pytest.param(column, id=name) for name, column in {**DREMEL, **ADDRESS_BOOK}.items()],
)


@EXAMPLES
def test_published_levels_are_shredded(column: Column) -> None:
    shredded = shred(column.num_rows, column.steps)
    if not column.steps:
        assert shredded.definition_levels is None
        assert shredded.repetition_levels is None
        assert shredded.positions is None
        return
    assert shredded.definition_levels is not None
    assert shredded.definition_levels.tolist() == column.definition
    if any(column.way):
        assert shredded.repetition_levels is not None
        assert shredded.repetition_levels.tolist() == column.repetition
    else:
        assert shredded.repetition_levels is None
    last = column.steps[-1]
    if isinstance(last, Optional):
        assert last.valid is not None
        expected = np.flatnonzero(last.valid).tolist()
    else:
        expected = list(range(column.definition.count(len(column.steps))))
    assert shredded.positions is not None
    flags = shredded.positions.dtype == np.bool_
    assert (np.flatnonzero(shredded.positions) if flags else shredded.positions).tolist() == expected


@EXAMPLES
def test_published_levels_are_assembled(column: Column) -> None:
    definition = np.array(column.definition, np.uint8)
    repetition = np.array(column.repetition, np.uint8) if any(column.way) else None
    steps = list(Steps(definition, repetition, column.way))
    assert len(steps) == len(column.steps)
    for found, expected in zip(steps, column.steps, strict=True):
        if isinstance(expected, Optional):
            assert isinstance(found, AssembledOptional)
            assert expected.valid is not None
            assert found.valid.tolist() == expected.valid.tolist()
        else:
            assert isinstance(found, AssembledRepeated)
            assert np.diff(found.offsets).tolist() == expected.lengths.tolist()
            assert found.offsets[0] == 0


def test_positions_of_a_list_are_those_of_its_elements() -> None:
    # Lists that lie apart in their array, and a null one that spans elements all the same.
    steps = (optional(True, False, True), Repeated(np.array([5, 0, 2]), np.array([2, 5, 1])))
    shredded = shred(3, steps)
    assert shredded.positions is not None
    assert shredded.positions.tolist() == [5, 6, 2]
    assert shredded.definition_levels is not None
    assert shredded.definition_levels.tolist() == [2, 2, 0, 2]


def test_a_flat_column_without_nulls() -> None:
    shredded = shred(3, (Optional(None),))
    assert shredded.definition_levels is not None
    assert shredded.definition_levels.tolist() == [1, 1, 1]
    assert shredded.positions is None


@pytest.mark.parametrize(
    "steps", [(), (Optional(None),), (optional(),), (repeated(), optional()), (optional(), repeated())]
)
def test_no_rows(steps: tuple[Step, ...]) -> None:
    shredded = shred(0, steps)
    assert shredded.definition_levels is None or len(shredded.definition_levels) == 0
    assert shredded.positions is None or len(shredded.positions) == 0
    way = [isinstance(step, Repeated) for step in steps]
    found = list(Steps(np.zeros(0, np.uint8), np.zeros(0, np.uint8) if any(way) else None, way))
    for step, is_repeated in zip(found, way, strict=True):
        assert isinstance(step, AssembledRepeated) == is_repeated
        values = step.offsets if isinstance(step, AssembledRepeated) else step.valid
        assert values.tolist() == ([0] if is_repeated else [])


def test_levels_that_continue_a_row_that_never_began() -> None:
    with pytest.raises(EncodingError, match="first repetition level is 1"):
        Steps(np.array([1, 1], np.uint8), np.array([1, 0], np.uint8), [True])


def test_row_starts() -> None:
    assert row_starts(None, 3).tolist() == [0, 1, 2]
    assert row_starts(np.array([0, 1, 2, 0, 0, 1], np.uint8), 6).tolist() == [0, 3, 4]


# --- against an oracle that goes record by record -----------------------------------------------------------


def _records(way: Sequence[bool]) -> st.SearchStrategy[Any]:
    """Records of a column whose steps are repeated as `way` says: a list; None or a tuple of one; 1."""
    if not way:
        return st.just(1)
    below = _records(way[1:])
    if way[0]:
        return st.lists(below, max_size=3)
    return st.one_of(st.none(), below.map(lambda value: (value,)))


def _record_levels(
    value: Any, way: Sequence[bool], repetition: int = 0, definition: int = 0, depth: int = 0
) -> list[tuple[int, int]]:
    """Repetition and definition levels of one record, as the paper's algorithm writes them."""
    if not way or not value:
        return [(repetition, definition)]
    below = way[1:], definition + 1
    if not way[0]:
        return _record_levels(value[0], below[0], repetition, below[1], depth)
    entries = []
    for index, element in enumerate(value):
        first = repetition if index == 0 else depth + 1
        entries += _record_levels(element, below[0], first, below[1], depth + 1)
    return entries


def _steps_of(values: Sequence[Any], way: Sequence[bool]) -> tuple[Step, ...]:
    """The columnar form of records: one step per element of `way`, over the slots that exist there."""
    steps: list[Step] = []
    for is_repeated in way:
        if is_repeated:
            lists = [value or [] for value in values]
            steps.append(repeated(*map(len, lists)))
            values = [element for each in lists for element in each]
        else:
            steps.append(optional(*(value is not None for value in values)))
            # A struct's child has a slot also where the struct is null.
            values = [None if value is None else value[0] for value in values]
    return tuple(steps)


@st.composite
def _columns(draw: st.DrawFn) -> tuple[list[bool], list[Any]]:
    way = draw(st.lists(st.booleans(), min_size=1, max_size=4))
    return way, draw(st.lists(_records(way), max_size=6))


@given(_columns())
@settings(deadline=None)
def test_shred_is_the_record_at_a_time_algorithm(column: tuple[list[bool], list[Any]]) -> None:
    way, records = column
    entries = [entry for record in records for entry in _record_levels(record, way)]
    shredded = shred(len(records), _steps_of(records, way))
    assert shredded.definition_levels is not None
    assert shredded.definition_levels.tolist() == [definition for _, definition in entries]
    if any(way):
        assert shredded.repetition_levels is not None
        assert shredded.repetition_levels.tolist() == [repetition for repetition, _ in entries]


@given(_columns())
@settings(deadline=None)
def test_assemble_undoes_shred(column: tuple[list[bool], list[Any]]) -> None:
    way, records = column
    steps = _steps_of(records, way)
    shredded = shred(len(records), steps)
    assert shredded.definition_levels is not None
    found = list(Steps(shredded.definition_levels, shredded.repetition_levels, way))
    alive = np.ones(len(records), np.bool_)
    for before, after in zip(steps, found, strict=True):
        if isinstance(before, Optional):
            assert isinstance(after, AssembledOptional)
            assert before.valid is not None
            alive = alive & before.valid
            assert after.valid.tolist() == alive.tolist()
        else:
            assert isinstance(after, AssembledRepeated)
            lengths = np.where(alive, before.lengths, 0)
            assert np.diff(after.offsets).tolist() == lengths.tolist()
            alive = np.ones(int(lengths.sum()), np.bool_)


@given(
    st.lists(st.booleans(), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 4), st.integers(0, 4)), max_size=3),
)
def test_leaves_agree_where_their_steps_are_the_same(
    way: list[bool], entries: list[tuple[int, int]], changes: list[tuple[int, int, int]]
) -> None:
    def levels(entries: list[tuple[int, int]]) -> Steps:
        definition = [min(level, len(way)) for level, _ in entries]
        repetition = [0, *(min(level, sum(way)) for _, level in entries[1:])]
        return Steps(np.array(definition, np.uint8), np.array(repetition, np.uint8), way)

    others = list(entries)
    for at, definition, repetition in changes:
        others[at % len(others)] = definition, repetition
    one, other = levels(entries), levels(others)
    for number, (step, its) in enumerate(zip(one, other, strict=True)):
        assert one.agrees(other, number) == np.array_equal(step.values, its.values)


@st.composite
def _listed(draw: st.DrawFn) -> tuple[int, tuple[Step, ...]]:
    """Steps over slots of any validity, elements below nulls among them; lists may begin anywhere."""
    num_rows = count = draw(st.integers(0, 6))
    steps: list[Step] = []
    for is_repeated in draw(st.lists(st.booleans(), min_size=1, max_size=4)):
        if is_repeated:
            lengths = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
            dtype = draw(st.sampled_from([np.int32, np.int64]))
            offsets = np.cumsum([draw(st.integers(0, 9)), *lengths]).astype(dtype)
            steps.append(Listed(offsets))
            count = sum(lengths)
        else:
            flags = draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count))
            steps.append(Optional(None if flags is None else np.array(flags, np.bool_)))
    return num_rows, tuple(steps)


@given(_listed())
@settings(deadline=None, max_examples=300)
def test_listed_steps_give_what_steps_in_any_order_give(listed: tuple[int, tuple[Step, ...]]) -> None:
    num_rows, steps = listed
    found = shred(num_rows, steps)
    apart = shred(num_rows, [step.apart() if isinstance(step, Listed) else step for step in steps])
    for levels, expected in (
        (found.definition_levels, apart.definition_levels),
        (found.repetition_levels, apart.repetition_levels),
    ):
        assert (levels is None) == (expected is None)
        assert levels is None or expected is None or levels.tolist() == expected.tolist()
    assert found.definition_levels is not None
    lists = [step for step in steps if isinstance(step, Listed)]
    slots = np.arange(lists[-1].offsets[-1] - lists[-1].offsets[0] if lists else num_rows)
    positions = [slots if each.positions is None else slots[each.positions] for each in (found, apart)]
    assert positions[0].tolist() == positions[1].tolist()


def test_elements_below_a_null_are_left_out() -> None:
    steps = (optional(True, False, True), Listed(np.array([4, 6, 7, 8], np.int32)), optional(True, True, False, True))
    shredded = shred(3, steps)
    assert shredded.definition_levels is not None
    assert shredded.definition_levels.tolist() == [3, 3, 0, 3]
    assert shredded.positions is not None
    assert shredded.positions.tolist() == [0, 1, 3]
