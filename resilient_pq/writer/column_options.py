"""Settings that name columns, checked against the schema, and what is worked out of them for its files. Pure."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from resilient_pq.errors import SchemaError
from resilient_pq.format import kernels
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.indexes.split_block_filter import FilterOptions
from resilient_pq.format.indexes.statistics import Order, order_of
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.flat_chunk import flat_writer
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.format.sorting import SortingColumn
from resilient_pq.writer.option_checks import check_key_values

if TYPE_CHECKING:
    from resilient_pq.writer.write_options import EncoderOptions

_DIRECTIONS = {"ascending": False, "descending": True}
_NULLS = {"at_start": True, "at_end": False}


def check_names(schema: Schema, setting: str, names: Collection[Any]) -> None:
    """Refuse names that are neither a leaf column's nor a top-level column's."""
    known = {leaf.column_path for leaf in schema.leaves} | set(schema.names)
    for name in names:
        if name not in known:
            raise SchemaError(f"{setting}: there is no column {name!r}", hint=f"columns: {', '.join(sorted(known))}")


def column_metadata(schema: Schema, given: Mapping[str, Mapping[str, str]] | None) -> list[tuple[tuple[str, str], ...]]:
    """The key-value metadata for the chunks of each leaf column."""
    known = given or {}
    check_names(schema, "column_metadata", known)
    for pairs in known.values():
        if not isinstance(pairs, Mapping):
            raise SchemaError(f"column_metadata has {pairs!r} where a dict should be")
        check_key_values("column_metadata", pairs)
    return [tuple(known.get(leaf.column_path, known.get(leaf.path[0], {})).items()) for leaf in schema.leaves]


def bloom_filters(schema: Schema, given: Mapping[str, Any] | Sequence[str] | None) -> list[FilterOptions | None]:
    """How the bloom filters of each leaf column are sized; None for those that get none."""
    if isinstance(given, str):
        raise SchemaError("bloom_filter_options is one string", hint=f"bloom_filter_options=[{given!r}]")
    if not isinstance(given, Mapping):
        given = dict.fromkeys(given or (), True)
    check_names(schema, "bloom_filter_options", given)
    wanted = {name: _filter_options(name, options) for name, options in given.items()}
    return [_filter_of(leaf, wanted) for leaf in schema.leaves]


def _filter_of(leaf: Leaf, wanted: Mapping[str, FilterOptions | None]) -> FilterOptions | None:
    boolean = leaf.node.physical_type is Type.BOOLEAN
    if leaf.column_path in wanted:
        if boolean and wanted[leaf.column_path] is not None:
            raise SchemaError(f"column {leaf.column_path!r}: BOOLEAN columns have no bloom filters")
        return wanted[leaf.column_path]
    return None if boolean else wanted.get(leaf.path[0])


def _filter_options(name: str, options: Any) -> FilterOptions | None:
    if options is None or options is False:
        return None
    if options is True:
        return FilterOptions()
    if not isinstance(options, Mapping) or not {*options} <= {"ndv", "fpp"}:
        raise SchemaError(f"bloom_filter_options of {name!r} are {options!r}; they are a dict of ndv and fpp")
    ndv, fpp = options.get("ndv"), options.get("fpp", FilterOptions().fpp)
    if ndv is not None:
        try:
            ndv = operator.index(ndv)
        except TypeError:
            raise SchemaError(f"ndv of {name!r} is {ndv!r}; it is a number of values") from None
        if ndv < 1:
            raise SchemaError(f"ndv of {name!r} is {ndv}; it must be at least 1")
    if not isinstance(fpp, float | int) or not 0 < fpp < 1:
        raise SchemaError(f"fpp of {name!r} is {fpp!r}; it is a share between 0 and 1, 0.01 for 1 %")
    return FilterOptions(ndv, float(fpp))


def sorting_columns(schema: Schema, given: Sequence[Any] | None) -> list[tuple[Leaf, SortingColumn]]:
    """The sort order that a caller declares, with the leaves."""
    if isinstance(given, str | SortingColumn):
        raise SchemaError("sorting_columns is one column; it is a list of them")
    found: list[tuple[Leaf, SortingColumn]] = []
    for entry in given or ():
        column = _sorting_column(schema, entry)
        leaf = schema.leaf_named(column.column)
        if leaf is None:
            names = ", ".join(known.column_path for known in schema.leaves)
            raise SchemaError(f"sorting_columns: there is no column {column.column!r}", hint=f"columns: {names}")
        if leaf.max_repetition_level or order_of(leaf.node) is Order.UNDEFINED or _is_odd_decimal(leaf):
            raise SchemaError(f"sorting_columns: rows cannot be sorted by column {column.column!r}")
        if any(leaf is known for known, _ in found):
            raise SchemaError(f"sorting_columns names column {column.column!r} twice")
        found.append((leaf, column))
    return found


def _is_odd_decimal(leaf: Leaf) -> bool:
    """Whether values are decimals of any length, which `is_sorted` does not compare."""
    return leaf.node.physical_type is Type.BYTE_ARRAY and order_of(leaf.node) is Order.SIGNED_BYTES


def _sorting_column(schema: Schema, entry: Any) -> SortingColumn:
    """One column of the order, in any of the forms that are taken."""
    match entry:
        case SortingColumn():
            return entry
        case str():
            return SortingColumn(entry)
        case (str(name), direction) if direction in _DIRECTIONS:
            return SortingColumn(name, _DIRECTIONS[direction])
        case (str(name), direction, nulls) if direction in _DIRECTIONS and nulls in _NULLS:
            return SortingColumn(name, _DIRECTIONS[direction], _NULLS[nulls])
        case object(column_index=int(index), descending=bool(descending), nulls_first=bool(nulls_first)):
            if not 0 <= index < len(schema.leaves):  # pyarrow's
                raise SchemaError(f"sorting_columns: there is no column {index}")
            return SortingColumn(schema.leaves[index].column_path, descending, nulls_first)
        case _:
            raise SchemaError(
                f"sorting_columns: {entry!r} is no column of a sort order",
                hint='a name, ("name", "descending"), ("name", "ascending", "at_start") or a SortingColumn',
            )


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
