"""The key ``ARROW:schema``, which refines the Parquet schema alone: what in it is damaged or differs is passed over."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final

from nanoarrow.c_array_stream import CArrayStream
from nanoarrow.ipc import StreamWriter

from resilient_pq.arrow.types.field import PLAIN_FORMATS, Field, plain_format
from resilient_pq.arrow.types.ipc_schema import SchemaMessage, is_whole
from resilient_pq.format import kernels

ARROW_SCHEMA_KEY: Final = "ARROW:schema"
#: Metadata of a column, or an element of one: the form of its type, of which the plain one is stored.
_FORM_KEY: Final = b"rpq.form"
#: The same of a dictionary within a column: the format of its indices, and whether its order means something.
_DICTIONARY_KEY: Final = b"rpq.dictionary"
_FORM_KEYS: Final = (_FORM_KEY, _DICTIONARY_KEY)
_DICTIONARY: Final = re.compile("([cCsSiIlL])(:ordered)?")
_DIGITS: Final = {32: 9, 64: 18, 256: 76}  # The digits that decimals of each width have at most


def encode_arrow_schema(arrow: object) -> str:
    """The value to store under ``ARROW:schema``: the base64 of an encapsulated IPC schema message."""
    # Dictionaries are stored as pyarrow stores them. Of those within lists and structs, of which pyarrow 26 reads one
    # row group at most, of views, list views and narrow decimals the plain types are stored, with metadata that say
    # what they were: pyarrow 14 opens no file with a view in this place, pyarrow 17 none with a narrow decimal, and
    # Polars 2.1 ends with a panic at a list view. Metadata of the schema itself stay in it: pyarrow looks for those of
    # pandas here and nowhere else.
    schema = replace(_in_plain_forms(Field.of(arrow)), nullable=False).to_c()
    message = io.BytesIO()
    writer = StreamWriter.from_writable(message)
    writer.write_stream(CArrayStream.from_c_arrays([], schema, validate=False))
    writer.release()  # without the end of a stream: the message is all that is wanted
    return base64.b64encode(message.getvalue()).decode("ascii")


def _in_plain_forms(field: Field, depth: int = 0) -> Field:
    """The field as every version of pyarrow reads it; `_in_its_form` is the inverse."""
    values = field.dictionary or field
    plain = plain_format(values)
    metadata = field.metadata
    if plain != values.format:
        form = str(values.decimal[2]) if values.kind == "d" else values.kind
        metadata = (*metadata, (_FORM_KEY, form.encode()))
    values = replace(values, format=plain, children=tuple(_in_plain_forms(each, depth + 1) for each in values.children))
    if field.dictionary is None:
        return replace(values, metadata=metadata)
    if depth <= 1:  # a column
        return replace(field, dictionary=values, metadata=metadata)
    indices = field.format + (":ordered" if field.ordered else "")
    metadata = (*metadata, (_DICTIONARY_KEY, indices.encode()))
    return replace(values, name=field.name, nullable=field.nullable, metadata=metadata)


def _in_its_form(stored: Field) -> Field:
    said = {key: value.decode("ascii", "replace") for key, value in stored.metadata if key in _FORM_KEYS}
    if not said:
        return stored
    form, values = said.get(_FORM_KEY, ""), stored.dictionary or stored
    if PLAIN_FORMATS.get(form) == values.format:
        values = replace(values, format=form)
    elif values.kind == "d" and form in ("32", "64"):
        precision, scale, _ = values.decimal
        values = replace(values, format=f"d:{precision},{scale},{form}")
    indices = _DICTIONARY.fullmatch(said.get(_DICTIONARY_KEY, ""))
    if stored.dictionary is not None:
        stored = replace(stored, dictionary=values)
    elif indices is not None:
        stored = replace(values, format=indices[1], children=(), dictionary=values, ordered=indices[2] is not None)
    else:
        stored = values
    return replace(stored, metadata=tuple(pair for pair in stored.metadata if pair[0] not in _FORM_KEYS))


def is_stored_schema(text: str, num_columns: int) -> bool:
    """Whether the value of the key is one to every library, and has fields. Some refuse a file in which it is not."""
    try:
        message = base64.b64decode(text, validate=True)
        return is_whole(message) and bool(SchemaMessage(message).num_columns or not num_columns)
    except ValueError:
        return False


class StoredFields:
    """What a value of the key says of the columns of a file, which have these names."""

    def __init__(self, text: str | None, names: list[str]) -> None:
        self._names = names
        self._message = _decode(text) if text else None

    def alike(self, positions: Sequence[int], alike: Sequence[int]) -> list[list[int]]:
        """The columns at some positions, those together that have one number in `alike`: they differ in names alone."""
        stored = [0] * len(self._names)
        if self._message is not None:
            known = kernels.alike_fields is not None and self._message.num_columns == len(stored)
            stored = kernels.alike_fields(*self._message.listed, self._names) if known else [-1] * len(stored)
        groups: dict[tuple[int, int], list[int]] = {}
        for position in positions:
            same = stored[position]
            groups.setdefault((-1, position) if same < 0 else (alike[position], same), []).append(position)
        return list(groups.values())

    def of(self, position: int) -> Field | None:
        """The stored field of a column, by its position where names are equal too, else by its name; None for none."""
        if self._message is None:
            return None
        field = self._message.column(position) if position < self._message.num_columns else None
        return (
            field
            if field is not None and field.name == self._names[position]
            else self._by_name.get(self._names[position])
        )

    @cached_property
    def _by_name(self) -> dict[str, Field | None]:
        """The stored fields by their names, None for names that several have."""
        by_name: dict[str, Field | None] = {}
        for field in map(self._message.column, range(self._message.num_columns)) if self._message else ():
            if field is not None:
                by_name[field.name] = None if field.name in by_name else field
        return by_name


def _decode(text: str) -> SchemaMessage | None:
    try:
        return SchemaMessage(base64.b64decode(text, validate=True))
    except ValueError:  # binascii's error is one
        return None


def refined(derived: Field, stored: Field) -> Field | None:
    """The field of a column as its writer had it, None where that is not a form of what Parquet says."""
    stored = _in_its_form(stored)
    if stored.dictionary is not None:
        return _refined_dictionary(derived, stored, stored.dictionary)
    format = _refined_format(derived, stored)
    children = _refined_children(derived, stored, by_position=derived.kind != "+s")
    if format is None or children is None:
        return None
    # Field ids of the file go before those that were stored.
    metadata = tuple({**dict(stored.metadata), **dict(derived.metadata)}.items())
    if (format, children, metadata, stored.keys_sorted) == (
        derived.format,
        derived.children,
        derived.metadata,
        derived.keys_sorted,
    ):
        return derived
    return replace(derived, format=format, children=children, metadata=metadata, keys_sorted=stored.keys_sorted)


def _refined_dictionary(derived: Field, stored: Field, values: Field) -> Field | None:
    """A dictionary of leaves that are told apart by their bytes; nested ones, and those of booleans, are plain."""
    plain = refined(derived, replace(values, metadata=stored.metadata))
    if plain is None or plain.children or plain.kind in ("b", "n", "ti"):
        return plain
    dictionary = replace(plain, name="", metadata=())
    return replace(plain, format=stored.format, dictionary=dictionary, ordered=stored.ordered)


def _refined_format(derived: Field, stored: Field) -> str | None:
    format = derived.format if derived.format == stored.format else None
    match derived.kind, stored.kind:
        case ("u", "U" | "vu") | ("z", "Z" | "vz") | ("tdD", "tdm") | ("l", "tD") | ("+l", "+L" | "+w" | "+vl" | "+vL"):
            format = stored.format
        case "d", "d" if derived.decimal[:2] == stored.decimal[:2]:
            fits = derived.decimal[0] <= _DIGITS.get(stored.decimal[2], 0)
            format = stored.format if fits else derived.format
        case "tt", "tt" if (derived.unit, stored.unit) == ("ms", "s"):
            format = stored.format
        case "ts", "ts" if bool(derived.parameter) == bool(stored.parameter):
            # Some writers change the unit: the file's own holds. The zone is the writer's.
            seconds = (derived.unit, stored.unit) == ("ms", "s")
            format = stored.format if seconds else f"{derived.format[:3]}:{stored.parameter}"
    return format


def _refined_children(derived: Field, stored: Field, *, by_position: bool) -> tuple[Field, ...] | None:
    if len(derived.children) != len(stored.children):
        return None
    children = []
    for ours, theirs in zip(derived.children, stored.children, strict=True):
        if ours.name != theirs.name and not by_position:
            return None
        if derived.kind == "+m":
            # The entries of a map: its key and value, too, go by position.
            entry = _refined_children(ours, theirs, by_position=True)
            child = None if entry is None else ours.with_children(*entry)
        else:
            child = refined(ours, theirs)
        if child is None:
            return None
        children.append(replace(child, name=theirs.name))
    return tuple(children)
