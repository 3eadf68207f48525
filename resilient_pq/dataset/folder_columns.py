"""Columns whose values stand in the names of folders, ``day=2026-08-01/country=FR``, when files are read. Pure."""

from __future__ import annotations

import copy
import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.leaf_arrays import leaf_array
from resilient_pq.arrow.types.field import Field
from resilient_pq.errors import SchemaError, Where
from resilient_pq.format.pages.row_selection import leaf_column, take_rows
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.decoder import RowGroupArrays
from resilient_pq.reader.filter.filters import alternatives_of, filter_of
from resilient_pq.reader.read_plan import Filters
from resilient_pq.tables.partition_key import partition_values

_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,18})", re.ASCII)
#: The names of any number of files make one batch.
_ANY_BYTES: Final = 1 << 62
_HINT: Final = 'partitioning is "hive", or an Arrow schema of the columns that are in the names of folders'


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left of a filter for the rows of one file."""

    filters: Filters | None  # on its own columns; None where all of its rows are wanted


class FolderColumns:
    """The values of some files, which all rows of a file share."""

    def __init__(self, names: Sequence[str], partitioning: object) -> None:
        named = [partition_values(re.split(r"[^/\\]*\Z", name)[0]) for name in names]
        first: dict[str, str | None] = named[0] if named else {}
        for name, values in zip(names, named, strict=True):
            if list(values) != list(first):
                raise SchemaError(
                    f"the folders of {names[0]} name {_words(first)}, those of {name} {_words(values)}",
                    where=Where(key=name),
                    hint="open files of one partitioning together, others apart",
                )
        columns = {key: [values[key] for values in named] for key in first}
        types = _stated_types(partitioning, columns) if partitioning != "hive" else _guess_types(columns)
        self.field = Field("", "+s", False, tuple(types))
        self._num_files = len(names)
        ingest = Ingest.from_schema(self.field)
        given = {field.name: _values(field, columns[field.name], names) for field in types}
        self._schema = ingest.schema
        self._leaves = ingest.schema.leaves
        (batch,) = ingest.batches(given, batch_bytes=_ANY_BYTES) if types else (None,)
        self._data = batch.leaves if batch is not None else ()

    def of_files(self, files: Sequence[int]) -> FolderColumns:
        """The same of some of the files."""
        chosen = copy.copy(self)
        rows = np.array(files, np.int64)
        chosen._num_files = len(files)
        chosen._data = tuple(take_rows(leaf, data, rows) for leaf, data in zip(self._leaves, self._data, strict=True))
        return chosen

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [child.name for child in self.field.children]

    def wanted_files(self, filters: Filters | None) -> list[int]:
        """The files whose folders may have rows that are wanted, one at least, which tells the schema."""
        return [at for at, wish in enumerate(self.narrowed(filters)) if wish is not None] or [0]

    def narrowed(self, filters: Filters | None) -> list[Narrowed | None]:
        """For each file what is left of a filter when its folders are known; None where no row of it can be wanted."""
        if filters is None:
            return [Narrowed(None)] * self._num_files
        left: list[list[list[Any]]] = [[] for _ in range(self._num_files)]
        for terms in alternatives_of(filters):
            known = [term for term in terms if self._speaks_of(term)]
            rest = [term for term in terms if not self._speaks_of(term)]
            for file in np.flatnonzero(self._meeting(known)).tolist():
                left[file].append(rest)
        return [_left(each) for each in left]

    def _speaks_of(self, term: Any) -> bool:
        return isinstance(term, list | tuple) and len(term) > 0 and term[0] in self.names

    def _meeting(self, terms: Sequence[Any]) -> NDArray[np.bool_]:
        """The files whose values meet all terms."""
        chosen = filter_of(self._schema, list(terms)) if terms else None
        if chosen is None:
            return np.ones(self._num_files, np.bool_)
        pairs = zip(self._leaves, self._data, strict=True)
        columns = {leaf.ordinal: leaf_column(leaf, data) for leaf, data in pairs}
        return chosen.wanted(columns, self._num_files)

    def array(self, column: int, file: int, num_rows: int) -> Any:
        """A column over rows of a file: its one value as often as there are rows."""
        leaf = self._leaves[column]
        repeated = take_rows(leaf, self._data[column], np.full(num_rows, file, np.int64))
        return leaf_array(self.field.children[column], leaf_column(leaf, repeated), None)[1]


class JoinedColumns:
    """Columns of files, and those in the names of their folders, in the order that was asked for."""

    def __init__(self, folders: FolderColumns, field: Field, chosen: Sequence[str]) -> None:
        self._folders = folders
        in_folders = {name: column for column, name in enumerate(folders.names)}
        own = list(reversed(field.children))
        #: Of each column which one it is of the folders; None for the next one of the files.
        self._columns: list[int | None] = []
        children: list[Field] = []
        for name in dict.fromkeys(chosen):
            column = in_folders.get(name)
            if column is not None:
                self._columns.append(column)
                children.append(folders.field.children[column])
            # Several paths may lead into one column, and several columns have one name.
            while column is None and own and f"{name}.".startswith(f"{own[-1].name}."):
                self._columns.append(None)
                children.append(own.pop())
        self.field = field.with_children(*children)

    def join(self, file: int, rows: RowGroupArrays) -> RowGroupArrays:
        """Rows of a file with the columns of its folders."""
        own = iter(rows.arrays)
        arrays = [
            next(own) if column is None else self._folders.array(column, file, rows.num_rows)
            for column in self._columns
        ]
        return RowGroupArrays(arrays, rows.num_rows, rows.lost)


def _left(alternatives: list[list[Any]]) -> Narrowed | None:
    if not alternatives:
        return None
    return Narrowed(None if [] in alternatives else alternatives)


def _words(values: Mapping[str, object]) -> str:
    return ", ".join(map(repr, values)) or "no columns"


def _stated_types(partitioning: object, columns: Mapping[str, object]) -> list[Field]:
    """The types that a caller says."""
    if isinstance(partitioning, str):
        raise SchemaError(f"partitioning is {partitioning!r}", hint=_HINT)
    try:
        told = list(Field.of(partitioning).children)
    except SchemaError as error:
        error.hint = _HINT
        raise
    if sorted(field.name for field in told) != sorted(columns):
        raise SchemaError(
            f"partitioning has {_words(dict.fromkeys(field.name for field in told))}; the folders name"
            f" {_words(columns)}"
        )
    return told


def _guess_types(columns: Mapping[str, Sequence[str | None]]) -> list[Field]:
    """Integers, where all values are written as ones, else text."""
    types = []
    for name, texts in columns.items():
        values = [text for text in texts if text is not None]
        integers = bool(values) and all(_INTEGER.fullmatch(text) for text in values)
        if integers and all(-(2**31) <= int(text) < 2**31 for text in values):
            types.append(Field(name, "i"))
        elif integers and all(-(2**63) <= int(text) < 2**63 for text in values):
            types.append(Field(name, "l"))
        else:
            types.append(Field(name, "u"))
    return types


_BOOLEANS: Final = {"true": True, "false": False}
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    **dict.fromkeys("cCsSiIlL", int),
    **dict.fromkeys("fg", float),
    **dict.fromkeys(("u", "U"), str),
    "b": lambda text: _BOOLEANS[text.lower()],
    "tdD": dt.date.fromisoformat,
    "ts": dt.datetime.fromisoformat,
}


def _values(field: Field, texts: Sequence[str | None], names: Sequence[str]) -> list[Any]:
    """The values that texts stand for."""
    read = _READERS.get(field.kind)
    if read is None:
        raise SchemaError(
            f"column {field.name!r} is in the names of folders, which cannot hold {field}",
            where=Where(column=field.name),
        )
    found = []
    for text, name in zip(texts, names, strict=True):
        try:
            found.append(None if text is None else read(text))
        except (ValueError, KeyError):
            raise SchemaError(
                f"{text!r} in the name of a folder is no {field}", where=Where(key=name, column=field.name)
            ) from None
    return found
