"""Records by definition and repetition levels: what the draft's dialect says of them.

A column has a name, its highest definition level and its highest repetition level. Names with dots lead through groups;
which of these are optional or repeated is told by the levels of all columns together, where they leave no choice, and
otherwise by a schema that the caller has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from resilient_pq.errors import SchemaError, UnsupportedError, Where
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.record_shape import LEAF_TYPES, MAX_DEPTH, Layout, LeafSource
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata

_HINT: Final = "pass a schema with these columns: schema=, or --schema"
#: Choices tried before levels are taken to leave too many.
_MOST_TRIED: Final = 20_000


@dataclass(slots=True)
class _Branch:
    """A part of names between dots, and those that follow it."""

    name: str
    column: int | None = None
    children: dict[str, _Branch] = field(default_factory=dict)
    repetition: Repetition = Repetition.REQUIRED


def layout_of(columns: Sequence[ColumnMetadata], schema: Schema | None) -> Layout:
    """The layout of columns by a schema of the same columns in the same order, or by their levels alone."""
    if schema is None:
        schema, order = _inferred(columns)
    else:
        order = list(range(len(columns)))
        _check(schema, columns)
    return Layout(schema, tuple(LeafSource(position) for position in order))


def _check(schema: Schema, columns: Sequence[ColumnMetadata]) -> None:
    """Refuse a schema of other columns."""
    if len(schema.leaves) != len(columns):
        raise SchemaError(f"the schema has {len(schema.leaves)} leaves, and the file {len(columns)} columns")
    for leaf, column in zip(schema.leaves, columns, strict=True):
        levels = (column.max_definition_level, column.max_repetition_level)
        if (leaf.max_definition_level, leaf.max_repetition_level) != levels:
            raise SchemaError(
                f"{leaf.column_path!r} of the schema has the levels {leaf.max_definition_level} and"
                f" {leaf.max_repetition_level}, and the column {column.name!r} of the file {levels[0]} and {levels[1]}",
                where=Where(column=column.name),
            )
        if leaf.node.physical_type is not LEAF_TYPES[column.type].physical:
            raise SchemaError(
                f"{leaf.column_path!r} of the schema is {leaf.node.physical_type.name}, and the column of the file"
                f" {column.type}, which is {Type(LEAF_TYPES[column.type].physical).name}",
                where=Where(column=column.name),
            )


def _inferred(columns: Sequence[ColumnMetadata]) -> tuple[Schema, list[int]]:
    """The schema that follows from the levels, and the column of each leaf."""
    root = _Branch("schema")
    for position, column in enumerate(columns):
        branch, parts = root, column.name.split(".")
        if len(parts) > MAX_DEPTH:
            raise UnsupportedError(f"the name has more than {MAX_DEPTH} parts", where=column.where)
        for part in parts:
            if branch.column is not None:
                raise SchemaError(f"a column lies in the column {branch.name!r}", where=column.where, hint=_HINT)
            branch = branch.children.setdefault(part, _Branch(part))
        if branch.children or branch.column is not None:
            raise SchemaError("a column is a group of other columns, too", where=column.where, hint=_HINT)
        branch.column = position
    for branch in root.children.values():
        _choose(branch, columns)
    order: list[int] = []
    group = _node(root, columns, order)
    assert isinstance(group, Group)
    return Schema(group), order


def _choose(branch: _Branch, columns: Sequence[ColumnMetadata]) -> None:
    """Find the repetition of every node of a top-level column, if only one choice fits the levels."""
    nodes = list(_nodes(branch))
    ways = [(way, columns[column]) for way in _ways(branch, ()) if (column := way[-1].column) is not None]
    found: list[dict[int, Repetition]] = []
    tried = 0
    stack: list[dict[int, Repetition]] = [{}]
    while stack and len(found) < 2 and tried < _MOST_TRIED:
        chosen = stack.pop()
        tried += 1
        if not all(_fits(way, column, chosen) for way, column in ways):
            continue
        if len(chosen) == len(nodes):
            found.append(chosen)
            continue
        following = id(nodes[len(chosen)])
        stack.extend({**chosen, following: each} for each in Repetition)
    if len(found) != 1 or tried >= _MOST_TRIED:
        how = "no" if not found and tried < _MOST_TRIED else "more than one"
        what = f"the levels of the columns of {branch.name!r} fit {how} schema"
        raise SchemaError(what, where=Where(column=branch.name), hint=_HINT)
    for node in nodes:
        node.repetition = found[0][id(node)]


def _fits(way: Sequence[_Branch], column: ColumnMetadata, chosen: dict[int, Repetition]) -> bool:
    """Whether the levels of a column are possible with the chosen repetitions."""
    known = [chosen[id(node)] for node in way if id(node) in chosen]
    open_nodes = len(way) - len(known)
    defined = sum(each is not Repetition.REQUIRED for each in known)
    repeated = sum(each is Repetition.REPEATED for each in known)
    return (
        defined <= column.max_definition_level <= defined + open_nodes
        and repeated <= column.max_repetition_level <= repeated + open_nodes
    )


def _nodes(branch: _Branch) -> Iterator[_Branch]:
    yield branch
    for child in branch.children.values():
        yield from _nodes(child)


def _ways(branch: _Branch, above: tuple[_Branch, ...]) -> Iterator[tuple[_Branch, ...]]:
    """The ways from a branch to its leaves."""
    way = (*above, branch)
    if not branch.children:
        yield way
    for child in branch.children.values():
        yield from _ways(child, way)


def _node(branch: _Branch, columns: Sequence[ColumnMetadata], order: list[int]) -> Node:
    if branch.column is not None:
        order.append(branch.column)
        return Primitive(branch.name, branch.repetition, *LEAF_TYPES[columns[branch.column].type])
    children = tuple(_node(child, columns, order) for child in branch.children.values())
    return Group(branch.name, branch.repetition, children)
