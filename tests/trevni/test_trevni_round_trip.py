"""Whatever is written to Trevni is read back: any schema, any values, any blocks."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import in_both_suites
from trevni_bytes import in_memory, trevni

from resilient_pq import sync

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
        return pa.struct([each for each, _ in fields]), st.fixed_dictionaries(
            {each.name: values for each, values in fields}
        )
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


CODECS = st.sampled_from(["null", "deflate", "snappy", "bzip2"])
CHECKSUMS = st.sampled_from(["null", "crc32", "crc-32"])
quick = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@in_both_suites
@given(tables(), CODECS, CHECKSUMS, st.sampled_from([1, 7, 65_536]), st.integers(1, 5))
@settings(quick)
def test_what_is_written_is_read(table: Any, codec: Any, checksum: Any, block_bytes: int, batch_rows: int) -> None:
    store, _ = asyncio.run(in_memory(trevni(table, codec=codec, checksum=checksum, block_bytes=block_bytes)))
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


def test_long_runs_of_lengths() -> None:
    table = pa.table({"x": pa.array([None] * 100_000 + [7] + [None] * 100_000, pa.int64())})
    store, _ = asyncio.run(in_memory(trevni(table, codec="null")))
    with sync.open_trevni((store, "f.trv")) as file:
        assert pa.table(file.read()).equals(table)
        assert file.read(offset=99_999, limit=3).to_pydict() == {"x": [None, 7, None]}
