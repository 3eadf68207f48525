"""Assembly of decoded leaf columns into the Arrow array of a top-level column, or of the wanted part of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow import leaf_arrays
from resilient_pq.arrow.buffers import Valid, make_array
from resilient_pq.arrow.c_arrays import LIST_VIEW_KINDS
from resilient_pq.arrow.leaf_arrays import Places, TypedArray, leaf_array
from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.group_nesting import ListShape, MapShape, shape_of
from resilient_pq.errors import FormatError, Where
from resilient_pq.format import kernels
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.levels import AssembledOptional, AssembledRepeated, Steps
from resilient_pq.format.physical_values import LeafColumn
from resilient_pq.format.schema_tree import Node, Primitive, Schema, Selection
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Branch:
    """A node, and what is wanted below it."""

    node: Node  # the node, with all of its children
    #: The list or map that the node stands for; None where it is a leaf or a struct. A map of which only keys or
    #: only values are wanted is a list of structs.
    shape: ListShape | MapShape | None
    children: tuple[Branch, ...]  # the children with wanted leaves, in order
    positions: tuple[int, ...]  # where each of `children` stands among the node's
    num_leaves: int  # wanted leaves at or below the node

    @property
    def is_leaf(self) -> bool:
        """Whether the node itself has values."""
        return isinstance(self.node, Primitive)

    @property
    def is_repeated(self) -> bool:
        """Whether the node is a list by itself."""
        return self.node.repetition is Repetition.REPEATED

    def ways(self, way: tuple[bool, ...] = ()) -> Iterator[tuple[bool, ...]]:
        """For each wanted leaf, whether each of its definition levels is a repeated node's."""
        if self.node.repetition is not Repetition.REQUIRED:
            way = (*way, self.is_repeated)
        if self.is_leaf:
            yield way
        for child in self.children:
            yield from child.ways(way)


def branch_of(node: Node, wanted: Collection[int] | None = None) -> Branch:
    """The part of a column's node with the leaves at the positions `wanted`, None for all."""
    branch, _ = _branch_of(node, wanted, 0)
    if branch is None:
        raise ValueError(f"no leaf of column {node.name!r} is wanted")
    return branch


def branches_of(schema: Schema, selected: Iterable[Selection]) -> tuple[Branch, ...]:
    """The wanted parts of columns of a schema."""
    found = []
    columns = list(selected)
    if kernels.instances is not None and all(len(column.leaves[0].path) == 1 for column in columns):
        values = {"node": [column.node for column in columns], "shape": None, "children": (), "positions": ()}
        return tuple(kernels.instances(Branch, len(columns), {**values, "num_leaves": 1}))
    for column in columns:
        first = schema.columns[column.position].leaves[0].ordinal
        found.append(branch_of(column.node, {leaf.ordinal - first for leaf in column.leaves}))
    return tuple(found)


def _branch_of(node: Node, wanted: Collection[int] | None, first: int) -> tuple[Branch | None, int]:
    """The branch of a node whose first leaf is number `first`, and the number of the leaf after its last."""
    if isinstance(node, Primitive):
        found = wanted is None or first in wanted
        return (Branch(node, None, (), (), 1) if found else None), first + 1
    children: list[Branch] = []
    positions: list[int] = []
    for position, child in enumerate(node.children):
        branch, first = _branch_of(child, wanted, first)
        if branch is not None:
            children.append(branch)
            positions.append(position)
    if not children:
        return None, first
    shape = shape_of(node)
    if isinstance(shape, MapShape) and len(children[0].children) != 2:
        shape = ListShape(shape.repeated, None)
    num_leaves = sum(child.num_leaves for child in children)
    return Branch(node, shape, tuple(children), tuple(positions), num_leaves), first


def projected(field: Field, branch: Branch) -> Field:
    """The Arrow field of the wanted part of a column, of that of the whole column."""
    if branch.is_repeated:
        return field.with_children(_of_slot(field.children[0], branch))
    return _of_slot(field, branch)


def struct_projected(struct: Field, branches: Sequence[Branch]) -> Field:
    """The Arrow struct of the wanted parts of some columns, of the one that the whole columns are."""
    if all(branch.is_leaf for branch in branches):
        return struct
    return struct.with_children(*[projected(*pair) for pair in zip(struct.children, branches, strict=True)])


