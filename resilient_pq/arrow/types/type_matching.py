"""Whether Arrow data of one type may be taken, without a cast, for a column of another, and how fields pair up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.group_nesting import ListShape, MapShape, shape_of
from resilient_pq.errors import SchemaError, Where
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.schema_tree import Group, Node
from resilient_pq.lazy_dataclass import dataclass

_FORMS = {"U": "u", "vu": "u", "Z": "z", "vz": "z", "+L": "+l", "+vl": "+l", "+vL": "+l"}

_LISTS_OF_FIXED_SIZE = {("+l", "+w"), ("+L", "+w")}


@dataclass(frozen=True, slots=True)
class Fit:
    """A node of the Parquet schema, and the Arrow data that goes into it, null where only nulls are there."""

    # The element of a list is not REPEATED, also where the repeated node itself is the element. `positions` says where
    # each of `children` stands among those of `found`.

    path: str
    node: Node
    found: Field
    positions: tuple[int, ...] = ()
    children: tuple[Fit, ...] = ()


def fit_columns(expected: Field, nodes: Sequence[Node], found: Field) -> tuple[tuple[int, Fit], ...]:
    """The columns that are expected, in their order, each with its position in what was found."""
    if found.kind != "+s":
        raise SchemaError(
            f"rows come as a struct of columns, not as {found}",
            hint="pass a table or record batch, a dict of columns or a list of dict records",
        )
    positions = _positions(expected, found, "")
    fits = [
        _fit(child, node, found.children[position], child.name)
        for child, node, position in zip(expected.children, nodes, positions, strict=True)
    ]
    return tuple(zip(positions, fits, strict=True))


def _positions(expected: Field, found: Field, path: str) -> tuple[int, ...]:
    """Where each expected child stands among the children found: by name; by position where names repeat."""
    wanted = [child.name for child in expected.children]
    names = [child.name for child in found.children]
    if wanted == names:
        return tuple(range(len(wanted)))
    inside = f" of {path!r}" if path else ""
    word = "field" if path else "column"
    for name in names:
        if name not in wanted:
            raise SchemaError(
                f"there is no {word} {name!r}{inside} in the schema", hint=f"{word}s: {', '.join(wanted)}"
            )
    for child in expected.children:
        if child.name not in names:
            raise SchemaError(
                f"{word} {child.name!r} ({child}){inside} is missing from the data",
                hint="it may be null, but it must be there: add it as nulls" if child.nullable else None,
            )
    if len(set(names)) != len(names) or len(names) != len(wanted):
        raise SchemaError(f"{word} names{inside} repeat, and not as the schema has them: {', '.join(names)}")
    return tuple(names.index(name) for name in wanted)


def _fit(expected: Field, node: Node, found: Field, path: str) -> Fit:
    values = found.dictionary if found.dictionary is not None else found
    if found.kind == "n":
        return Fit(path, node, found)
    if _form(expected) != _form(values) and (expected.kind, values.kind) not in _LISTS_OF_FIXED_SIZE:
        raise SchemaError(
            f"column {path!r} is {expected}, but the data has {found}",
            where=Where(column=path),
            hint="cast the data to the column's type; values are not cast silently",
        )
    match expected.kind:
        case "+s":
            positions = _positions(expected, values, path)
            nodes = node.children if isinstance(node, Group) else ()
            pairs = zip(expected.children, nodes, positions, strict=True)
            children = tuple(
                _fit(child, below, values.children[position], f"{path}.{child.name}")
                for child, below, position in pairs
            )
        case "+l" | "+L" | "+w":
            positions = (0,)
            element = expected.children[0], _element_of(node), values.children[0]
            children = (_fit(*element, f"{path}.element"),)
        case "+m":
            positions = (0, 1)
            parts = zip(
                expected.children[0].children,
                _entry_of(node),
                values.children[0].children,
                ("key", "value"),
                strict=True,
            )
            children = tuple(_fit(ours, below, theirs, f"{path}.{name}") for ours, below, theirs, name in parts)
        case _:
            return Fit(path, node, found)
    if found.dictionary is not None:
        raise SchemaError(f"column {path!r}: a dictionary of {values} cannot be written")
    return Fit(path, node, found, positions, children)


def _element_of(node: Node) -> Node:
    """The element of a list; a repeated node that is itself the element is one that is always there."""
    shape = shape_of(node) if isinstance(node, Group) and node.repetition is not Repetition.REPEATED else None
    if not isinstance(shape, ListShape):
        return replace(node, repetition=Repetition.REQUIRED)
    return shape.element or replace(shape.repeated, repetition=Repetition.REQUIRED)


def _entry_of(node: Node) -> tuple[Node, Node]:
    """Key and value of a map."""
    shape = shape_of(node) if isinstance(node, Group) else None
    assert isinstance(shape, MapShape)
    return shape.key, shape.value


def _form(field: Field) -> tuple[object, ...]:
    """What must be equal for data to fit: the type without its form. Children are compared on their own."""
    match field.kind:
        case "ts":
            return "ts", field.unit, bool(field.parameter)
        case "tt" | "tD":
            return field.kind, field.unit
        case "d":
            return "d", *field.decimal[:2]
        case "w" | "+w":
            return field.kind, field.width
        case kind:
            return (_FORMS.get(kind, kind),)
