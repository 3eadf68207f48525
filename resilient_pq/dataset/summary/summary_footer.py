"""Footers in, the footer of their summary out. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from resilient_pq.arrow.types.arrow_schema import ColumnFields, arrow_schema_of
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, encode_arrow_schema
from resilient_pq.errors import FormatError, SchemaError, UnsupportedError, Where
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.file_metadata import ColumnOrder
from resilient_pq.format.schema_tree import Group, Node, Schema
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.data_file import data_file
from resilient_pq.version import CREATED_BY, MAKER

#: RowGroup.ordinal is a signed 16-bit integer; row groups further back have none.
_MAX_ORDINAL = (1 << 15) - 1
#: Readers keep the length of a footer in a signed 32-bit integer.
_MAX_FOOTER = (1 << 31) - 1
#: The worse, the further back.
_STATES = (FileState.COMPLETE, FileState.SALVAGED, FileState.IN_PROGRESS)

#: What pandas keeps of its columns and its index. It differs from file to file by the length of a range index,
#: which every reader of it checks against the rows it has.
PANDAS_KEY = "pandas"
#: Keys of the file itself, which say nothing of another one.
_OWN_PREFIX = "rpq."


class Summary:
    """A summary that grows file by file."""

    def __init__(self) -> None:
        self.num_files = 0
        self.num_row_groups = 0
        self.num_rows = 0
        self._first = ""
        self._schema: Schema | None = None
        self._keys: SharedKeys | None = None
        self._created_by: str | None = None
        self._column_orders: list[ColumnOrder] | None = None
        self._state = FileState.COMPLETE
        self._sizes: dict[str, int] = {}
        self._row_groups: list[bytes] = []

    def add(self, name: str, size: int, contents: Contents) -> None:
        """Take in the row groups of one more file, behind those of the files before it."""
        self._check(name, contents)
        metadata = contents.metadata
        if self._schema is None or self._keys is None:
            self._first, self._schema = name, contents.schema
            self._keys = SharedKeys(contents.schema, contents.key_value)
            self._created_by, self._column_orders = metadata.created_by, metadata.column_orders
        else:
            _compare(contents.schema.root, self._schema.root, name, self._first, ())
            self._keys.add(contents.key_value)
            self._created_by = one_maker(self._created_by, metadata.created_by)
            if metadata.column_orders != self._column_orders:
                self._column_orders = None  # minima and maxima then mean nothing, rather than something else
        self._state = max(self._state, contents.state or FileState.COMPLETE, key=_STATES.index)
        self._sizes[name] = size
        for row_group in metadata.row_groups:
            for column in row_group.columns:
                column.file_path = name
            ordinal = len(self._row_groups)
            row_group.ordinal = ordinal if ordinal <= _MAX_ORDINAL else None
            self._row_groups.append(compact_protocol.encode(row_group))
        self.num_files += 1
        self.num_row_groups = len(self._row_groups)
        self.num_rows += metadata.num_rows

    def _check(self, name: str, contents: Contents) -> None:
        if name in self._sizes:
            raise SchemaError(f"the file {name!r} is named twice")
        try:
            data_file(name)
            name.encode()
        except (FormatError, UnicodeEncodeError):
            raise UnsupportedError(f"a summary cannot name the file {name!r}") from None
        if contents.data_files:
            raise UnsupportedError("the file is a summary itself: its rows lie in other files")

    def metadata(self, file_id: bytes) -> bytes:
        """The bytes of ``_metadata``."""
        sizes = {footer.FILES_KEY: json.dumps(self._sizes, ensure_ascii=False, separators=(",", ":"))}
        return self._file(file_id, self._row_groups, self.num_rows, sizes)

    def common_metadata(self, file_id: bytes) -> bytes:
        """The bytes of ``_common_metadata``: the schema and the keys, no row groups."""
        return self._file(file_id, [], 0, {})

    def _file(self, file_id: bytes, row_groups: Sequence[bytes], num_rows: int, more: Mapping[str, str]) -> bytes:
        """A whole file; a record's header vouches for its footer, as in any file of ours."""
        assert self._schema is not None and self._keys is not None
        metadata = footer.serialize(
            self._schema.to_elements(),
            row_groups,
            num_rows=num_rows,
            column_orders=self._column_orders,
            key_value={
                **self._keys.result(),
                **more,
                footer.STATE_KEY: self._state,
                footer.FILE_ID_KEY: file_id.hex(),
                footer.FORMAT_KEY: "1",
            },
            created_by=self._created_by,
        )
        if len(metadata) > _MAX_FOOTER:
            raise UnsupportedError(
                f"the footer would have {len(metadata):,} bytes", hint="write a summary of fewer files"
            )
        return footer.sealed(metadata, file_id, num_rows=num_rows, num_row_groups=len(row_groups))


