"""The schema tree of a file and its leaves.

A schema is a group of nodes; each primitive node is a leaf column with a maximum definition and repetition
level (parquet-format, README, "Nested Encoding").
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Final

from resilient_pq.errors import FormatError, SchemaError, UnsupportedError
from resilient_pq.format import compact_protocol, kernels, logical, message
from resilient_pq.format.file_metadata import Repetition, SchemaElement, Type
from resilient_pq.format.logical import Logical
from resilient_pq.notebook_html import preformatted

#: Levels are kept in bytes, so no leaf may have a level above this.
MAX_LEVEL = 255

#: Bytes of a schema, as footers have it, that files share: those of a thousand columns, which take a hundred times as
#: much when they are parsed. A few of those that were read last are kept.
_MOST_SHARED: Final = 32 * 1024
#: Lines that `repr` shows.
_SHOWN_LINES: Final = 40

# A file may have thousands of columns, and calling an enumeration takes several times as long as a look-up.
_REPETITIONS = {int(member): member for member in Repetition}
_TYPES = {int(member): member for member in Type}


@dataclass(frozen=True, slots=True)
class Primitive:
    """A node that has values: a leaf column.

    Attributes:
        name: Name within its parent.
        repetition: REQUIRED, OPTIONAL or REPEATED.
        physical_type: How a value is stored.
        type_length: Bytes of a FIXED_LEN_BYTE_ARRAY value, else None.
        logical: What a value means, None when there is no annotation.
        field_id: The id that some table formats give their columns.
    """

    name: str
    repetition: Repetition
    physical_type: Type
    type_length: int | None = None
    logical: Logical | None = None
    field_id: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A node that has children.

    Attributes:
        name: Name within its parent.
        repetition: REQUIRED, OPTIONAL or REPEATED.
        children: The nodes below it, in order.
        logical: LIST, MAP or another annotation, None when there is none.
        field_id: The id that some table formats give their columns.
    """

    name: str
    repetition: Repetition
    children: tuple[Node, ...]
    logical: Logical | None = None
    field_id: int | None = None


