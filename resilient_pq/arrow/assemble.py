"""Leaf columns on their way out of pages: one top-level column of a table as an Arrow array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow import leaf_arrays
from resilient_pq.arrow.buffers import Valid, make_array
from resilient_pq.arrow.field import Field
from resilient_pq.arrow.leaf_arrays import Places, TypedArray, leaf_array
from resilient_pq.arrow.nesting import ListShape, MapShape, shape_of
from resilient_pq.errors import FormatError, Where
from resilient_pq.format.levels import AssembledOptional, AssembledRepeated, assemble
from resilient_pq.format.metadata import Repetition
from resilient_pq.format.schema import Group, Node, Primitive
from resilient_pq.format.values import LeafColumn

#: A fixed-size list has elements also where it is null, and a small file can claim huge ones. Where it would
#: take more than this many slots, and 64 times what is there, the array is a list of any size instead.
_FREE_NULL_ELEMENTS = 1 << 24

_Steps = Sequence[AssembledOptional | AssembledRepeated]


def to_arrow(arrow_type: Any, node: Node, leaves: Sequence[LeafColumn]) -> Any:
    """One top-level column as a nanoarrow `CArray`.

    Its type is `arrow_type`, but for three cases that `Table` makes up for: where offsets of 32 bits do not
    suffice it is the large type, where an integer does not fit into the 8 or 16 bits of its annotation it is
    int32, and where ``ARROW:schema`` says fixed-size lists and some are of another size it is a list.

    Args:
        arrow_type: The column's field, a child of what `schema.arrow_schema_of` gives.
        node: The column's node in the Parquet schema.
        leaves: Its leaf columns in the schema's order, all over the same rows.

    Raises:
        FormatError: The leaves contradict each other, or a value is none of its type.
    """
    return _Assembly(node, leaves).array(Field.of(arrow_type))[1]


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the tree from the column down to its leaves.

    Attributes:
        length: Slots of the parent's array.
        places: Which slot of the leaves' steps each of them is; None is in their own order.
        depth: How many steps have been taken.
        first: The first leaf below.
        alive: Which of the slots lie in groups that are there; None where all do.
    """

    length: int
    places: Places | None = None
    depth: int = 0
    first: int = 0
    alive: Valid | None = None

    @property
    def there(self) -> Valid | None:
        """Which of the slots a required node below has values in; None where it has in all."""
        if self.alive is None and self.places is not None:
            return self.places >= 0
        return self.alive


