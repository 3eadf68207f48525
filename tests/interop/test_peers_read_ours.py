"""Other libraries read our files in full, and every prefix that ends with a checkpoint, with equal values."""

from __future__ import annotations

import decimal
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fastparquet  # type: ignore[import-untyped]
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import WriteOptions

WriteFile = Callable[..., Any]

LAYOUTS: dict[str, dict[str, Any]] = {
    "usual": {},
    "pages v2": {"options": WriteOptions(data_page_version="2.0")},
    "tiny pages": {"options": WriteOptions(page_rows=3), "page_bytes": 64, "encodings": "PLAIN"},
    "tiny pages v2": {"options": WriteOptions(page_rows=5, data_page_version="2.0"), "compression": "snappy"},
    "no dictionaries": {"options": WriteOptions(dictionary_bytes=0), "compression": "none"},
    "only dictionaries": {
        "options": WriteOptions(page_rows=7),
        "encodings": {
            "string": "RLE_DICTIONARY",
            "float64": "RLE_DICTIONARY",
            "required_int": "RLE_DICTIONARY",
        },
    },
    "no statistics": {"options": WriteOptions(statistics=False)},
    "parity": {"parity": "20%"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.ways_in_quick(16)
def test_whole_file(write_file: WriteFile, every_type: pa.Table, peer: Any, layout: str, tmp_path: Path) -> None:
    _skip_several_pages_v2(peer, layout)
    path = tmp_path / "whole.parquet"
    table = every_type
    if layout == "pages v2" and not peer.nested_pages_v2:
        flat = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
        table = table.select(flat)
    path.write_bytes(write_file(table, **LAYOUTS[layout]).data)
    _assert_reads(peer, path, table)


@pytest.mark.thorough
def test_gaps_of_ten_megabytes(write_file: WriteFile, peer: Any, tmp_path: Path) -> None:
    """Parity lies between row groups, and before the footer."""
    draw = np.random.default_rng(1)
    table = pa.table({"binary": [draw.bytes(3_000) for _ in range(15_000)], "int64": np.arange(15_000)})
    data = write_file(table, parity="50%", row_group_rows=1_800, checkpoint_every=None).data
    places = pq.read_metadata(io.BytesIO(data)).metadata[b"rpq.parity"].split(b",")
    assert len(places) >= 2 and int(places[0].split(b":")[1]) > 10 << 20
    (tmp_path / "gaps.parquet").write_bytes(data)
    _assert_reads(peer, tmp_path / "gaps.parquet", table)


def _skip_several_pages_v2(peer: Any, layout: str) -> None:
    if layout == "tiny pages v2" and not peer.nested_pages_v2:
        pytest.skip("it cannot read chunks of several data pages v2, whoever wrote them")


def _assert_reads(peer: Any, path: Path, expected: pa.Table) -> None:
    names = peer.can_read(expected.column_names)
    found = peer.read(path, names)
    for name in names:
        assert found[name] == peer.expected(expected, name), name


@pytest.mark.parametrize("layout", ["usual", "tiny pages v2"])
def test_every_checkpoint_is_a_file(
    write_file: WriteFile, every_type: pa.Table, peer: Any, layout: str, tmp_path: Path
) -> None:
    _skip_several_pages_v2(peer, layout)
    ours = write_file(every_type, **LAYOUTS[layout])
    prefixes = ours.prefixes
    assert [prefix.num_rows for prefix in prefixes] == [0, 16, 32, 48, 64]
    for prefix in prefixes[1:]:
        path = tmp_path / f"{prefix.num_rows}.parquet"
        path.write_bytes(ours.data[: prefix.size])
        _assert_reads(peer, path, every_type.slice(0, prefix.num_rows))


def test_the_anchor_is_an_empty_file(write_file: WriteFile, every_type: pa.Table, tmp_path: Path) -> None:
    ours = write_file(every_type)
    path = tmp_path / "anchor.parquet"
    path.write_bytes(ours.data[: ours.prefixes[0].size])
    empty = pq.read_table(path)
    whole = pq.read_table(io.BytesIO(ours.data))
    assert empty.num_rows == 0 and empty.schema.equals(whole.schema)
    assert pl.read_parquet(path).schema == pl.read_parquet(io.BytesIO(ours.data)).schema
    assert duckdb.execute(f"SELECT * FROM read_parquet('{path}')").fetchall() == []
    assert fastparquet.ParquetFile(str(path)).count() == 0


def test_prefixes_between_sparse_checkpoints(write_file: WriteFile, every_type: pa.Table, tmp_path: Path) -> None:
    ours = write_file(every_type, row_group_rows=5, checkpoint_every=4)
    assert [prefix.num_rows for prefix in ours.prefixes] == [0, 20, 40, 60]
    for prefix in ours.prefixes:
        found = pq.read_table(io.BytesIO(ours.data[: prefix.size]))
        assert found.num_rows == prefix.num_rows
        assert pq.read_metadata(io.BytesIO(ours.data[: prefix.size])).num_row_groups == prefix.num_rows // 5


def test_row_groups_one_by_one(write_file: WriteFile, every_type: pa.Table, plain: Any) -> None:
    data = write_file(every_type).data
    file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
    for ordinal in range(file.num_row_groups):
        found = file.read_row_group(ordinal)
        expected = every_type.slice(16 * ordinal, 16)
        for name in every_type.column_names:
            assert plain(found[name]) == plain(expected[name]), (ordinal, name)


def test_row_groups_one_by_one_in_fastparquet(write_file: WriteFile, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(write_file(pa.table({"a": pa.array(range(40)), "b": [f"v{i}" for i in range(40)]})).data)
    file = fastparquet.ParquetFile(str(path))
    groups = list(file.iter_row_groups())
    assert [list(frame["a"]) for frame in groups] == [
        list(range(16)),
        list(range(16, 32)),
        list(range(32, 40)),
    ]
    assert list(file[1].to_pandas()["b"]) == [f"v{i}" for i in range(16, 32)]


def test_projected_columns(write_file: WriteFile, every_type: pa.Table, peer: Any, tmp_path: Path) -> None:
    path = tmp_path / "projected.parquet"
    path.write_bytes(write_file(every_type).data)
    for name in peer.can_read(every_type.column_names):
        assert peer.read(path, [name])[name] == peer.expected(every_type, name), name


def test_fields_of_a_struct_alone(write_file: WriteFile, every_type: pa.Table) -> None:
    data = write_file(every_type).data
    found = pq.ParquetFile(io.BytesIO(data)).read(columns=["struct.b"])
    rows = every_type["struct"].to_pylist()
    assert found["struct"].to_pylist() == [None if row is None else {"b": row["b"]} for row in rows]


def test_wide_decimals(write_file: WriteFile, tmp_path: Path) -> None:
    values = [decimal.Decimal(10**75 - 1).scaleb(-20), None, decimal.Decimal(-(10**75)).scaleb(-20)]
    table = pa.table({"decimal": pa.array(values, pa.decimal256(76, 20))})
    path = tmp_path / "wide.parquet"
    path.write_bytes(write_file(table, row_group_rows=2).data)
    assert pq.read_table(path).equals(table)
    # DuckDB's decimals end at 38 digits, Polars' too, and it refuses the file.
    found = duckdb.execute(f"SELECT decimal FROM read_parquet('{path}')").fetchall()
    assert [value for (value,) in found] == [pytest.approx(float(v)) if v is not None else None for v in values]


def test_types_come_back_by_the_stored_arrow_schema(write_file: WriteFile, every_type: pa.Table) -> None:
    found = pq.read_schema(io.BytesIO(write_file(every_type).data))
    # Parquet has no seconds for times; views and date64 are read in their plain form.
    plain_forms = {
        "time32s": pa.time32("ms"),
        "timestamp_s": pa.timestamp("ms"),
        "instant_s": pa.timestamp("ms", "UTC"),
        "string_view": pa.string(),
        "date64": pa.date32(),
    }
    for field in every_type.schema:
        expected = field.with_type(plain_forms.get(field.name, field.type))
        assert found.field(field.name).equals(expected), field.name


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "brotli", "lz4_raw", "zstd"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.ways_in_quick(16)
def test_every_codec(write_file: WriteFile, peer: Any, compression: str, version: str, tmp_path: Path) -> None:
    table = pa.table(
        {
            "number": pa.array([None if i % 9 == 0 else i // 3 for i in range(500)]),
            "unlike": pa.array([i * 2654435761 % 2**32 for i in range(500)], pa.uint32()),
            "text": pa.array([None if i % 7 == 0 else f"some text {i}" for i in range(500)]),
            "empty": pa.array([""] * 500),
            "absent": pa.nulls(500, pa.string()),
        }
    )
    path = tmp_path / "codec.parquet"
    page_rows = 90 if version == "1.0" or peer.nested_pages_v2 else 1000
    options = WriteOptions(data_page_version=version, page_rows=page_rows)  # type: ignore[arg-type]
    path.write_bytes(write_file(table, compression=compression, row_group_rows=200, options=options).data)
    written = pq.read_metadata(path).row_group(0).column(1).compression
    assert written.lower() == {"none": "uncompressed", "lz4_raw": "lz4"}.get(compression, compression)
    _assert_reads(peer, path, table)


def test_a_file_without_rows(write_file: WriteFile, every_type: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    path.write_bytes(write_file(every_type.slice(0, 0)).data)
    assert pq.read_table(path).num_rows == 0
    assert pl.read_parquet(path).shape == (0, every_type.num_columns)
    assert duckdb.execute(f"SELECT * FROM read_parquet('{path}')").fetchall() == []
    assert fastparquet.ParquetFile(str(path)).count() == 0


def test_many_row_groups_in_one_footer(write_file: WriteFile, peer: Any, tmp_path: Path) -> None:
    table = pa.table({"a": pa.array(range(200)), "b": [str(i) for i in range(200)]})
    path = tmp_path / "many.parquet"
    path.write_bytes(write_file(table, row_group_rows=1, checkpoint_every=50).data)
    assert pq.read_metadata(path).num_row_groups == 200
    _assert_reads(peer, path, table)


def test_names_that_other_formats_would_quote(write_file: WriteFile, peer: Any, tmp_path: Path) -> None:
    names = ["with space", "naïve 😀", "a.b", "SELECT", "col'umn", "x" * 300]
    table = pa.table({name: pa.array([at, None, at + 1]) for at, name in enumerate(names)})
    path = tmp_path / "names.parquet"
    path.write_bytes(write_file(table).data)
    readable = [name for name in names if peer.name != "fastparquet" or "." not in name]  # a path to it
    found = peer.read(path, readable)
    for name in readable:
        assert found[name] == table[name].to_pylist(), name
