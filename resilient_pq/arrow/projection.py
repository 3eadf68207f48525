"""The wanted part of a column: its node without the leaves that nobody asked for, and the Arrow type of that.

What a group stands for, a struct, a list or a map, is decided by all of its children, whichever are wanted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from resilient_pq.arrow.field import Field
from resilient_pq.arrow.nesting import ListShape, MapShape, shape_of
from resilient_pq.format.metadata import Repetition
from resilient_pq.format.schema import Node, Primitive, Schema, Selection


@dataclass(frozen=True, slots=True)
class Branch:
    """A node, and what is wanted below it: `children` with wanted leaves, and where these stand among the node's.

    `shape` is None where the node is a leaf or a struct; a map of which only keys, or values, are wanted is a list of
    structs.
    """

    node: Node
    shape: ListShape | MapShape | None
    children: tuple[Branch, ...]
    positions: tuple[int, ...]
    num_leaves: int

    @property
    def is_leaf(self) -> bool:
        """Whether the node itself has values."""
        return isinstance(self.node, Primitive)

    @property
    def is_repeated(self) -> bool:
        """Whether the node is a list by itself."""
        return self.node.repetition is Repetition.REPEATED

    @property
    def is_flat(self) -> bool:
        """Whether the node itself has one value, or none, in each row."""
        return self.is_leaf and not self.is_repeated

    def ways(self, way: tuple[bool, ...] = ()) -> Iterator[tuple[bool, ...]]:
        """For each wanted leaf, whether each of its definition levels is a repeated node's."""
        if self.node.repetition is not Repetition.REQUIRED:
            way = (*way, self.is_repeated)
        if self.is_leaf:
            yield way
        for child in self.children:
            yield from child.ways(way)


def branch_of(node: Node, wanted: Collection[int] | None = None) -> Branch:
    """The wanted part of a node, by positions among the leaves below it; None is all."""
    branch, _ = _branch_of(node, wanted, 0)
    if branch is None:
        raise ValueError(f"no leaf of column {node.name!r} is wanted")
    return branch


def branches_of(schema: Schema, selected: Iterable[Selection]) -> tuple[Branch, ...]:
    """The wanted parts of columns of a schema."""
    found = []
    for column in selected:
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
    """The Arrow field of the wanted part of a column."""
    if branch.is_repeated:
        return field.with_children(_of_slot(field.children[0], branch))
    return _of_slot(field, branch)


def struct_projected(struct: Field, branches: Sequence[Branch]) -> Field:
    """The Arrow struct of the wanted parts of some columns."""
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
            return replace(field, format="+l", keys_sorted=False).with_children(
                replace(entries, name=repeated.name)
            )
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
