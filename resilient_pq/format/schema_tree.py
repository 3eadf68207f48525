"""The schema tree of a file: each primitive node is a leaf column, with levels (parquet-format, "Nested Encoding")."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from resilient_pq.errors import FormatError, SchemaError, UnsupportedError
from resilient_pq.format import kernels, logical, message
from resilient_pq.format.file_metadata import SchemaElement
from resilient_pq.format.schema_nodes import (
    MAX_LEVEL,
    FlatElements,
    Group,
    Leaf,
    Node,
    Primitive,
    count_leaves,
    elements_of,
    parse_node,
    walk,
    without_empty_groups,
)
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.notebook_html import preformatted

__all__ = ["MAX_LEVEL", "Group", "Leaf", "Node", "Primitive", "Schema", "Selection"]

#: Bytes of a schema, as footers have it, that files share: those of a thousand columns, which take a hundred times as
#: much when they are parsed. A few of those that were read last are kept.
_MOST_SHARED: Final = 32 * 1024
_SHOWN_LINES: Final = 40  # Lines that `repr` shows


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
    elements: tuple[SchemaElement, ...] = field(default_factory=tuple, repr=False, compare=False)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The nodes of a schema of many columns are made when they are first asked for."""
            flat = self._flat
            if flat is None or name not in ("root", "elements"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            made = flat.root() if name == "root" else tuple(map(flat.elements.fresh, range(len(flat.elements))))
            return self.__dict__.setdefault(name, made)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have what it says, and make the rest again."""
        return Schema, (self.root, self.elements)

    @cached_property
    def made(self) -> dict[object, Any]:
        """What others have made of it, under their names: many files have one schema."""
        return {}

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaf columns in the order of the file."""
        return tuple(walk(self.root)) if self._flat is None else self._flat.leaves(self.root)

    @property
    def num_leaves(self) -> int:
        """How many those are."""
        return len(self.leaves if self._flat is None else self._flat.names)

    @property
    def alike(self) -> Sequence[int] | None:
        """For each top-level column a number, which those share that differ in their names alone; None: unknown."""
        return None if self._flat is None else self._flat.alike

    @property
    def _flat(self) -> FlatElements | None:
        return vars(self).get("flat")

    @property
    def names(self) -> list[str]:
        """Names of the top-level columns."""
        return [child.name for child in self.root.children]

    @cached_property
    def columns(self) -> tuple[Selection, ...]:
        """The top-level columns with all of their leaves, in the order of the file."""
        if self._flat is not None:
            count, leaves = self.num_leaves, self.leaves
            values = {"position": list(range(count)), "node": list(self.root.children), "leaves": list(zip(leaves))}
            return tuple(kernels.instances(Selection, count, values))
        found, first = [], 0
        for position, child in enumerate(self.root.children):
            end = first + count_leaves(child)
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
        spans = elements.spans if isinstance(elements, kernels.KeptStructs) else None
        if spans is None or spans[1][-1] - spans[1][0] > _MOST_SHARED:
            return cls.built(elements)
        starts = np.asarray(spans[1])
        return _of_bytes(bytes(spans[0][starts[0] : starts[-1]]), (starts - starts[0]).tobytes())

    @classmethod
    def built(cls, elements: Sequence[SchemaElement]) -> Schema:
        """As `from_elements`, one of its own."""
        if not elements:
            raise FormatError("the schema has no elements")
        if isinstance(elements, kernels.KeptStructs) and (flat := FlatElements.of(elements)) is not None:
            lazy: Schema = cls.__new__(cls)
            vars(lazy)["flat"] = flat
            return lazy
        root, end = parse_node(elements, 0, depth=0)
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
        if self._flat is not None:
            return self
        return self if self._root_with_leaves is self.root else Schema(self._root_with_leaves, self.elements)

    @cached_property
    def _root_with_leaves(self) -> Group:
        return without_empty_groups(self.root)

    def to_elements(self) -> list[SchemaElement]:
        """The footer's depth-first list; one that was read is given back as it was.

        All but annotations of which this version does not even know the name: of those only an empty Thrift union
        was read, and readers that meet one in a file lose their way.
        """
        if not self.elements:
            return list(elements_of(self.root, is_root=True))
        return [logical.writable(element) for element in self.elements]

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
def _of_bytes(data: bytes, starts: bytes) -> Schema:
    """The schema of elements with these offsets, which are known to be sound."""
    reader: Any = SchemaElement.thrift_reader  # type: ignore[attr-defined]
    return Schema.built(kernels.KeptStructs(reader, data, memoryview(starts).cast("q")))
