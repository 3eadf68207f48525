"""The nodes of a schema and its leaves, as they are made of the list of elements in a footer."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.format import kernels, logical
from resilient_pq.format.file_metadata import Repetition, SchemaElement, Type
from resilient_pq.format.logical import Logical
from resilient_pq.lazy_dataclass import dataclass

MAX_LEVEL = 255  # Levels are kept in bytes, so no leaf may have a level above this
_MANY: Final = 256  # Columns of a schema, at least, whose nodes are made at once when they are first asked for

# A file may have thousands of columns, and calling an enumeration takes several times as long as a look-up.
_REPETITIONS = {int(member): member for member in Repetition}
_TYPES: dict[int | None, Type] = {int(member): member for member in Type}


@dataclass(frozen=True, slots=True)
class Primitive:
    """A node that has values: a leaf column."""

    name: str  # Name within its parent
    repetition: Repetition  # REQUIRED, OPTIONAL or REPEATED
    physical_type: Type  # How a value is stored
    type_length: int | None = None  # Bytes of a FIXED_LEN_BYTE_ARRAY value, else None
    logical: Logical | None = None  # What a value means, None when there is no annotation
    field_id: int | None = None  # The id that some table formats give their columns


@dataclass(frozen=True, slots=True)
class Group:
    """A node that has children."""

    name: str  # Name within its parent
    repetition: Repetition  # REQUIRED, OPTIONAL or REPEATED
    children: tuple[Node, ...]  # The nodes below it, in order
    logical: Logical | None = None  # LIST, MAP or another annotation, None when there is none
    field_id: int | None = None  # The id that some table formats give their columns


Node = Primitive | Group


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column of the schema."""

    ordinal: int  # Position among the leaves, which is its position in every row group
    path: tuple[str, ...]  # Names from below the root down to the leaf
    node: Primitive  # The primitive node
    max_definition_level: int  # Definition level of a value that is there
    max_repetition_level: int  # Number of repeated nodes on the path
    # Entries with at least this definition level take a place in the leaf's own array; the others stand for empty or
    # null lists above it. 0 outside of lists
    slot_definition_level: int

    @property
    def column_path(self) -> str:
        """The path with dots: how a user names the column."""
        return ".".join(self.path)

    @property
    def is_flat_text(self) -> bool:
        """Whether values are strings, outside of lists."""
        return self.node.logical == logical.Plain("STRING") and not self.max_repetition_level


@dataclass(frozen=True, slots=True)
class FlatElements:
    """A schema without nesting as a footer has it: checked, and not made into nodes yet."""

    elements: kernels.KeptStructs[SchemaElement]
    names: list[str]  # of the columns
    alike: list[int]  # for each column a number, which those share that differ in their names alone
    kinds: dict[int, Primitive]  # the first column of each number

    @classmethod
    def of(cls, elements: kernels.KeptStructs[SchemaElement]) -> FlatElements | None:
        """Those of a schema; None where they are no such one, or unsound."""
        if kernels.alike_elements is None or len(elements) <= _MANY or (spans := elements.spans) is None:
            return None
        names, numbers, firsts = kernels.alike_elements(*spans)
        first = {numbers[at]: elements.fresh(at) for at in firsts if at}
        if elements.fresh(0).num_children != len(names) - 1 or numbers[0] in first:
            return None
        if any(element.num_children or element.type is None for element in first.values()):
            return None
        kinds = {number: _parse_primitive(each, _repetition(each, is_root=False)) for number, each in first.items()}
        return cls(elements, names[1:], numbers[1:], kinds)

    def root(self) -> Group:
        """The group at the top."""
        kinds = self.kinds
        if len(kinds) == 1:
            values: dict[str, Any] = {
                each.name: getattr(next(iter(kinds.values())), each.name) for each in fields(Primitive)
            }
        else:
            nodes = [kinds[number] for number in self.alike]
            values = {each.name: list(map(attrgetter(each.name), nodes)) for each in fields(Primitive)}
        children = kernels.instances(Primitive, len(self.names), {**values, "name": self.names})
        top = self.elements.fresh(0)
        return Group(top.name, _repetition(top, is_root=True), tuple(children), logical.from_element(top), top.field_id)

    def leaves(self, root: Group) -> tuple[Leaf, ...]:
        """The leaves of its nodes."""
        levels = [int(node.repetition is not Repetition.REQUIRED) for node in root.children]
        repeated = [int(node.repetition is Repetition.REPEATED) for node in root.children]
        values = {
            "ordinal": list(range(len(levels))),
            "path": list(zip(self.names, strict=True)),
            "node": list(root.children),
        }
        levels_of = {
            "max_definition_level": levels,
            "max_repetition_level": repeated,
            "slot_definition_level": repeated,
        }
        return tuple(kernels.instances(Leaf, len(levels), {**values, **levels_of}))


