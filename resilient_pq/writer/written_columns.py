"""What is worked out of a schema and of options before the first row of a file, and kept for the next file."""

from __future__ import annotations

from typing import Any, NamedTuple

from resilient_pq.format import kernels
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.flat_chunk import flat_writer
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.format.sorting import SortingColumn
from resilient_pq.writer.column_options import sorting_columns
from resilient_pq.writer.write_options import EncoderOptions


class WrittenColumns(NamedTuple):
    """How columns are written: worked out once for the files that have one schema and were given the same options."""

    options: EncoderOptions
    chunks: list[ChunkOptions]
    keep_dictionaries: list[bool]  # whether all chunks of a column have one or none
    sorting: list[tuple[Leaf, SortingColumn]]
    flat: Any  # the compiled writer of chunks of few rows, where there is one

    @classmethod
    def of(cls, schema: Schema, options: EncoderOptions) -> WrittenColumns:
        """As the file before, where it had the same schema and options."""
        key = "encoder", kernels.FlatWriter
        known: WrittenColumns | None = schema.made.get(key)
        if known is not None and known.options is options:
            return known
        chunks = options.chunk_options(schema)
        keep = [
            leaf.is_flat_text and chunk.keeps_dictionaries for leaf, chunk in zip(schema.leaves, chunks, strict=True)
        ]
        order = options.write.sorting_columns
        sorting = [] if order is None else sorting_columns(schema, order)
        flat = None if sorting or options.encryption is not None else flat_writer(schema, chunks)
        found = cls(options, chunks, keep, sorting, flat)
        if options.encryption is None:  # keys are not kept longer than their file
            schema.made[key] = found
        return found
