"""Schemas for files that do not tell theirs: from siblings of all kinds, damaged ones too, and as callers have them."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.arrow.types.arrow_schema import arrow_schema_of
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.schema_source import given_schema, known_schema, schema_of_sibling

TEXT = """
message m {
  required int64 id;
  optional binary name (STRING);
}
"""


def table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "when": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * 4, pa.timestamp("us", "Europe/Vienna")),
            "kind": pa.array(["a", "b", "a", "b"]).dictionary_encode(),
            "tags": pa.array([[1], [], None, [2, 3]], pa.list_(pa.int32())),
        },
        metadata={"pandas": '{"columns": []}', "owner": "us"},
    )


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink, row_group_size=2, **options)
    return sink.getvalue()


async def stored(data: bytes) -> tuple[MemoryStore, str]:
    store = MemoryStore()
    sink = await store.create("file.parquet")
    await sink.write(data)
    await sink.complete()
    return store, "file.parquet"


def arrow_of(known: Any) -> pa.Schema:
    return pa.schema(arrow_schema_of(known.schema, known.key_value))


async def test_a_sibling_of_pyarrow() -> None:
    data = written(
        compression={"id": "zstd", "when": "snappy", "kind": "none", "tags.list.element": "gzip"},
        use_dictionary=["kind"],
    )
    known = await schema_of_sibling(await stored(data))
    assert arrow_of(known).equals(table().schema)
    stored_key = pq.read_metadata(io.BytesIO(data)).metadata[b"ARROW:schema"].decode()
    assert known.key_value["ARROW:schema"] == stored_key, "pyarrow finds its dictionaries in it"
    assert known.key_value["owner"] == "us" and known.key_value["pandas"] == '{"columns": []}'
    assert known.created_by is not None and known.created_by.startswith("parquet-cpp-arrow")
    assert known.column_orders is not None and len(known.column_orders) == 4
    assert known.findings == () and known.metadata.row_groups == []
    assert Schema.from_elements(known.metadata.schema) == known.schema


@pytest.mark.parametrize("writer", ["DuckDB", "Polars", "fastparquet", "resilient"])
async def test_siblings_of_others(writer: str, tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    flat = table().select(["id"]).replace_schema_metadata(None)
    match writer:
        case "DuckDB":
            import duckdb

            duckdb.register("given", flat)
            duckdb.sql(f"copy given to '{path}' (format parquet)")
            duckdb.unregister("given")
        case "Polars":
            import polars

            polars.from_arrow(flat).write_parquet(path)
        case "fastparquet":
            import fastparquet

            fastparquet.write(str(path), flat.to_pandas(), write_index=False)
        case "resilient":
            async with rpq.create(path) as out:
                await out.write(flat)
    known = await schema_of_sibling(path)
    assert known.schema.names == ["id"]
    assert arrow_of(known).field("id").type == pa.int64()
    assert not any(key.startswith("rpq.") for key in known.key_value)
    assert known.origin.endswith("file.parquet")


async def test_a_summary_is_a_sibling(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes(written())
    await rpq.write_metadata(tmp_path)
    for name in ("_metadata", "_common_metadata"):
        known = await schema_of_sibling(tmp_path / name)
        assert arrow_of(known).equals(table().schema, check_metadata=False)
        assert not any(key.startswith("rpq.") for key in known.key_value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-5],
        lambda data: data[:-300],
        lambda data: data + bytes(512),
        lambda data: b"XXXX" + data[4:],
    ],
)
async def test_a_damaged_sibling(damage: Callable[[bytes], bytes]) -> None:
    data = damage(written())
    known = await schema_of_sibling(await stored(data))
    assert known.schema == given_schema(table()).schema
    if data[:4] == b"PAR1":
        assert known.findings
    assert all("damaged itself" in finding.message for finding in known.findings)
    assert not any(finding.costs_rows for finding in known.findings)


@pytest.mark.parametrize("checkpoint_every", [1, 1000])
async def test_a_damaged_sibling_of_ours(write_file: Any, checkpoint_every: int) -> None:
    whole = await write_file(table(), row_group_rows=2, checkpoint_every=checkpoint_every)
    known = await schema_of_sibling(await stored(whole.data[: whole.records(4)[0].offset]))
    assert arrow_of(known).equals(table().schema, check_metadata=False)
    (finding,) = known.findings
    assert "damaged itself" in finding.message
    assert not any(key.startswith("rpq.") for key in known.key_value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty"),
        (b"a,b\n1,2\n3,4\n", "a text file with columns separated by"),
        (gzip.compress(written()), "a Parquet file compressed as a whole by gzip"),
        (written()[:200], "it begins as a Parquet file does"),
        (bytes(5000), "nothing but zeros"),
    ],
)
async def test_what_is_no_sibling(data: bytes, words: str) -> None:
    with pytest.raises(rpq.RecoveryError) as caught:
        await schema_of_sibling(await stored(data))
    assert words in caught.value.message
    assert "--schema" in (caught.value.hint or "")
    assert "file.parquet" in (caught.value.where.key or "")


async def test_a_sibling_that_is_not_there() -> None:
    with pytest.raises(rpq.NotFoundError):
        await schema_of_sibling((MemoryStore(), "nothing"))


def test_a_schema_as_text() -> None:
    known = given_schema(TEXT)
    assert str(known.schema) == str(Schema.parse(TEXT))
    assert (known.created_by, dict(known.key_value)) == (None, {})
    assert given_schema(Schema.parse(TEXT)).schema == known.schema


class Exported:
    """An object that has nothing but the schema's interface."""

    def __arrow_c_schema__(self) -> object:
        return table().schema.__arrow_c_schema__()


@pytest.mark.parametrize(
    "make",
    [table, lambda: table().schema, lambda: table().to_batches()[0], Exported, lambda: table().to_reader()],
    ids=["table", "schema", "batch", "exported", "reader"],
)
def test_a_schema_of_arrow(make: Callable[[], object]) -> None:
    known = given_schema(make())
    assert arrow_of(known).equals(table().schema, check_metadata=False)
    assert Schema.from_elements(known.metadata.schema) == known.schema


def test_a_schema_of_polars() -> None:
    import polars

    known = given_schema(polars.DataFrame({"id": [1], "name": ["a"]}))
    assert known.schema.names == ["id", "name"]


@pytest.mark.parametrize(
    ("schema", "message", "hint"),
    [
        ("file.parquet", "'message' is expected", "--schema-from"),
        ("message m { required int65 id; }", "'int65'", "rpq inspect"),
        ("", "the text ends", "--schema-from"),
        (Path("file.parquet"), "is no schema", "schema_from"),
        (17, "of type int is no schema", "Arrow"),
        (pa.int64(), "a struct", ""),
    ],
)
def test_what_is_no_schema(schema: object, message: str, hint: str) -> None:
    with pytest.raises(rpq.SchemaError) as caught:
        given_schema(schema)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    for given_text in (text, f"message m {{ {text} }}"):
        try:
            known = given_schema(given_text)
        except rpq.SchemaError:
            continue
        assert Schema.parse(str(known.schema)) == known.schema


async def test_one_way_or_the_other() -> None:
    assert await known_schema() is None
    known = await known_schema(schema=TEXT)
    assert known is not None and known.schema.names == ["id", "name"]
    place = await stored(written())
    known = await known_schema(schema_from=place)
    assert known is not None and known.schema.names == table().column_names
    with pytest.raises(rpq.RecoveryError, match="twice"):
        await known_schema(schema=TEXT, schema_from=place)
