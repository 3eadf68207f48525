"""The ids that a table gives its columns, in the schema of its files. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from resilient_pq.errors import SchemaError, Where
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.schema_tree import Node, Primitive, Schema

#: The id of a node, by its path in the words of table formats: ``tags.element``, ``counts.key``, ``counts.value``.
IdOf = Callable[[tuple[str, ...]], int]

_PARTS = {logical.LIST: ("element",), logical.MAP: ("key", "value")}


def with_field_ids(schema: Schema, id_of: IdOf) -> Schema:
    """The same columns, with the field ids that a table gives them."""
    children = tuple(_with_id(child, (child.name,), id_of) for child in schema.root.children)
    return Schema(replace(schema.root, children=children))


def _with_id(node: Node, path: tuple[str, ...], id_of: IdOf) -> Node:
    if node.repetition is Repetition.REPEATED:
        raise _not_in_tables(path)
    if isinstance(node, Primitive):
        return replace(node, field_id=id_of(path))
    numbered = replace(node, field_id=id_of(path))
    names = _PARTS.get(node.logical)  # type: ignore[arg-type]
    if names is None:
        return replace(numbered, children=tuple(_with_id(child, (*path, child.name), id_of) for child in node.children))
    repeated = node.children[0]
    if isinstance(repeated, Primitive) or len(repeated.children) != len(names):
        raise _not_in_tables(path)
    parts = zip(names, repeated.children, strict=True)
    inner = replace(repeated, children=tuple(_with_id(child, (*path, name), id_of) for name, child in parts))
    return replace(numbered, children=(inner,))


def _not_in_tables(path: tuple[str, ...]) -> SchemaError:
    column = ".".join(path)
    return SchemaError(
        f"column {column!r} is a list in an old form of Parquet, which has no place for the ids of a table",
        where=Where(column=column),
        hint="write it with an Arrow schema",
    )