def without_empty_groups(group: Group) -> Group:
    """The group, but none below it that has no leaves."""
    children = [without_empty_groups(child) if isinstance(child, Group) else child for child in group.children]
    kept = tuple(child for child in children if isinstance(child, Primitive) or child.children)
    same = len(kept) == len(group.children) and all(map(operator.is_, kept, group.children))
    return group if same else replace(group, children=kept)


def count_leaves(node: Node) -> int:
    """How many leaves a node is, or has."""
    return 1 if isinstance(node, Primitive) else sum(count_leaves(child) for child in node.children)


def walk(root: Group) -> Iterator[Leaf]:
    """The leaves of a tree in order."""
    ordinal = 0
    stack: list[tuple[Node, tuple[str, ...], int, int, int]] = [
        (child, (), 0, 0, 0) for child in reversed(root.children)
    ]
    while stack:
        node, parents, definition, repetition, slot = stack.pop()
        path = (*parents, node.name)
        if node.repetition is not Repetition.REQUIRED:
            definition += 1
        if node.repetition is Repetition.REPEATED:
            repetition += 1
            slot = definition
        if isinstance(node, Primitive):
            yield Leaf(ordinal, path, node, definition, repetition, slot)
            ordinal += 1
        else:
            stack.extend((child, path, definition, repetition, slot) for child in reversed(node.children))


def parse_node(elements: Sequence[SchemaElement], at: int, depth: int) -> tuple[Node, int]:
    """The node that begins at an element, and the position of the element behind it."""
    if depth > 2 * MAX_LEVEL:
        raise UnsupportedError(f"the schema is nested more than {2 * MAX_LEVEL} levels deep")
    if at >= len(elements):
        raise FormatError("the schema's tree names more children than there are elements")
    element = elements[at]
    repetition = _repetition(element, is_root=at == 0)
    if element.type is not None and not element.num_children:
        return _parse_primitive(element, repetition), at + 1
    children: list[Node] = []
    following = at + 1
    for _ in range(element.num_children or 0):
        child, following = parse_node(elements, following, depth + 1)
        children.append(child)
    group = Group(element.name, repetition, tuple(children), logical.from_element(element), element.field_id)
    return group, following


def _repetition(element: SchemaElement, *, is_root: bool) -> Repetition:
    if is_root or element.repetition_type is None:
        return Repetition.REQUIRED
    try:
        return _REPETITIONS[element.repetition_type]
    except KeyError:
        raise FormatError(f"column {element.name!r}: unknown repetition {element.repetition_type}") from None


def _parse_primitive(element: SchemaElement, repetition: Repetition) -> Primitive:
    try:
        physical_type = _TYPES[element.type]
    except KeyError:
        raise FormatError(f"column {element.name!r}: unknown physical type {element.type}") from None
    if physical_type is Type.FIXED_LEN_BYTE_ARRAY and (element.type_length is None or element.type_length < 0):
        raise FormatError(f"column {element.name!r}: FIXED_LEN_BYTE_ARRAY without a length")
    length = element.type_length if physical_type is Type.FIXED_LEN_BYTE_ARRAY else None
    annotation = logical.from_element(element)
    return Primitive(element.name, repetition, physical_type, length, annotation, element.field_id)


def elements_of(node: Node, *, is_root: bool = False) -> Iterator[SchemaElement]:
    """The depth-first list of a tree."""
    element = SchemaElement(name=node.name, field_id=node.field_id)
    if not is_root:
        element.repetition_type = int(node.repetition)
    logical.annotate(element, node.logical)
    if isinstance(node, Primitive):
        element.type = int(node.physical_type)
        element.type_length = node.type_length
        yield element
        return
    element.num_children = len(node.children)
    yield element
    for child in node.children:
        yield from elements_of(child)