Node = Primitive | Group


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column of the schema.

    Attributes:
        ordinal: Position among the leaves, which is its position in every row group.
        path: Names from below the root down to the leaf.
        node: The primitive node.
        max_definition_level: Definition level of a value that is there.
        max_repetition_level: Number of repeated nodes on the path.
        slot_definition_level: Entries with at least this definition level take a place in the leaf's own
            array; the others stand for empty or null lists above it. 0 outside of lists.
    """

    ordinal: int
    path: tuple[str, ...]
    node: Primitive
    max_definition_level: int
    max_repetition_level: int
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
class Selection:
    """A top-level column, or some of the leaves inside of it."""

    position: int  # of the column among the top-level columns
    node: Node  # the column's node, with everything that is below it in the schema
    leaves: tuple[Leaf, ...]  # the leaves wanted, in the order of the schema

    def of(self, ordinals: Collection[int]) -> Selection:
        """Those of the leaves that have one of some ordinals."""
        wanted = tuple([leaf for leaf in self.leaves if leaf.ordinal in ordinals])
        return self if len(wanted) == len(self.leaves) else replace(self, leaves=wanted)


@dataclass(frozen=True, repr=False)
class Schema:
    """The columns of a file.

    Attributes:
        root: The group at the top, which has no levels of its own.
    """

    root: Group
    elements: tuple[SchemaElement, ...] = field(default=(), repr=False, compare=False)

    @cached_property
    def made(self) -> dict[str, Any]:
        """What others have made of it, under their names: many files have one schema."""
        return {}

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf columns in the order of the file."""
        return tuple(_walk(self.root))

    @property
    def names(self) -> list[str]:
        """Names of the top-level columns."""
        return [child.name for child in self.root.children]

    @cached_property
    def columns(self) -> tuple[Selection, ...]:
        """The top-level columns with all of their leaves, in the order of the file."""
        found, first = [], 0
        for position, child in enumerate(self.root.children):
            end = first + _count_leaves(child)
            found.append(Selection(position, child, self.leaves[first:end]))
            first = end
        return tuple(found)

    def leaf_named(self, path: str) -> Leaf | None:
        """The leaf column of a path with dots; None where there is none.

        As in `select`, a name that a top-level column has is that column, dots or not.
        """
        found = [leaf for leaf in self.leaves if leaf.column_path == path]
        return min(found, key=lambda leaf: len(leaf.path), default=None)

    def select(self, columns: Iterable[str] | None) -> list[Selection]:
        """The columns that `columns` names, in the order in which it first names them.

        Args:
            columns: Names of top-level columns, or paths with dots to fields inside of them, groups or leaves:
                "Name.Language.Country" is that leaf of the column Name. A path is the one of the Parquet schema,
                with the groups that lists and maps have there: "phones.list.element". A name that a top-level
                column has is that column, dots or not. None is all.

        Raises:
            SchemaError: A name is not in the schema.
        """
        if columns is None:
            return list(self.columns)
        wanted: dict[int, set[int]] = {}
        for name in columns:
            if not isinstance(name, str):
                raise SchemaError(f"{name!r} is no name of a column", hint=f"columns: {', '.join(self.names)}")
            for position, leaves in self._named(name):
                wanted.setdefault(position, set()).update(leaf.ordinal for leaf in leaves)
        return [self.columns[position].of(leaves) for position, leaves in wanted.items()]

    @cached_property
    def _by_name(self) -> dict[str, list[Selection]]:
        """The top-level columns of each name."""
        found: dict[str, list[Selection]] = {}
        for column in self.columns:
            found.setdefault(column.node.name, []).append(column)
        return found

    def _named(self, name: str) -> list[tuple[int, tuple[Leaf, ...]]]:
        """The top-level columns of a name, or those that a path leads into, each with the leaves it names."""
        if name in self._by_name:
            return [(whole.position, whole.leaves) for whole in self._by_name[name]]
        entered = [column for column in self.columns if name.startswith(f"{column.node.name}.")]
        found = []
        for column in entered:
            leaves = tuple(leaf for leaf in column.leaves if f"{leaf.column_path}.".startswith(f"{name}."))
            if leaves:
                found.append((column.position, leaves))
        if not found:
            inside = [leaf.column_path for column in entered for leaf in column.leaves]
            raise SchemaError(f"there is no column {name!r}", hint=f"columns: {', '.join(inside or self.names)}")
        return found

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Read a schema from message text, as parquet tools print it.

        ::

            message AddressBook {
              required binary owner (STRING);
              repeated group contacts {
                required string name;
                optional int32 age (INTEGER(8,false)) = 7;
              }
            }

        Args:
            text: The message. Types are boolean, int32, int64, int96, float, double, binary,
                fixed_len_byte_array(length), and string for binary (STRING). Annotations are those of
                LogicalTypes.md and the older converted types; after ``=`` stands a field id.

        Raises:
            SchemaError: The text is not a schema; it names the line.
            UnsupportedError: A leaf is nested too deeply.
        """
        return cls.from_elements(message.parse(text))

    @classmethod
    def from_elements(cls, elements: Sequence[SchemaElement]) -> Schema:
        """Build the tree from the footer's depth-first list.

        Files of one data set have the same: one schema serves all of them, as long as it is among those read last.

        Raises:
            FormatError: The list is not a tree.
            UnsupportedError: A leaf is nested too deeply.
        """
        unread = elements.unread if isinstance(elements, kernels.KeptStructs) else None
        if unread is None or len(unread) > _MOST_SHARED:
            return cls.built(elements)
        return _of_bytes(bytes(unread))

    @classmethod
    def built(cls, elements: Sequence[SchemaElement]) -> Schema:
        """As `from_elements`, one of its own."""
        if not elements:
            raise FormatError("the schema has no elements")
        root, end = _parse_node(elements, 0, depth=0)
        if end != len(elements):
            raise FormatError(f"the schema has {len(elements)} elements, but its tree ends after {end}")
        if isinstance(root, Primitive):
            raise FormatError("the schema's root is not a group")
        schema = cls(root, tuple(elements))
        if any(leaf.max_definition_level > MAX_LEVEL for leaf in schema.leaves):
            raise UnsupportedError(f"the schema is nested more than {MAX_LEVEL} levels deep")
        return schema

    def without_empty_groups(self) -> Schema:
        """The same columns, but none that is a group without leaves: it has no values, and no levels to tell nulls."""
        return self if self._root_with_leaves is self.root else Schema(self._root_with_leaves, self.elements)

    @cached_property
    def _root_with_leaves(self) -> Group:
        return _without_empty_groups(self.root)

    def to_elements(self) -> list[SchemaElement]:
        """The footer's depth-first list; one that was read is given back as it was.

        All but annotations of which this version does not even know the name: of those only an empty Thrift union
        was read, and readers that meet one in a file lose their way.
        """
        if not self.elements:
            return list(_elements(self.root, is_root=True))
        return [logical.without_unknown(element) for element in self.elements]

    def __repr__(self) -> str:
        """The message text, cut where it is long."""
        lines = str(self).splitlines()
        more = [f"... and {len(lines) - _SHOWN_LINES:,} more lines"] if len(lines) > _SHOWN_LINES else []
        return "\n".join(["<resilient_pq.Schema>", *lines[:_SHOWN_LINES], *more])

    def _repr_html_(self) -> str:
        """The message text, for notebooks."""
        return preformatted(str(self))

    def __str__(self) -> str:
        """The schema as message text, as parquet tools print it; `parse` reads it back."""
        return message.text(self.elements or self.to_elements())


@lru_cache(maxsize=16)
def _of_bytes(data: bytes) -> Schema:
    """The schema of elements that stand back to back, and are known to be sound."""
    elements, at = [], 0
    while at < len(data):
        element, at = compact_protocol.decode(SchemaElement, data, at)
        elements.append(element)
    return Schema.built(elements)


def _without_empty_groups(group: Group) -> Group:
    children = [_without_empty_groups(child) if isinstance(child, Group) else child for child in group.children]
    kept = tuple(child for child in children if isinstance(child, Primitive) or child.children)
    same = len(kept) == len(group.children) and all(map(operator.is_, kept, group.children))
    return group if same else replace(group, children=kept)


def _count_leaves(node: Node) -> int:
    return 1 if isinstance(node, Primitive) else sum(_count_leaves(child) for child in node.children)


def _walk(root: Group) -> Iterator[Leaf]:
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


def _parse_node(elements: Sequence[SchemaElement], at: int, depth: int) -> tuple[Node, int]:
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
        child, following = _parse_node(elements, following, depth + 1)
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
        physical_type = _TYPES[element.type if element.type is not None else -1]
    except KeyError:
        raise FormatError(f"column {element.name!r}: unknown physical type {element.type}") from None
    if physical_type is Type.FIXED_LEN_BYTE_ARRAY and (element.type_length is None or element.type_length < 0):
        raise FormatError(f"column {element.name!r}: FIXED_LEN_BYTE_ARRAY without a length")
    length = element.type_length if physical_type is Type.FIXED_LEN_BYTE_ARRAY else None
    annotation = logical.from_element(element)
    return Primitive(element.name, repetition, physical_type, length, annotation, element.field_id)


def _elements(node: Node, *, is_root: bool = False) -> Iterator[SchemaElement]:
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
        yield from _elements(child)
