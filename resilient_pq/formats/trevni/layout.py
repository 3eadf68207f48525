"""The layout of a file: by its Avro schema, by its levels, or by the names of its columns."""

from __future__ import annotations

from resilient_pq.errors import FormatError, SchemaError
from resilient_pq.format.schema import Schema
from resilient_pq.formats.trevni import avro_schema, column_names, dremel, shape
from resilient_pq.formats.trevni.header import Header
from resilient_pq.formats.trevni.metadata import AVRO_SCHEMA
from resilient_pq.formats.trevni.shape import Layout


def layout_of(header: Header, schema: Schema | None) -> tuple[Layout, str | None]:
    """The layout of a file, and why the Avro schema that it has was passed over, where it was."""
    columns = header.columns
    if any(column.has_levels for column in columns):
        mixed = next((column for column in columns if column.is_array or column.parent is not None), None)
        if mixed is not None:
            raise FormatError("the column has lengths, and others have levels", where=mixed.where)
        return dremel.layout_of(columns, schema), None
    if schema is not None:
        raise SchemaError(
            "a schema can be passed only for files whose columns have levels",
            hint="this one tells its schema itself",
        )
    note = None
    if AVRO_SCHEMA in header.metadata:
        try:
            return shape.layout_of(avro_schema.record_of(header.metadata[AVRO_SCHEMA], columns)), None
        except avro_schema.MismatchError as error:
            note = f"the Avro schema of the file was passed over, and the names of the columns taken: {error}"
    return shape.layout_of(column_names.record_of(columns)), note
