"""The schema for a damaged file without one: from a sibling, or from the caller. An async shell.

The usual damaged file lies in a folder of hundreds that one program wrote. Any other of them has the columns, keys such
as ``ARROW:schema`` or those of pandas, and the usual codecs and encodings, which helps where only pages are left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY
from resilient_pq.errors import FormatError, RecoveryError, SchemaError, StoreError, UnsupportedError, Where, located
from resilient_pq.format.file_metadata import ColumnOrder, FileMetaData, KeyValue, RowGroup
from resilient_pq.format.footer import key_values
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.recovery.damaged_object import DamagedObject, open_source
from resilient_pq.recovery.evidence.footers.footer_search import find_footer
from resilient_pq.recovery.evidence.identify import identify
from resilient_pq.recovery.report import Damage, Finding

#: Keys of ours speak of the one file that they stand in.
_OWN_KEYS = "rpq."
_TEXT = "it is written as `rpq inspect FILE --schema` shows it: message m { required int64 id; }"
_NOT_A_FILE = "a Parquet file with the schema is named by --schema-from (schema_from)"
_NO_SIBLING = "name another file of the same folder (--schema-from), or give the schema as text (--schema)"


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A schema, and what is known with it."""

    schema: Schema  # The columns
    origin: str  # Where it comes from, for people
    # Key-value metadata that files with this schema have; without those that are about one file
    key_value: Mapping[str, str | None] = field(default_factory=dict)
    created_by: str | None = None  # Maker of such files; None where it is not known
    # How minima and maxima are ordered; None where it is not known
    column_orders: tuple[ColumnOrder, ...] | None = None
    # Rows that its row groups have; those of a damaged file of the same make are likely to have as many
    row_counts: frozenset[int] = frozenset()
    findings: tuple[Finding, ...] = ()  # What is wrong with the sibling that it was taken from

    @property
    def metadata(self) -> FileMetaData:
        """The same as file metadata without row groups."""
        return FileMetaData(
            1,
            self.schema.to_elements(),
            0,
            [],
            [KeyValue(key, value) for key, value in self.key_value.items()] or None,
            self.created_by,
            None if self.column_orders is None else list(self.column_orders),
        )


async def known_schema(
    *,
    schema: object | None = None,
    schema_from: Location | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> KnownSchema | None:
    """The schema that a caller gives, directly or as that of another file; None for none."""
    if schema is not None and schema_from is not None:
        raise RecoveryError("the schema is given twice", hint="pass schema or schema_from, not both")
    if schema_from is not None:
        return await schema_of_sibling(schema_from, storage_options)
    return None if schema is None else given_schema(schema)


#: Of files that may have the same columns, so many are looked at; few of many are damaged.
_MOST_SIBLINGS = 8


class Siblings:
    """Files that are likely to have the same columns, the likeliest first; they are read only when needed."""

    def __init__(self, locations: Sequence[Location] = (), storage_options: Mapping[str, Any] | None = None) -> None:
        self._locations = tuple(locations[:_MOST_SIBLINGS])
        self._storage_options = storage_options
        self._found: list[KnownSchema] | None = None

    async def schemas(self) -> Sequence[KnownSchema]:
        """Their distinct schemas, the likeliest first, without files that are damaged or gone."""
        if self._found is None:
            self._found = []
            for location in self._locations:
                known = await self._of(location)
                if known is not None and all(known.schema != other.schema for other in self._found):
                    self._found.append(known)
        return self._found

    async def _of(self, location: Location) -> KnownSchema | None:
        """The schema of a file whose footer is whole."""
        try:
            async with await open_source(location, self._storage_options) as source:
                contents = await source.contents()
                return _of_contents(contents, source.url) if isinstance(contents, Contents) else None
        except (StoreError, UnsupportedError):
            return None


def given_schema(schema: object) -> KnownSchema:
    """The schema that a caller gives as a Parquet schema, its text, an Arrow schema, or Arrow data."""
    if isinstance(schema, Schema):
        return KnownSchema(schema.without_empty_groups(), "the schema that was given")
    if isinstance(schema, str):
        return KnownSchema(_parsed(schema), "the text that was given")
    if hasattr(schema, "__arrow_c_schema__"):
        ingest = Ingest.from_schema(schema)
    elif hasattr(schema, "__arrow_c_stream__") or hasattr(schema, "__arrow_c_array__"):
        ingest, _ = Ingest.infer(schema)
    else:
        hint = "pass its text, a Parquet or an Arrow schema, or Arrow data"
        if isinstance(schema, os.PathLike):
            hint = "a file with the schema is passed as schema_from"
        raise SchemaError(f"an object of type {type(schema).__name__} is no schema", hint=hint)
    key_value = {**ingest.metadata, ARROW_SCHEMA_KEY: ingest.encoded_schema}
    return KnownSchema(ingest.schema, "the Arrow schema that was given", key_value)


def _parsed(text: str) -> Schema:
    try:
        return Schema.parse(text).without_empty_groups()
    except SchemaError as error:
        if error.hint is None:
            error.hint = _TEXT if "{" in text else f"{_TEXT}; {_NOT_A_FILE}"
        raise


async def schema_of_sibling(location: Location, storage_options: Mapping[str, Any] | None = None) -> KnownSchema:
    """The schema of another file that the same program wrote, or of the summary of its folder.

    Only its footer is read. Of a damaged sibling a checkpoint, an anchor or a torn footer has the schema.
    """
    async with await open_source(location, storage_options) as source:
        with located(Where(key=source.url)):
            contents = await source.contents()
            if isinstance(contents, Contents):
                return _of_contents(contents, source.url)
            return await _of_damaged(source, contents)


async def _of_damaged(source: DamagedObject, error: FormatError) -> KnownSchema:
    where = Where(key=source.url)
    survey = await source.survey()
    if survey.footer is not None:
        metadata = survey.footer.metadata
        schema = Schema.from_elements(metadata.schema).without_empty_groups()
        row_groups = [*metadata.row_groups, *(found.row_group for found in survey.row_groups.values())]
        return _known(schema, metadata, row_groups, source.url, (_damaged(error.message, where),))
    found = await source.drive(find_footer(source.info.size))
    if found is not None:
        findings = tuple(_damaged(finding.message, where) for finding in found.findings)
        metadata = found.contents.metadata
        return _known(found.contents.schema, metadata, metadata.row_groups, source.url, findings)
    identity = await source.drive(identify(source.info.size))
    raise RecoveryError(
        f"it does not tell its schema: {identity.sentence}, and {error.message}", where=where, hint=_NO_SIBLING
    ) from error


def _damaged(message: str, where: Where) -> Finding:
    return Finding(
        Damage.CORRUPT, f"the file that the schema comes from is damaged itself: {message}", where, costs_rows=False
    )


def _of_contents(contents: Contents, url: str) -> KnownSchema:
    return _known(contents.schema, contents.metadata, contents.metadata.row_groups, url, ())


def _known(
    schema: Schema, metadata: FileMetaData, row_groups: Sequence[RowGroup], url: str, findings: tuple[Finding, ...]
) -> KnownSchema:
    pairs = key_values(metadata.key_value_metadata)
    orders = metadata.column_orders
    return KnownSchema(
        schema,
        url,
        {key: value for key, value in pairs.items() if not key.startswith(_OWN_KEYS)},
        metadata.created_by,
        None if orders is None else tuple(orders),
        frozenset(row_group.num_rows for row_group in row_groups),
        findings,
    )
