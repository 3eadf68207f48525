"""DuckDB and Polars read any table of ours, nested in any way, with the values that were written; and we theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sampled import in_both_suites

from resilient_pq.arrow.types.arrow_schema import schema_from_arrow
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.schema_tree import Leaf

Draw = st.DataObject
Choice = tuple[pa.DataType, st.SearchStrategy[Any]]
quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


def _leaves(leaf_of: Callable[[pa.DataType], Choice]) -> list[Choice]:
    """Types that both have, with values that both can hold.

    Durations, seconds, zones by name and the like are kept under ``ARROW:schema``, which not all read: the tests
    of interoperability have them.
    """
    kinds = [
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(5),
        pa.dictionary(pa.int8(), pa.string()), pa.decimal128(9, 2), pa.decimal128(38, 10),
    ]  # fmt: skip
    moderate = st.integers(-(2**50), 2**50)
    return [
        *map(leaf_of, kinds),
        # One NaN only: DuckDB takes those of other bits for the same.
        (pa.float32(), st.floats(width=32).map(lambda x: int(np.float32(x).view(np.uint32)))),
        (pa.float64(), st.floats().map(lambda x: int(np.float64(x).view(np.uint64)))),
        (pa.date32(), st.integers(-100_000, 100_000)),
        (pa.time64("us"), st.integers(0, 86_399_999_999)),
        *((pa.timestamp(unit, zone), moderate) for unit in ("ms", "us") for zone in (None, "UTC")),
    ]


def _by_duckdb(path: Path) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()


def _by_polars(path: Path) -> pa.Table:
    try:
        return pl.read_parquet(path).to_arrow()
    except pl.exceptions.PanicException as error:  # no Exception to Python
        raise AssertionError(str(error)) from None


def _duckdb_cannot_decode(leaf: Leaf, encoding: str) -> bool:
    return leaf.node.physical_type is Type.FIXED_LEN_BYTE_ARRAY and encoding == "BYTE_STREAM_SPLIT"


def _polars_cannot_decode(leaf: Leaf, encoding: str) -> bool:
    """Besides what it refuses: pages without values of a required leaf below a null, which end in a panic."""
    if leaf.node.physical_type is Type.FIXED_LEN_BYTE_ARRAY:
        return encoding in ("BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY")
    required = leaf.node.repetition is Repetition.REQUIRED and leaf.max_definition_level > 0
    return required and (encoding == "BYTE_STREAM_SPLIT" or encoding.startswith("DELTA_"))


def _polars_cannot_nest(kind: pa.DataType) -> bool:
    """Lists of fixed size in anything else: it ends in a panic, or gives other values."""
    below = [kind.field(at).type for at in range(kind.num_fields)]
    return any(pa.types.is_fixed_size_list(each) or _polars_cannot_nest(each) for each in below)


@dataclass(frozen=True)
class Peer:
    """A library that reads nested tables."""

    read: Callable[[Path], pa.Table]  # A file as an Arrow table
    cannot_decode: Callable[[Leaf, str], bool]  # Whether it does not read a leaf in an encoding, whoever wrote it
    cannot_nest: Callable[[pa.DataType], bool] = lambda kind: False  # Whether it does not read a type

    def encodings(self, schema: pa.Schema, drawn: dict[str, str]) -> dict[str, str]:
        """Those drawn, but for the ones that it cannot decode."""
        return {
            leaf.column_path: "PLAIN" if self.cannot_decode(leaf, drawn[leaf.column_path]) else drawn[leaf.column_path]
            for leaf in schema_from_arrow(schema).leaves
        }


PEERS = {
    "duckdb": Peer(_by_duckdb, _duckdb_cannot_decode),
    "polars": Peer(_by_polars, _polars_cannot_decode, _polars_cannot_nest),
}


@pytest.fixture(scope="session")
def read_by(
    tables: Any, leaf_of: Any, ways: Any, encodings: Any, written: Any, exact: Any, tmp_path_factory: Any
) -> Any:
    """Has a library read a table that is drawn."""

    def check(draw: Draw, peer: Peer) -> None:
        # Polars keeps the last of the pairs of a map whose keys are equal.
        table = draw.draw(tables(leaves=_leaves(leaf_of), unlike_keys=True))
        assume(not any(map(peer.cannot_nest, table.schema.types)))
        way = draw.draw(ways)
        way["encodings"] = peer.encodings(table.schema, draw.draw(encodings(table.schema)))
        path = tmp_path_factory.mktemp("any") / "any.parquet"
        path.write_bytes(written([table], table.schema, way))
        assert exact(peer.read(path)) == exact(table)
        path.unlink()

    return check


@in_both_suites
@pytest.mark.parametrize("name", PEERS)
@given(draw=st.data())
@settings(quick)
def test_any_table(draw: Draw, name: str, read_by: Any) -> None:
    read_by(draw, PEERS[name])


# --- the other way ------------------------------------------------------------------------------------------


def _write_by_duckdb(draw: Draw, table: pa.Table, path: Path) -> None:
    codec = draw.draw(st.sampled_from(["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"]))
    options = [
        "FORMAT parquet",
        f"COMPRESSION {codec}",
        f"PARQUET_VERSION {draw.draw(st.sampled_from(['v1', 'v2']))}",
        f"DICTIONARY_SIZE_LIMIT {draw.draw(st.sampled_from([1, 1000]))}",
    ]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("given_table", table)
        connection.execute(f"COPY given_table TO '{path}' ({', '.join(options)})")


def _write_by_polars(draw: Draw, table: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path,
        compression=draw.draw(st.sampled_from(["uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4"])),
        row_group_size=draw.draw(st.sampled_from([None, 1, 5])),
        data_page_size=draw.draw(st.sampled_from([None, 1, 100])),
        statistics=draw.draw(st.sampled_from([True, False, "full"])),
    )


WRITERS = {"duckdb": _write_by_duckdb, "polars": _write_by_polars}


@pytest.fixture(scope="session")
def read_theirs(tables: Any, leaf_of: Any, written: Any, read_back: Any, exact: Any, tmp_path_factory: Any) -> Any:
    """Has a library write a table that is drawn, and reads it."""

    def check(draw: Draw, name: str) -> None:
        table = draw.draw(tables(leaves=_leaves(leaf_of), unlike_keys=True))
        # As we give it back, with nothing below what is null.
        clean = read_back(written([table], table.schema, {}), restore_types=False)
        path = tmp_path_factory.mktemp("theirs") / "any.parquet"
        WRITERS[name](draw, clean, path)
        assert exact(read_back(path.read_bytes())) == exact(table)
        path.unlink()

    return check


@in_both_suites
@pytest.mark.parametrize("name", WRITERS)
@given(draw=st.data())
@settings(quick)
def test_theirs_are_read_too(draw: Draw, name: str, read_theirs: Any) -> None:
    read_theirs(draw, name)
