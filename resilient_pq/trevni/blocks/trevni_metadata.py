"""The metadata of a file and of its columns: pairs of a key and bytes (Trevni, "Metadata")."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from resilient_pq.errors import FormatError, UnsupportedError, Where
from resilient_pq.format.schema_tree import MAX_LEVEL
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.trevni.blocks.block_codecs import Checksum, TrevniCodec

CODEC: Final = "trevni.codec"
CHECKSUM: Final = "trevni.checksum"
NAME: Final = "trevni.name"
TYPE: Final = "trevni.type"
VALUES: Final = "trevni.values"
ARRAY: Final = "trevni.array"
PARENT: Final = "trevni.parent"
DEFINITION: Final = "trevni.definition"
REPETITION: Final = "trevni.repetition"
#: Where Avro's writer keeps the schema of the records (``AvroColumnWriter.SCHEMA_KEY``).
AVRO_SCHEMA: Final = "avro.schema"

#: Keys that mean something else in a Parquet file of ours.
_RESERVED: Final = ("rpq.", "ARROW:schema")
#: Pairs of keys and values.
Pairs = Mapping[str, bytes]


class ValueType(StrEnum):
    """The type of the values of a column. Avro has no fixed8, fixed16 and timestamp, Impala no null."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FIXED8 = "fixed8"
    FIXED16 = "fixed16"
    FIXED32 = "fixed32"
    FIXED64 = "fixed64"
    FLOAT = "float"
    DOUBLE = "double"
    TIMESTAMP = "timestamp"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class ColumnMetadata:
    """What a column says of itself, with what the file says for all of them."""

    name: str
    type: ValueType
    codec: TrevniCodec = TrevniCodec.NULL
    checksum: Checksum = Checksum.NULL
    is_array: bool = False
    parent: str | None = None  # The array column in whose elements the values lie
    has_first_values: bool = False
    max_definition_level: int = 0  # Where it is above 0, blocks have levels instead of lengths
    max_repetition_level: int = 0

    @property
    def where(self) -> Where:
        """The column, for messages."""
        return Where(column=self.name)

    @classmethod
    def of(cls, pairs: Pairs, defaults: Pairs) -> ColumnMetadata:
        """The metadata of a column; codec and checksum are those of the file unless it names its own."""
        name = _text(pairs, NAME)
        if name is None:
            raise FormatError("a column has no name")
        where = Where(column=name)
        kind = _text(pairs, TYPE)
        if kind not in list(ValueType):
            raise UnsupportedError(f"values of the type {kind!r} are not supported", where=where)
        column = cls(
            name=name,
            type=ValueType(kind),
            codec=TrevniCodec.named(_text(pairs, CODEC) or _text(defaults, CODEC), where),
            checksum=Checksum.named(_text(pairs, CHECKSUM) or _text(defaults, CHECKSUM), where),
            is_array=ARRAY in pairs,
            parent=_text(pairs, PARENT),
            has_first_values=VALUES in pairs,
            max_definition_level=_level(pairs, DEFINITION, where),
            max_repetition_level=_level(pairs, REPETITION, where),
        )
        column._check()
        return column

    @property
    def has_levels(self) -> bool:
        """Whether the blocks have levels, as in the draft's dialect."""
        return self.max_definition_level > 0

    def _check(self) -> None:
        """Refuse levels together with lengths, first values of arrays, and levels that cannot be."""
        nested = self.is_array or self.parent is not None
        if nested and (self.has_levels or self.max_repetition_level):
            raise FormatError("the column has levels as well as lengths", where=self.where)
        if self.max_repetition_level > self.max_definition_level:
            raise FormatError("the column has a repetition level above its definition level", where=self.where)
        if self.has_first_values and (nested or self.has_levels):
            raise FormatError("only columns of one value in each row have first values", where=self.where)


def _text(pairs: Pairs, key: str) -> str | None:
    """The value of a key; bytes that are no UTF-8 are shown as they would be written in a program."""
    value = pairs.get(key)
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _level(pairs: Pairs, key: str, where: Where) -> int:
    text = pairs.get(key, b"0")
    if not text.isdigit() or len(text) > 9:
        raise FormatError(f"{key} is {text!r}, which is no level", where=where)
    level = int(text)
    if level > MAX_LEVEL:
        raise UnsupportedError(f"{key} is {level}; more than {MAX_LEVEL} levels are not supported", where=where)
    return level


def text_metadata(pairs: Pairs) -> dict[str, str]:
    """Pairs as text: values that are no UTF-8 are in base64, under a key that says so. Keys of our own are left out."""
    found = {}
    for name, value in pairs.items():
        if name.startswith(_RESERVED):
            continue
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            found[f"{name}.base64"] = base64.b64encode(value).decode()
    return found
