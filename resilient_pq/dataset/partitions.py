"""Rows split by the partitions they belong to, their order kept within each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.arrow.batch_ingest import BATCH_BYTES, Batch, Ingest
from resilient_pq.arrow.leaf_rows import LeafRows, ShreddedRows
from resilient_pq.dataset import hive
from resilient_pq.dataset.hive import transformed
from resilient_pq.format import kernels
from resilient_pq.format.levels import cut_rows
from resilient_pq.format.pages.row_selection import take_rows
from resilient_pq.format.physical_values import ByteArrays, LeafData
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.tables.partition_key import NULL, PartitionKey

#: What no dictionary reaches.
_ANY_BYTES: Final = 1 << 62


class Partitioning:
    """Splits the rows of one schema."""

    def __init__(self, whole: Ingest, keys: Sequence[PartitionKey], *, keep: bool = False) -> None:
        """Prepare to split; with `keep` the files have the columns that name partitions, too."""
        self.whole = whole  # Rows as they come, with the columns that name partitions
        self._leaves = list(zip(hive.partition_leaves(whole.schema, keys), keys, strict=True))
        left_out = [] if keep else [(leaf, key.column) for leaf, key in self._leaves if key.is_column]
        self.files = whole.without([column for _, column in left_out]) if left_out else whole
        named = {leaf.ordinal for leaf, _ in left_out}
        kept = (leaf.ordinal for leaf in whole.schema.leaves if leaf.ordinal not in named)
        #: The leaves of the files, each with its ordinal among all.
        self._kept = list(zip(self.files.schema.leaves, kept, strict=True))

    def split(self, batch: Batch) -> Iterator[list[tuple[str, Batch]]]:
        """The rows of each partition, by its name, in the order in which each first appears, in bounded pieces."""
        if not self._leaves:
            yield [("", batch)]
            return
        step = batch.num_rows
        if batch.num_bytes > BATCH_BYTES:
            step = max(1, batch.num_rows * BATCH_BYTES // batch.num_bytes)
        for start in range(0, batch.num_rows, step):
            yield self._split(batch.slice(start, min(start + step, batch.num_rows)))

    def _split(self, batch: Batch) -> list[tuple[str, Batch]]:
        codes, names = self._names(batch)
        if len(names) == 1:
            columns = [replace(batch.columns[ordinal], leaf=leaf) for leaf, ordinal in self._kept]
            return [(names[0], Batch.of(columns, batch.num_rows))]
        runs = np.flatnonzero(codes[1:] != codes[:-1]) + 1
        if len(runs) + 1 == len(names):  # each partition's rows stand together already
            borders = [0, *runs.tolist(), batch.num_rows]
            return self._pieces(batch, names, borders, None)
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes, minlength=len(names))
        return self._pieces(batch, names, [0, *np.cumsum(counts).tolist()], order)

    def _pieces(
        self, batch: Batch, names: Sequence[str], borders: Sequence[int], order: NDArray[np.int64] | None
    ) -> list[tuple[str, Batch]]:
        columns: list[list[LeafRows | ShreddedRows]] = []
        for leaf, ordinal in self._kept:
            rows = batch.columns[ordinal]
            if order is None and isinstance(rows, LeafRows) and rows.known is None:
                columns.append([replace(rows.slice(*ends), leaf=leaf) for ends in pairwise(borders)])
                continue
            data = rows.shredded() if order is None else take_rows(leaf, rows.shredded(), order)
            columns.append([ShreddedRows(leaf, piece) for piece in cut_rows(leaf, data, borders)])
        counts = (end - start for start, end in pairwise(borders))
        pieces = (Batch.of(leaves, count) for count, *leaves in zip(counts, *columns, strict=True))
        return list(zip(names, pieces, strict=True))

    def _names(self, batch: Batch) -> tuple[NDArray[Any], list[str]]:
        """For each row the number of its partition, and the name of each, in the order of their first rows."""
        columns = [_values(leaf, batch.columns[leaf.ordinal].shredded(), key) for leaf, key in self._leaves]
        parts = [_distinct(leaf, data) for (leaf, _), data in zip(self._leaves, columns, strict=True)]
        codes, first = parts[0]
        for more, _ in parts[1:]:
            count = int(more.max(initial=0)) + 1
            codes, first = _numbered(codes.astype(np.int64) * count + more)
        names: list[list[str]] = []
        for (leaf, key), data, (own, own_first) in zip(self._leaves, columns, parts, strict=True):
            texts = _segments(leaf, data, own_first, key)
            names.append([texts[code] for code in own[first].tolist()])
        return codes, ["/".join(parts) for parts in zip(*names, strict=True)]


def _distinct(leaf: Leaf, data: LeafData) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """For each row the number of its value, nulls among them, in the order of first appearance; first row of each."""
    values, limit = data.values, max(data.num_rows, 1)
    if isinstance(values, ByteArrays):
        found = kernels.dictionary_build_byte_arrays(values.offsets, values.data, limit, _ANY_BYTES)
    else:
        found = kernels.dictionary_build(values.astype(np.int32) if values.dtype == bool else values, limit)
    assert found is not None  # there are no more distinct values than rows
    numbers = found[0]
    if len(values) == data.num_rows:
        return found
    assert data.definition_levels is not None
    codes = np.full(data.num_rows, len(found[1]), np.int64)
    codes[data.definition_levels == leaf.max_definition_level] = numbers
    return _numbered(codes)


def _numbered(codes: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The same numbers from 0 on, in the order of first appearance, and where each appears first."""
    found = kernels.dictionary_build(codes, max(len(codes), 1))
    assert found is not None
    return found


def _values(leaf: Leaf, data: LeafData, key: PartitionKey) -> LeafData:
    return data if key.is_column else transformed(leaf, data, key)


def _segments(leaf: Leaf, data: LeafData, rows: NDArray[np.int64], key: PartitionKey) -> list[str]:
    """The names of folders for the values of some rows."""
    chosen = take_rows(leaf, data, rows)
    texts = iter(hive.segments(leaf, chosen.values, key))
    if len(chosen.values) == len(rows):
        return list(texts)
    assert chosen.definition_levels is not None
    has_value = (chosen.definition_levels == leaf.max_definition_level).tolist()
    return [next(texts) if each else f"{key.name}={NULL}" for each in has_value]
