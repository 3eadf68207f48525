"""Records by the columns alone, where no schema tells more: by their parents, and by names as Avro's writer has them.

``a#b`` is field b of record a, ``x[]`` an array, ``m>key`` a key, and ``u/int`` a branch of a union. Where names do not
say so, each column is a field by its whole name: an array, or a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from resilient_pq.trevni.blocks.record_shape import LEAF_TYPES, Array, Map, Maybe, Record, Scalar, Shape
from resilient_pq.trevni.blocks.trevni_metadata import ColumnMetadata, ValueType

_FIELD = re.compile(r"[^#\[\]>/]+")


class _UnknownNamesError(Exception):
    """Names are not as Avro's writer has them."""


class _Item(NamedTuple):
    """The rest of the name of a column, and its position."""

    rest: str
    position: int


def record_of(columns: Sequence[ColumnMetadata]) -> Record:
    """The records of a file."""
    names = _Names(columns)
    try:
        return names.record([_Item(columns[at].name, at) for at in names.below.get(None, [])])
    except _UnknownNamesError:
        return names.plain(None)


class _Names:
    """Makes shapes of columns by the parts of their names."""

    def __init__(self, columns: Sequence[ColumnMetadata]) -> None:
        self._columns = columns
        self.below: dict[str | None, list[int]] = {}
        for position, column in enumerate(columns):
            self.below.setdefault(column.parent, []).append(position)

    def plain(self, parent: str | None) -> Record:
        """Every column by its whole name."""
        fields: list[tuple[str, Shape]] = []
        for position in self.below.get(parent, []):
            column = self._columns[position]
            shape = self.plain(column.name) if column.name in self.below else self._scalar(position)
            fields.append((column.name, Array(position, shape) if column.is_array else shape))
        return Record(tuple(fields))

    def record(self, items: Sequence[_Item]) -> Record:
        """A record of the fields that the names begin with."""
        fields: dict[str, list[_Item]] = {}
        for item in items:
            match = _FIELD.match(item.rest)
            if match is None:
                raise _UnknownNamesError
            fields.setdefault(match[0], []).append(_Item(item.rest[match.end() :], item.position))
        return Record(tuple((name, self.value(inside)) for name, inside in fields.items()))

    def value(self, items: Sequence[_Item]) -> Shape:
        """The shape of one value, by the rest of the names."""
        heads = {item.rest[:1] for item in items}
        if heads == {"#"}:
            return self.record([_Item(item.rest[1:], item.position) for item in items])
        if heads == {"/"}:
            return self._union(items)
        if len(items) != 1:
            raise _UnknownNamesError
        column = self._columns[items[0].position]
        match items[0].rest:
            case "" if not column.is_array:
                return self._scalar(items[0].position)
            case "" | "[]" if column.is_array:
                return Array(items[0].position, self._element(items[0].position))
            case ">" if column.is_array:
                return self._map(items[0].position)
        raise _UnknownNamesError

    def _union(self, items: Sequence[_Item]) -> Shape:
        branches: list[tuple[str, Shape]] = []
        for item in items:
            if not self._columns[item.position].is_array:
                raise _UnknownNamesError
            branches.append((item.rest[1:], Maybe(item.position, self._element(item.position))))
        if len(branches) == 1:
            return branches[0][1]
        if len({name for name, _ in branches}) < len(branches) or not all(name for name, _ in branches):
            raise _UnknownNamesError
        return Record(tuple(branches))

    def _map(self, position: int) -> Map:
        key, *values = self._inside(position)
        if key.rest != "key" or not values or not all(item.rest.startswith("value") for item in values):
            raise _UnknownNamesError
        kind = self._columns[key.position]
        if kind.is_array or kind.type is not ValueType.STRING:
            raise _UnknownNamesError
        value = self.value([_Item(item.rest.removeprefix("value"), item.position) for item in values])
        return Map(position, self._scalar(key.position), value)

    def _element(self, position: int) -> Shape:
        """The elements of an array column: its own values, or the columns that lie in it."""
        inside = self._inside(position)
        if not inside:
            return self._scalar(position)
        if all(item.rest[:1] in ("#", "/", "[", ">") for item in inside):
            return self.value(inside)
        return self.record(inside)

    def _inside(self, position: int) -> list[_Item]:
        """The columns that lie in an array column, their names as far as its own does not begin them."""
        name = self._columns[position].name
        found = []
        for below in self.below.get(name, []):
            rest = self._columns[below].name
            if rest.startswith(name) and rest != name:
                rest = rest[len(name) :].removeprefix(".")
            found.append(_Item(rest, below))
        return found

    def _scalar(self, position: int) -> Scalar:
        kind = self._columns[position].type
        return Scalar(position, LEAF_TYPES[kind], is_null=kind is ValueType.NULL)