def _of_slot(field: Field, branch: Branch) -> Field:
    """The same for one slot of a node, whether it is repeated or not."""
    if branch.is_leaf:
        return field
    match branch.shape:
        case MapShape():
            entries = _struct(field.children[0], branch.children[0])
            return field.with_children(entries)
        case ListShape(repeated, None) if field.kind == "+m":
            entries = _struct(field.children[0], branch.children[0])
            return replace(field, format="+l", keys_sorted=False).with_children(replace(entries, name=repeated.name))
        case ListShape(_, None):
            return field.with_children(_of_slot(field.children[0], branch.children[0]))
        case ListShape():
            return field.with_children(projected(field.children[0], branch.children[0].children[0]))
        case None:
            return _struct(field, branch)


def _struct(field: Field, branch: Branch) -> Field:
    return field.with_children(
        *(
            projected(field.children[position], child)
            for position, child in zip(branch.positions, branch.children, strict=True)
        )
    )


_LARGE_LISTS: Final = {"+l": "+L", "+vl": "+vL"}
#: A fixed-size list has elements also where it is null, and a small file can claim huge ones. Where it would
#: take more than this many slots, and 64 times what is there, the array is a list of any size instead.
_FREE_NULL_ELEMENTS = 1 << 24


def to_arrow(arrow_type: Any, branch: Branch, leaves: Sequence[LeafColumn]) -> Any:
    """One top-level column, or the wanted part of it, as a nanoarrow `CArray`.

    Its type is `arrow_type`, but for some cases that `Table` makes up for:

    * where offsets of 32 bits do not suffice it is the large type;
    * where text is not UTF-8 it is binary;
    * where ``ARROW:schema`` says fixed-size lists and some are of another size it is a list;
    * where a decimal does not fit into 128 bits, whatever its precision, it is one of 256 bits;
    * where an INT96 is beyond nanoseconds it is a time stamp of microseconds, to which all are cut;
    * where the annotation UNKNOWN stands on values it is what they are without it.
    """
    field = Field.of(arrow_type)
    try:
        if branch.is_leaf and len(leaves) == 1 and _has_no_levels(leaves[0]):
            return leaf_array(field, leaves[0], None)[1]  # there is nothing to assemble
        return _Assembly(branch, leaves).array(field)[1]
    except MemoryError as error:
        rows = leaves[0].num_rows
        raise FormatError(f"there is not enough memory for the {rows:,} rows of column {branch.node.name!r}") from error


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the tree from the column down to its leaves, its slots in the order of `places`."""

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

    def __init__(self, branch: Branch, leaves: Sequence[LeafColumn]) -> None:
        self.branch = branch
        self.leaves = leaves
        if branch.num_leaves != len(leaves):
            raise ValueError(
                f"{branch.num_leaves} leaves of column {branch.node.name!r} are wanted, {len(leaves)} given"
            )
        self.steps = [_steps_of(leaf, way) for leaf, way in zip(leaves, branch.ways(), strict=True)]

    def array(self, field: Field) -> TypedArray:
        return self._field(field, self.branch, _Place(self.leaves[0].num_rows))

    def _field(self, field: Field, branch: Branch, place: _Place) -> TypedArray:
        """The array of a node, which is a list where the node is repeated."""
        if branch.is_repeated:
            return self._list(field, branch, None, place, None)
        if branch.is_leaf:
            return self._leaf(field, place)
        valid = None
        if branch.node.repetition is Repetition.OPTIONAL:
            valid = self._valid(branch, place)
            place = replace(place, depth=place.depth + 1, alive=valid)
        return self._group(field, branch, place, valid)

    def _group(self, field: Field, branch: Branch, place: _Place, valid: Valid | None) -> TypedArray:
        if branch.shape is not None:
            repeated = branch.children[0]
            if isinstance(branch.shape, MapShape):
                return self._map(field, repeated, place, valid)
            element = None if branch.shape.element is None else repeated.children[0]
            return self._list(field, repeated, element, place, valid)
        children = self._children(field, branch, place)
        field = field.with_children(*(child for child, _ in children))
        return field, make_array(field, place.length, [], valid, [array for _, array in children])

    def _children(self, field: Field, branch: Branch, place: _Place) -> list[TypedArray]:
        """The arrays of a group's children, which have its slots."""
        arrays = []
        first = place.first
        for child_field, child in zip(field.children, branch.children, strict=True):
            arrays.append(self._field(child_field, child, replace(place, first=first)))
            first += child.num_leaves
        return arrays

    def _list(
        self, field: Field, repeated: Branch, element: Branch | None, place: _Place, valid: Valid | None
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
        if field.kind in _LARGE_LISTS and offsets[-1] > leaf_arrays.MAX_SMALL_OFFSET:
            field = replace(field, format=_LARGE_LISTS[field.kind])
        field = field.with_children(child)
        offsets = offsets.astype(np.int32 if field.kind in _LARGE_LISTS else np.int64, copy=False)
        buffers = [offsets[:-1], np.diff(offsets)] if field.kind in LIST_VIEW_KINDS else [offsets]
        return field, make_array(field, place.length, buffers, valid, [array])

    def _element(self, field: Field, repeated: Branch, element: Branch | None, place: _Place) -> TypedArray:
        if element is not None:
            return self._field(field, element, place)
        if repeated.is_leaf:
            return self._leaf(field, place)
        return self._group(field, repeated, place, None)

    def _map(self, field: Field, repeated: Branch, place: _Place, valid: Valid | None) -> TypedArray:
        offsets = self._offsets(repeated, place)
        if offsets[-1] > leaf_arrays.MAX_SMALL_OFFSET:
            raise self._contradiction(repeated.node, f"{offsets[-1]:,} entries are too many for one Arrow map array")
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

    def _valid(self, branch: Branch, place: _Place) -> Valid | None:
        """Validity of an optional group, on which all leaves below it must agree."""
        step = self._agreed(branch, place)
        assert isinstance(step, AssembledOptional)
        valid = step.valid
        if place.places is not None:
            out = place.places >= 0
            out[out] = valid
            return out
        return None if valid.all() else valid

    def _offsets(self, branch: Branch, place: _Place) -> NDArray[np.int64]:
        """List offsets of a repeated node, on which all leaves below it must agree."""
        step = self._agreed(branch, place)
        assert isinstance(step, AssembledRepeated)
        if place.places is None:
            return step.offsets
        lengths = np.zeros(place.length + 1, np.int64)
        lengths[1:][place.places >= 0] = np.diff(step.offsets)
        return np.cumsum(lengths)

    def _agreed(self, branch: Branch, place: _Place) -> AssembledOptional | AssembledRepeated:
        steps = self._steps(place.first)
        step = steps[place.depth]
        slots = place.length if place.places is None else int(np.count_nonzero(place.places >= 0))
        found = len(step.values) - int(isinstance(step, AssembledRepeated))
        if found != slots:
            raise self._contradiction(branch.node, f"levels of {found:,} slots, where there are {slots:,}")
        for other in range(place.first + 1, place.first + branch.num_leaves):
            if not steps.agrees(self._steps(other), place.depth):
                paths = (self.leaves[at].leaf.column_path for at in (place.first, other))
                raise self._contradiction(branch.node, f"leaves {' and '.join(paths)} have levels that differ")
        return step

    def _steps(self, leaf: int) -> Steps:
        steps = self.steps[leaf]
        assert steps is not None  # of a leaf below a node that is optional or repeated
        return steps

    def _contradiction(self, node: Node, what: str) -> FormatError:
        path = self.leaves[0].leaf.path[0]
        return FormatError(f"column {path!r}, at {node.name!r}: {what}", where=Where(column=path))


def _has_no_levels(column: LeafColumn) -> bool:
    """Whether a column is flat, with a slot for each row."""
    is_flat = column.definition_levels is None and column.repetition_levels is None
    return is_flat and len(column.values) == column.num_rows


def _steps_of(column: LeafColumn, way: Sequence[bool]) -> Steps | None:
    if column.definition_levels is None:
        # A flat column, whose validity is in the leaf itself, or one that is required throughout.
        if len(way) > 1 or any(way):
            raise ValueError(f"column {column.leaf.column_path!r} is nested, but has no definition levels")
        return None
    return Steps(column.definition_levels, column.repetition_levels, way)


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