def one_maker(one: str | None, other: str | None) -> str | None:
    """The maker of both; None where there is none, and readers then trust statistics no more than they must."""
    if one == other:
        return one
    ours = all(maker is not None and maker.startswith(MAKER) for maker in (one, other))
    return CREATED_BY if ours else None


def _compare(found: Node, expected: Node, name: str, first: str, path: tuple[str, ...]) -> None:
    """Walk two schemas side by side, down to the first column that differs."""
    if isinstance(found, Group) and isinstance(expected, Group):
        if (found.repetition, found.logical, found.field_id) != (
            expected.repetition,
            expected.logical,
            expected.field_id,
        ):
            raise _differs(found, expected, name, first, path)
        for one, other in zip_longest(found.children, expected.children):
            below = (*path, (other or one).name)
            if one is None or other is None or one.name != other.name:
                raise _differs(one, other, name, first, below)
            _compare(one, other, name, first, below)
    elif found != expected:
        raise _differs(found, expected, name, first, path)


def _differs(found: Node | None, expected: Node | None, name: str, first: str, path: tuple[str, ...]) -> SchemaError:
    column = ".".join(path)
    return SchemaError(
        f"the schemas differ: at the place of column {column!r}, {name} has {_words(found, expected)}, and {first} has"
        f" {_words(expected, found)}",
        where=Where(column=column),
        hint="write a summary of the files that have one schema: files=[...]",
    )


def _words(node: Node | None, other: Node | None = None) -> str:
    """A node without its children; its name where that is what differs."""
    if node is None:
        return "nothing"
    words = [node.repetition.name.lower()]
    if isinstance(node, Group):
        words.append("group")
    else:
        length = "" if node.type_length is None else f"({node.type_length})"
        words.append(node.physical_type.name.lower() + length)
    if other is not None and node.name != other.name:
        words.append(repr(node.name))
    if node.logical is not None:
        words.append(f"({node.logical})")
    if node.field_id is not None:
        words.append(f"= {node.field_id}")
    return " ".join(words)


class SharedKeys:
    """The keys that all files of one Parquet schema have with the same value; ``pandas`` is the first file's."""

    def __init__(self, schema: Schema, key_value: Mapping[str, str | None]) -> None:
        self._schema = schema
        self._kept = {key: value for key, value in key_value.items() if not key.startswith(_OWN_PREFIX)}
        self._stored = {key_value.get(ARROW_SCHEMA_KEY)}
        self._types = _types(schema, key_value)
        self._types_agree = True
        self._all_kept = True

    def add(self, key_value: Mapping[str, str | None]) -> None:
        """Take in the keys of one more file."""
        stored = key_value.get(ARROW_SCHEMA_KEY)
        if stored not in self._stored:
            self._stored.add(stored)
            self._types_agree &= self._types is not None and _types(self._schema, key_value) == self._types
        for key in list(self._kept):
            same = key in key_value and key_value[key] == self._kept[key]
            if not same and key not in (PANDAS_KEY, ARROW_SCHEMA_KEY):
                del self._kept[key]
                self._all_kept = False

    def result(self) -> dict[str, str | None]:
        """What holds for all files taken in."""
        kept = dict(self._kept)
        # The metadata of the schema stand in ARROW:schema once more, and must not say there what was left out here.
        as_stored = len(self._stored) == 1 or (self._types_agree and self._all_kept)
        if ARROW_SCHEMA_KEY not in kept or as_stored:
            return kept
        if not self._types_agree:
            del kept[ARROW_SCHEMA_KEY]
        try:
            kept[ARROW_SCHEMA_KEY] = encode_arrow_schema(arrow_schema_of(self._schema, kept))
        except UnsupportedError:
            kept.pop(ARROW_SCHEMA_KEY, None)
        return kept


def _types(schema: Schema, key_value: Mapping[str, str | None]) -> Any:
    """The columns as Arrow fields; None where this version has no Arrow type for one."""
    try:
        return ColumnFields(schema, key_value).struct().children
    except UnsupportedError:
        return None
