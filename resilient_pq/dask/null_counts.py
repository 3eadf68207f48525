"""What footers say of nulls, for the types that pandas would choose by the values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from resilient_pq.dask.frames import FrameTypes, is_by_nulls
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.indexes.trusted_bounds import chunk_statistics
from resilient_pq.reader.file import File

#: Integers up to this size are exact in floating point of 64 bits.
_EXACT: Final = 1 << 53


class Nulls:
    """Looks at the statistics of row groups, one by one."""

    def __init__(self, types: FrameTypes, *, damage_is_null: bool) -> None:
        self._types = types
        self._damage_is_null = damage_is_null
        self._kinds = {field.name: field.type for field in types.schema if is_by_nulls(field.type, types.backend)}
        self._with_nulls: set[str] = set()
        self._untold: set[str] = set()
        self._large: set[str] = set()

    def see(self, file: File, ordinal: int) -> None:
        """Take one more row group into account."""
        row_group = file.metadata.row_groups[ordinal]
        for name, kind in self._kinds.items():
            leaf = file.schema.leaf_named(name)
            if leaf is None:
                continue
            nullable = leaf.node.repetition is not Repetition.REQUIRED
            chunk = row_group.columns[leaf.ordinal].meta_data
            if chunk is None:
                self._untold.add(name)
                continue
            known = chunk_statistics(file.metadata, leaf, chunk)
            if nullable and (self._damage_is_null or known.null_count is None):
                self._untold.add(name)
            elif nullable and known.null_count:
                self._with_nulls.add(name)
            if pa.types.is_integer(kind) and kind.bit_width == 64 and not known.all_null:
                bounds = (known.low, known.high)
                if not all(bound is not None and abs(bound) <= _EXACT for bound in bounds):
                    self._large.add(name)

    def see_folders(self, values: Mapping[str, pa.Array]) -> None:
        """Take the columns into account that are in the names of folders, by their values for one file."""
        self._untold |= {name for name, value in values.items() if name in self._kinds and value.null_count}

    def applied(self) -> FrameTypes:
        """The types, settled."""
        nullable = self._untold | (self._with_nulls & self._large)
        rest = self._with_nulls - nullable
        booleans = {name for name in rest if pa.types.is_boolean(self._kinds[name])}
        return replace(
            self._types,
            nullable=frozenset(nullable),
            floats=frozenset(rest - booleans),
            objects=frozenset(booleans),
        )
