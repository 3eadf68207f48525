"""Whatever is written to Trevni is read back: any schema, any values, any blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory import MemoryStore

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=300),
    pa.binary(): st.binary(max_size=12),
    pa.binary(5): st.binary(min_size=5, max_size=5),
    pa.date32(): st.dates(),
    pa.null(): st.none(),
}
NAMES = st.text("abcXYZ_0123456789", min_size=1, max_size=4).filter(lambda name: not name[0].isdigit())


@st.composite
def typed(draw: Any, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and its values without null."""
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "struct", "map"])) if depth else "scalar"
    if kind == "scalar":
        scalar = draw(st.sampled_from(list(SCALARS)))
        return scalar, SCALARS[scalar]
    if kind == "struct":
        names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
        fields = [draw(field(name, depth - 1)) for name in names]
        return pa.struct([each for each, _ in fields]), st.fixed_dictionaries({each.name: values for each, values in fields})
    inner, values = draw(field("element" if kind == "list" else "value", depth - 1))
    if kind == "list":
        return pa.list_(inner), st.lists(values, max_size=4)
    keys = st.text("abc", max_size=2)
    return pa.map_(pa.string(), inner), st.dictionaries(keys, values, max_size=3).map(lambda found: list(found.items()))


@st.composite
def field(draw: Any, name: str, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    kind, values = draw(typed(depth))
    nullable = kind == pa.null() or draw(st.booleans())
    return pa.field(name, kind, nullable), st.none() | values if nullable else values


@st.composite
def tables(draw: Any) -> Any:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    fields = [draw(field(name, 3)) for name in names]
    count = draw(st.integers(0, 12))
    times = draw(st.sampled_from([1, 1, 5]))  # the same rows again and again make runs of lengths
    arrays = [
        pa.array(draw(st.lists(values, min_size=count, max_size=count)) * times, each.type) for each, values in fields
    ]
    return pa.table(arrays, pa.schema([each for each, _ in fields]))


COMPRESSIONS = st.sampled_from(["none", "deflate", "snappy", "bzip2"])
CHECKSUMS = st.sampled_from([None, "crc32", "crc-32"])
quick = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@given(tables(), COMPRESSIONS, CHECKSUMS, st.sampled_from([1, 7, 65_536]), st.integers(1, 5))
@settings(quick, max_examples=20)
def test_what_is_written_is_read(
    table: Any, compression: Any, checksum: Any, block_bytes: int, batch_rows: int
) -> None:
    round_trip(table, compression, checksum, block_bytes, batch_rows)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@given(tables(), COMPRESSIONS, CHECKSUMS, st.sampled_from([1, 7, 65_536]), st.integers(1, 5))
@settings(quick)
def test_whatever_is_written_is_read(
    table: Any, compression: Any, checksum: Any, block_bytes: int, batch_rows: int
) -> None:
    round_trip(table, compression, checksum, block_bytes, batch_rows)


def round_trip(table: Any, compression: Any, checksum: Any, block_bytes: int, batch_rows: int) -> None:
    store = MemoryStore()
    sync.write_trevni((store, "f.trv"), table, compression=compression, checksum=checksum, block_bytes=block_bytes)
    with sync.open_trevni((store, "f.trv")) as file:
        assert file.notes == ()
        found = pa.table(file.read())
        assert found.to_pylist() == table.to_pylist()
        assert found.schema.remove_metadata() == table.schema.remove_metadata()
        rows = [row for batch in file.batches(batch_rows) for row in batch.to_pylist()]
        assert rows == table.to_pylist()
        start = table.num_rows // 2
        assert file.read(offset=start, limit=3).to_pylist() == table.slice(start, 3).to_pylist()
    if table.num_rows:
        report = sync.convert((store, "f.trv"), (store, "f.parquet"))
        assert report.num_rows == table.num_rows
        with sync.open((store, "f.parquet")) as new:
            assert pa.table(new).to_pylist() == table.to_pylist()


def test_runs_of_lengths_take_no_room() -> None:
    store = MemoryStore()
    table = pa.table({"x": pa.array([None] * 100_000 + [7] + [None] * 100_000, pa.int64())})
    info = sync.write_trevni((store, "f.trv"), table, compression="none", checksum=None)
    assert info.size < 1000
    with sync.open_trevni((store, "f.trv")) as file:
        assert pa.table(file.read()).equals(table)
        assert file.read(offset=99_999, limit=3).to_pydict() == {"x": [None, 7, None]}


@pytest.mark.parametrize("values", [[5, 5, 6, 9, 9, 9, 12], ["a", "b", "b", "c", "dd", "e", "f"], [0.5, 1.0, 2.0, 2.0, 4.0, 8.0, 9.0], [b"a", b"b", b"b", b"c", b"d", b"e", b"f"]])
def test_first_values(values: list[Any]) -> None:
    store = MemoryStore()
    table = pa.table({"v": pa.array(values)}, pa.schema([pa.field("v", pa.array(values).type, nullable=False)]))
    sync.write_trevni((store, "f.trv"), table, first_values=["v"], block_bytes=1)
    with sync.open_trevni((store, "f.trv")) as file:
        assert [block.first_value for block in file.blocks("v")] == values
        assert file.read().to_pydict() == {"v": values}
        for value in values:
            start = file.first_row_of("v", value)
            assert start <= values.index(value) and (start == 0 or values[start] < value)


@pytest.mark.parametrize(
    ("table", "options", "error", "words"),
    [
        (pa.table({"a b": [1]}), {}, rpq.SchemaError, "the name 'a b'"),
        (pa.table({"a": pa.array([1], pa.uint32())}), {}, rpq.UnsupportedError, "no form in Avro"),
        (pa.table({"a": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))}), {}, rpq.UnsupportedError, "keys"),
        (pa.table({"a": [1]}), {"first_values": ["b"]}, rpq.SchemaError, "no column 'b'"),
        (pa.table({"a": [1]}), {"first_values": ["a/long"]}, rpq.FormatError, "one value in each row"),
        (pa.table({"a": [1]}), {"compression": "zstd"}, rpq.SchemaError, "compression"),
        (pa.table({"a": [1]}), {"checksum": "md5"}, rpq.SchemaError, "checksum"),
        (pa.table({"a": [1]}), {"block_bytes": 0}, rpq.SchemaError, "block_bytes"),
    ],
)
async def test_what_cannot_be_written(tmp_path: Path, table: Any, options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        await rpq.write_trevni(tmp_path / "f.trv", table, **options)
    assert list(tmp_path.iterdir()) == []
