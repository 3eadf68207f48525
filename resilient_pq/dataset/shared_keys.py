"""Key-value metadata that hold for all files of a data set, of which each file has its own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resilient_pq.arrow.schema import ColumnFields, arrow_schema_of
from resilient_pq.arrow.stored_schema import ARROW_SCHEMA_KEY, encode_arrow_schema
from resilient_pq.errors import UnsupportedError
from resilient_pq.format.schema import Schema

#: What pandas keeps of its columns and its index. It differs from file to file by the length of a range index,
#: which every reader of it checks against the rows it has.
PANDAS_KEY = "pandas"
#: Keys of the file itself, which say nothing of another one.
_OWN_PREFIX = "rpq."


class SharedKeys:
    """The keys of files that have one Parquet schema, taken in one after the other.

    A key is kept when every file has it with the same value. Two are not as simple: of ``pandas`` the first file's
    is kept, and of ``ARROW:schema`` the types, where all files agree on them; else the types are those of the
    Parquet schema.
    """

    def __init__(self, schema: Schema, key_value: Mapping[str, str | None]) -> None:
        """Begin with the first file."""
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