class _Assembly:
    """Rebuilds the arrays of one column from the top down, all its leaves in step."""

    def __init__(self, node: Node, leaves: Sequence[LeafColumn]) -> None:
        self.node = node
        self.leaves = leaves
        ways = list(_ways_to_leaves(node, ()))
        if len(ways) != len(leaves) or not leaves:
            raise ValueError(f"column {node.name!r} has {len(ways)} leaves, but {len(leaves)} are given")
        self.steps = [_steps_of(leaf, way) for leaf, way in zip(leaves, ways, strict=True)]

    def array(self, field: Field) -> TypedArray:
        top = _Place(self.leaves[0].num_rows)
        if self.node.repetition is Repetition.REPEATED:
            return self._list(field, self.node, None, top, None)
        return self._value(field, self.node, top)

    def _value(self, field: Field, node: Node, place: _Place) -> TypedArray:
        """The array of a node that is required or optional."""
        if isinstance(node, Primitive):
            return self._leaf(field, place)
        valid = None
        if node.repetition is Repetition.OPTIONAL:
            valid = self._valid(node, place)
            place = replace(place, depth=place.depth + 1, alive=valid)
        return self._group(field, node, place, valid)

    def _group(self, field: Field, node: Group, place: _Place, valid: Valid | None) -> TypedArray:
        match shape_of(node):
            case ListShape(repeated, element):
                return self._list(field, repeated, element, place, valid)
            case MapShape(repeated, _, _):
                return self._map(field, repeated, place, valid)
        children = self._children(field, node, place)
        field = field.with_children(*(child for child, _ in children))
        return field, make_array(field, place.length, [], valid, [array for _, array in children])

    def _children(self, field: Field, node: Group, place: _Place) -> list[TypedArray]:
        """The arrays of a group's children, which have its slots."""
        arrays = []
        first = place.first
        for child_field, child in zip(field.children, node.children, strict=True):
            below = replace(place, first=first)
            if child.repetition is Repetition.REPEATED:
                arrays.append(self._list(child_field, child, None, below, None))
            else:
                arrays.append(self._value(child_field, child, below))
            first += sum(1 for _ in _ways_to_leaves(child, ()))
        return arrays

    def _list(
        self, field: Field, repeated: Node, element: Node | None, place: _Place, valid: Valid | None
    ) -> TypedArray:
        """A list, whose repeated node is itself the element where `element` is None."""
        offsets = self._offsets(repeated, place)
        if field.kind == "+w":
            places = _fixed_size_places(field.width, offsets, place.there if valid is None else valid)
            if places is not None:
                below = _Place(len(places), places, place.depth + 1, place.first)
                child, array = self._element(field.children[0], repeated, element, below)
                field = field.with_children(child)
                return field, make_array(field, place.length, [], valid, [array])
            field = replace(field, format="+l")
        below = _Place(int(offsets[-1]), None, place.depth + 1, place.first)
        child, array = self._element(field.children[0], repeated, element, below)
        if field.kind == "+l" and offsets[-1] > leaf_arrays.MAX_SMALL_OFFSET:
            field = replace(field, format="+L")
        field = field.with_children(child)
        dtype = np.int32 if field.kind == "+l" else np.int64
        return field, make_array(field, place.length, [offsets.astype(dtype, copy=False)], valid, [array])

    def _element(self, field: Field, repeated: Node, element: Node | None, place: _Place) -> TypedArray:
        if element is not None:
            if element.repetition is Repetition.REPEATED:
                return self._list(field, element, None, place, None)
            return self._value(field, element, place)
        if isinstance(repeated, Primitive):
            return self._leaf(field, place)
        return self._group(field, repeated, place, None)

    def _map(self, field: Field, repeated: Group, place: _Place, valid: Valid | None) -> TypedArray:
        offsets = self._offsets(repeated, place)
        if offsets[-1] > leaf_arrays.MAX_SMALL_OFFSET:
            raise self._contradiction(
                repeated, f"{offsets[-1]:,} entries are too many for one Arrow map array"
            )
        below = _Place(int(offsets[-1]), None, place.depth + 1, place.first)
        children = self._children(field.children[0], repeated, below)
        entry = field.children[0].with_children(*(child for child, _ in children))
        entries = make_array(entry, below.length, [], None, [array for _, array in children])
        field = field.with_children(entry)
        return field, make_array(field, place.length, [offsets.astype(np.int32)], valid, [entries])

    def _leaf(self, field: Field, place: _Place) -> TypedArray:
        column = self.leaves[place.first]
        slots = place.length if place.places is None else int(np.count_nonzero(place.places >= 0))
        if len(column.values) != slots:
            raise self._contradiction(
                column.leaf.node, f"{len(column.values):,} slots, where its levels have {slots:,}"
            )
        return leaf_array(field, column, place.places)

    def _valid(self, node: Node, place: _Place) -> Valid | None:
        """Validity of an optional group, on which all leaves below it must agree."""
        step = self._agreed(node, place)
        assert isinstance(step, AssembledOptional)
        valid = step.valid
        if place.places is not None:
            out = place.places >= 0
            out[out] = valid
            return out
        return None if valid.all() else valid

    def _offsets(self, node: Node, place: _Place) -> NDArray[np.int64]:
        """List offsets of a repeated node, on which all leaves below it must agree."""
        step = self._agreed(node, place)
        assert isinstance(step, AssembledRepeated)
        if place.places is None:
            return step.offsets
        lengths = np.zeros(place.length + 1, np.int64)
        lengths[1:][place.places >= 0] = np.diff(step.offsets)
        return np.cumsum(lengths)

    def _agreed(self, node: Node, place: _Place) -> AssembledOptional | AssembledRepeated:
        step = self.steps[place.first][place.depth]
        slots = place.length if place.places is None else int(np.count_nonzero(place.places >= 0))
        ours = _step_values(step)
        found = len(ours) - int(isinstance(step, AssembledRepeated))
        if found != slots:
            raise self._contradiction(node, f"levels of {found:,} slots, where there are {slots:,}")
        for other in range(place.first + 1, place.first + sum(1 for _ in _ways_to_leaves(node, ()))):
            if not np.array_equal(ours, _step_values(self.steps[other][place.depth])):
                paths = (self.leaves[at].leaf.column_path for at in (place.first, other))
                raise self._contradiction(node, f"leaves {' and '.join(paths)} have levels that differ")
        return step

    def _contradiction(self, node: Node, what: str) -> FormatError:
        path = self.leaves[0].leaf.path[0]
        return FormatError(f"column {path!r}, at {node.name!r}: {what}", where=Where(column=path))


def _ways_to_leaves(node: Node, way: tuple[bool, ...]) -> Iterator[tuple[bool, ...]]:
    """For each leaf below a node, whether each of its definition levels is a repeated node's."""
    if node.repetition is not Repetition.REQUIRED:
        way = (*way, node.repetition is Repetition.REPEATED)
    if isinstance(node, Primitive):
        yield way
        return
    for child in node.children:
        yield from _ways_to_leaves(child, way)


def _steps_of(column: LeafColumn, way: Sequence[bool]) -> _Steps:
    if column.definition_levels is None:
        # A flat column, whose validity is in the leaf itself, or one that is required throughout.
        if len(way) > 1 or any(way):
            raise ValueError(f"column {column.leaf.column_path!r} is nested, but has no definition levels")
        return ()
    return assemble(column.definition_levels, column.repetition_levels, way)


def _step_values(step: AssembledOptional | AssembledRepeated) -> NDArray[Any]:
    return step.valid if isinstance(step, AssembledOptional) else step.offsets


def _fixed_size_places(size: int, offsets: NDArray[np.int64], there: Valid | None) -> Places | None:
    """Where the elements of fixed-size lists stand, -1 below null lists; None where they have other sizes."""
    lengths = np.diff(offsets)
    if there is None:
        there = np.ones(len(lengths), np.bool_)
    missing = len(lengths) - int(np.count_nonzero(there))
    if (lengths[there] != size).any() or lengths[~there].any():
        return None
    if missing * size > _FREE_NULL_ELEMENTS + 64 * int(offsets[-1]):
        return None
    places = np.full((len(lengths), size), -1, np.int64)
    places[there] = np.arange(int(offsets[-1]), dtype=np.int64).reshape(-1, size)
    return places.ravel()
