"""Writing summaries: what is in them, who can read them, and which folders have none."""

from __future__ import annotations

import asyncio
import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import fastparquet
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from file_bytes import content
from store_wrapper import Call, RecordingStore

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.io import MemoryStore

Folder = dict[str, bytes]
KINDS = ["us", "pyarrow", "fastparquet"]


def place(folder: Folder, root: Path) -> Path:
    for name, data in folder.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


async def stored(folder: Folder, prefix: str = "folder/") -> MemoryStore:
    store = MemoryStore()
    for name, data in folder.items():
        await store.put(prefix + name, data)
    return store


def footer_of(data: bytes) -> FileMetaData:
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, data, start)
    return metadata


async def file_of(table: pa.Table, **options: Any) -> bytes:
    store = MemoryStore()
    async with rpq.create((store, "file"), **options) as writer:
        await writer.write(table)
    return await content(store, "file")


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, folders: dict[str, Folder]) -> Folder:
    """Three files by each writer in turn."""
    return folders[request.param]


@pytest.fixture
def rows(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True)


# --- who can read it ------------------------------------------------------------------------------------------


async def test_pyarrow_reads_it(folder: Folder, rows: pd.DataFrame, tmp_path: Path) -> None:
    """As the data set that it is: files, row groups, statistics."""
    written = await rpq.write_metadata(place(folder, tmp_path))
    metadata = pq.read_metadata(tmp_path / "_metadata")
    assert (metadata.num_rows, metadata.num_row_groups) == (30, 9)
    assert [metadata.row_group(i).column(0).file_path for i in (0, 4, 8)] == list(folder)
    dataset = ds.parquet_dataset(tmp_path / "_metadata")
    assert dataset.files == [str(tmp_path / name) for name in folder]
    pd.testing.assert_frame_equal(dataset.to_table().to_pandas()[["n", "s", "f"]], rows, check_dtype=False)
    few = dataset.to_table(filter=ds.field("n") > 25)
    assert few["n"].to_pylist() == [26, 27, 28, 29]
    late = [piece for fragment in dataset.get_fragments() for piece in fragment.split_by_row_group(ds.field("n") > 25)]
    assert [(piece.path, [group.id for group in piece.row_groups]) for piece in late] == [
        (str(tmp_path / [*folder][2]), [1]),
        (str(tmp_path / [*folder][2]), [2]),
    ]
    assert pq.read_schema(tmp_path / "_common_metadata").equals(metadata.schema.to_arrow_schema())
    assert written == rpq.WrittenMetadata(
        url=str(tmp_path / "_metadata"),
        common_url=str(tmp_path / "_common_metadata"),
        num_files=3,
        num_row_groups=9,
        num_rows=30,
        size=(tmp_path / "_metadata").stat().st_size,
    )


async def test_fastparquet_reads_it(folder: Folder, rows: pd.DataFrame, tmp_path: Path) -> None:
    """It takes the summary, which it asks to be a footer from the first magic on."""
    await rpq.write_metadata(place(folder, tmp_path))
    file = fastparquet.ParquetFile(str(tmp_path))
    assert file.fn == f"{tmp_path}/_metadata"
    found = file.to_pandas()
    assert found["day"].astype(int).tolist() == [0] * 10 + [1] * 10 + [2] * 10
    pd.testing.assert_frame_equal(found[["n", "s", "f"]], rows, check_dtype=False)


async def test_others_are_not_disturbed_by_it(folder: Folder, tmp_path: Path) -> None:
    """DuckDB and Polars read the files themselves, and the summary's schema when they are asked to."""
    await rpq.write_metadata(place(folder, tmp_path))
    counted = duckdb.sql(f"select count(*), sum(n) from '{tmp_path}/**/*.parquet'").fetchall()
    assert counted == [(30, sum(range(30)))]
    assert pl.scan_parquet(f"{tmp_path}/**/*.parquet").collect().height == 30
    names = duckdb.sql(f"select name from parquet_schema('{tmp_path}/_metadata')").fetchall()
    assert [name for (name,) in names[1:]][:3] == ["n", "s", "f"]
    assert list(pl.read_parquet_schema(tmp_path / "_common_metadata"))[:3] == ["n", "s", "f"]


async def test_we_read_it(folder: Folder, rows: pd.DataFrame, tmp_path: Path) -> None:
    await rpq.write_metadata(place(folder, tmp_path))
    async with rpq.open(tmp_path / "_metadata") as file:
        assert file.contents.verified and file.state is rpq.FileState.COMPLETE
        assert file.data_files == tuple(folder)
        table = pa.table(await file.read(columns=["n", "s", "f"]))
    pd.testing.assert_frame_equal(table.to_pandas(ignore_metadata=True), rows, check_dtype=False)
    async with rpq.open(tmp_path / "_common_metadata") as file:
        assert file.contents.verified and file.data_files == ()
        empty = pa.table(await file.read())
        assert empty.num_rows == 0 and empty.schema.types[:3] == pa.table(table).schema.types


async def test_fastparquet_adds_to_it(folders: dict[str, Folder], tmp_path: Path) -> None:
    """It writes the summary anew, with our keys copied into it: that is its own then, and no damage."""
    place({"part.0.parquet": folders["fastparquet"]["day=0/part.parquet"]}, tmp_path)
    await rpq.write_metadata(tmp_path)
    more = pd.DataFrame({"n": [100], "s": ["more"], "f": [0.5]})
    fastparquet.write(str(tmp_path), more, append=True, file_scheme="hive", write_index=False)
    async with rpq.open(tmp_path / "_metadata") as file:
        assert not file.contents.verified and file.state is None
        assert pa.table(await file.read())["n"].to_pylist() == [*range(10), 100]


# --- what is in it --------------------------------------------------------------------------------------------


async def test_chunks_are_named_as_their_files_name_them(folder: Folder) -> None:
    """Offsets of pages, indexes and bloom filters, statistics and sums stay, since they are those of the file."""
    store = await stored(folder)
    await rpq.write_metadata((store, "folder"))
    found = footer_of(await content(store, "folder/_metadata"))
    expected = []
    for name, data in folder.items():
        for row_group in footer_of(data).row_groups:
            columns = [replace(column, file_path=name) for column in row_group.columns]
            expected.append(replace(row_group, columns=columns, ordinal=len(expected)))
    assert found.row_groups == expected
    assert found.created_by == footer_of(data).created_by
    assert found.column_orders == footer_of(data).column_orders


async def test_files_in_the_order_of_their_names(folders: dict[str, Folder]) -> None:
    """At any depth, and what is hidden, temporary or of another kind left out."""
    data = folders["us"]["day=0/part.parquet"]
    wanted = ["a.parquet", "b/_day=1/x.parquet", "b/c.parquet", "part.10.parquet", "part.9.parquet"]
    others = ["_a.parquet", ".a.parquet", "_temporary/a.parquet", ".git/a.parquet", "b/.x/a.parquet", "a.csv"]
    store = await stored(dict.fromkeys([*reversed(wanted), *others, "a.parquet.partial", "_metadata"], data))
    await store.put("folder2/a.parquet", data)
    await rpq.write_metadata((store, "folder/"), overwrite=True)
    async with rpq.open((store, "folder/_metadata")) as file:
        assert file.data_files == tuple(wanted)


async def test_files_of_ones_own_choice(folder: Folder) -> None:
    store = await stored(folder)
    names = [*folder][::-2]
    await rpq.write_metadata((store, "folder"), files=names, common_metadata=False)
    with pytest.raises(rpq.NotFoundError):
        await store.head("folder/_common_metadata")
    async with rpq.open((store, "folder/_metadata")) as file:
        assert file.data_files == tuple(names)
        assert (await file.read(["n"])).to_pydict()["n"] == [*range(20, 30), *range(10)]


async def test_files_without_rows(folders: dict[str, Folder]) -> None:
    data = folders["pyarrow"]["day=0/part.parquet"]
    empty = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)).slice(0, 0), empty)
    store = await stored({"a.parquet": empty.getvalue().to_pybytes(), "b.parquet": data})
    written = await rpq.write_metadata((store, "folder"))
    assert (written.num_files, written.num_rows, written.num_row_groups) == (
        2,
        10,
        4,
    )  # pyarrow makes one without rows
    async with rpq.open((store, "folder/_metadata")) as file:
        assert (await file.read()).num_rows == 10


@pytest.mark.thorough
async def test_ordinals_end_where_they_no_longer_fit() -> None:
    """RowGroup.ordinal has 16 bits."""
    from resilient_pq.dataset.summary.summary_footer import Summary
    from resilient_pq.format.footer import Footer
    from resilient_pq.reader.contents import Contents

    data = await file_of(pa.table({"n": [1, 2]}), row_group_rows=1)
    summary = Summary()
    for number in range(2):
        metadata = footer_of(data)
        metadata.row_groups = [*metadata.row_groups] * 8_200
        metadata.num_rows *= 8_200
        summary.add(f"{number}.parquet", len(data), Contents.of(Footer(metadata, 0, 0, None)))
    found = footer_of(summary.metadata(bytes(16)))
    assert [found.row_groups[i].ordinal for i in (0, 32_767, 32_768)] == [0, 32_767, None]
    assert found.num_rows == 2 * 2 * 8_200


async def test_makers_that_differ(folders: dict[str, Folder]) -> None:
    """Whose bugs to expect is not known then; that minima mean something must be said by all."""
    names = {kind: f"{kind}.parquet" for kind in ("us", "pyarrow")}
    table = pa.table({"n": pa.array([1, 2], pa.int64())})
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    mixed = {names["us"]: await file_of(table), names["pyarrow"]: out.getvalue().to_pybytes()}
    store = await stored(mixed)
    await rpq.write_metadata((store, "folder"))
    found = footer_of(await content(store, "folder/_metadata"))
    assert found.created_by is None and found.column_orders is not None
    async with rpq.open((store, "folder/_metadata")) as file:
        assert (await file.read()).to_pydict() == {"n": [1, 2, 1, 2]}


# --- keys -----------------------------------------------------------------------------------------------------


def with_keys(table: pa.Table, **keys: str) -> pa.Table:
    return table.replace_schema_metadata(keys)


async def keys_of(*tables: pa.Table) -> tuple[pa.Schema, dict[str, str | None]]:
    """The schema and the keys that the summary of files by pyarrow has."""
    store = MemoryStore()
    for number, table in enumerate(tables):
        out = pa.BufferOutputStream()
        pq.write_table(table, out)
        await store.put(f"{number}.parquet", out.getvalue().to_pybytes())
    await rpq.write_metadata((store, ""))
    schema = pq.read_schema(pa.BufferReader(await content(store, "_metadata")))
    async with rpq.open((store, "_metadata")) as file:
        assert pa.table(await file.read()).num_rows == sum(table.num_rows for table in tables)
        return schema, file.key_value_metadata


async def test_keys_that_all_files_share_are_kept() -> None:
    table = pa.table({"n": [1]})
    _, keys = await keys_of(
        with_keys(table, same="1", differs="1", first="1"),
        with_keys(table, same="1", differs="2"),
        with_keys(table, same="1", differs="1", later="1"),
    )
    assert {key for key in keys if not key.startswith("rpq.")} == {"same", "ARROW:schema"}
    assert keys["same"] == "1"


async def test_what_is_left_out_is_not_in_the_arrow_schema_either() -> None:
    table = pa.table({"s": pa.array(["a"], pa.large_string())})
    schema, _ = await keys_of(with_keys(table, day="1", same="x"), with_keys(table, day="2", same="x"))
    assert schema.types == [pa.large_string()]
    assert b"day" not in (schema.metadata or {}) and schema.metadata[b"same"] == b"x"


async def test_arrow_types_that_differ_are_those_of_parquet() -> None:
    """A zone is a word for people: the values are the same instants; of two zones none is right."""
    zones = [
        pa.table({"at": pa.array([0], pa.timestamp("us", zone)), "s": pa.array(["a"], kind)})
        for zone, kind in (("Europe/Berlin", pa.string()), ("Asia/Tokyo", pa.large_string()))
    ]
    schema, _ = await keys_of(*zones)
    assert schema.types == [pa.timestamp("us", "UTC"), pa.string()]
    schema, _ = await keys_of(zones[0], zones[0])
    assert schema.types == zones[0].schema.types


async def test_categories_stay(frames: list[pd.DataFrame]) -> None:
    """Files of pandas differ in the range of their index, and in nothing that matters."""
    tables = [pa.Table.from_pandas(frame.astype({"s": "category"})) for frame in frames]
    ranges = [json.loads(table.schema.metadata[b"pandas"])["index_columns"] for table in tables]
    tables[1] = pa.Table.from_pandas(frames[1].iloc[:7].astype({"s": "category"}))
    assert ranges[0] != json.loads(tables[1].schema.metadata[b"pandas"])["index_columns"]
    schema, keys = await keys_of(*tables)
    assert pa.types.is_dictionary(schema.field("s").type)
    assert keys["pandas"] == tables[0].schema.metadata[b"pandas"].decode()


async def test_a_file_that_was_not_finished(tmp_path: Path) -> None:
    """The summary reads its rows, and says so of itself."""
    table = pa.table({"n": range(100)})
    whole = await file_of(table, row_group_rows=10, checkpoint_every=2, checkpoint_overhead=1)
    store = MemoryStore()
    await store.put("file", whole)
    async with rpq.open((store, "file")) as file:
        place_of_record, rows_before = file.checkpoints[1].offset, file.checkpoints[1].num_rows
        end = file.checkpoints[2].offset
    cut = await torn_behind(whole, place_of_record, end)
    folder = await stored({"a.parquet": whole, "b.parquet": cut})
    with pytest.warns(rpq.IncompleteFileWarning, match=r"b\.parquet is in-progress"):
        written = await rpq.write_metadata((folder, "folder"))
    assert written.num_rows == 100 + rows_before
    with pytest.warns(rpq.IncompleteFileWarning, match="in-progress: a file that it names was not finished"):
        async with rpq.open((folder, "folder/_metadata")) as file:
            assert file.state is rpq.FileState.IN_PROGRESS
            assert (await file.read()).num_rows == written.num_rows


async def torn_behind(data: bytes, offset: int, limit: int) -> bytes:
    """The file as it was when the record at `offset` was its last."""
    for end in range(offset + 96, limit + 1):
        if data[end - 4 : end] == b"PAR1":
            return data[:end]
    raise AssertionError("there is no footer")


# --- schemas that differ --------------------------------------------------------------------------------------

BASE = {"a": pa.int64(), "b": pa.struct([("x", pa.string()), ("y", pa.list_(pa.int32()))])}
DIFFERENT: dict[str, tuple[dict[str, Any], str, str]] = {
    "a type": (
        BASE | {"a": pa.int32()},
        "a",
        r"b\.parquet has optional int32.*a\.parquet has optional int64",
    ),
    "an annotation": (BASE | {"a": pa.uint64()}, "a", r"INTEGER\(64,false\)"),
    "a name": ({"c": pa.int64(), "b": BASE["b"]}, "a", "b.parquet has optional int64 'c'"),
    "the order": (dict(reversed(BASE.items())), "a", "at the place of column 'a'.* optional group 'b'"),
    "one more": (BASE | {"c": pa.int64()}, "c", r"b\.parquet has optional int64.*a\.parquet has nothing"),
    "one less": ({"a": pa.int64()}, "b", r"b\.parquet has nothing.*a\.parquet has optional group"),
    "within a struct": (
        BASE | {"b": pa.struct([("x", pa.binary()), ("y", pa.list_(pa.int32()))])},
        "b.x",
        "optional byte_array, and .* optional byte_array .STRING",
    ),
    "within a list": (
        BASE | {"b": pa.struct([("x", pa.string()), ("y", pa.list_(pa.int64()))])},
        "b.y.list.element",
        "optional int64",
    ),
    "a group": (BASE | {"b": pa.string()}, "b", "optional byte_array .STRING., and .* optional group"),
    "null or not": (BASE | {"a": pa.field("a", pa.int64(), nullable=False)}, "a", "required int64"),
    "a field id": (
        BASE | {"a": pa.field("a", pa.int64(), metadata={b"PARQUET:field_id": b"7"})},
        "a",
        "optional int64 = 7",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_schemas_that_differ_are_refused(name: str) -> None:
    columns, column, words = DIFFERENT[name]
    fields = [kind if isinstance(kind, pa.Field) else pa.field(key, kind) for key, kind in columns.items()]
    folder = {
        "a.parquet": await file_of(pa.schema(BASE.items()).empty_table()),
        "b.parquet": await file_of(pa.schema(fields).empty_table()),
    }
    store = await stored(folder)
    with pytest.raises(rpq.SchemaError, match=words) as caught:
        await rpq.write_metadata((store, "folder"))
    where = caught.value.where
    assert (where.key, where.column) == ("memory:folder/b.parquet", column)
    assert await store.list_names("folder") == ["a.parquet", "b.parquet"]


async def test_names_of_the_root_and_ways_to_annotate_do_not_matter() -> None:
    """A file that has only the older annotations, and another name at the top."""
    data = await file_of(pa.table({"s": ["a"]}))
    from resilient_pq.dataset.summary.summary_footer import Summary
    from resilient_pq.format.footer import Footer
    from resilient_pq.reader.contents import Contents

    older = footer_of(data)
    older.schema[0].name = "spark_schema"
    older.schema[1].logicalType = None
    summary = Summary()
    for number, metadata in enumerate((footer_of(data), older)):
        summary.add(f"{number}", len(data), Contents.of(Footer(metadata, 0, 0, None)))
    assert summary.num_files == 2


# --- what is refused ------------------------------------------------------------------------------------------


async def test_a_summary_that_is_there(folder: Folder) -> None:
    for name in ("_metadata", "_common_metadata"):
        store = await stored(folder)
        await store.put(f"folder/{name}", b"before")
        with pytest.raises(rpq.AlreadyExistsError, match="a summary already") as caught:
            await rpq.write_metadata((store, "folder"))
        assert caught.value.where.key == f"memory:folder/{name}"
        assert await content(store, f"folder/{name}") == b"before"
        await rpq.write_metadata((store, "folder"), overwrite=True)
        async with rpq.open((store, "folder/_metadata")) as file:
            assert file.num_rows == 30


async def test_a_folder_without_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(rpq.NotFoundError, match="there is no such folder"):
        await rpq.write_metadata(tmp_path / "nowhere")
    for root in (tmp_path, str(tmp_path), f"{tmp_path}/"):
        with pytest.raises(rpq.NotFoundError, match=r"no \*\.parquet files in the folder"):
            await rpq.write_metadata(root)
    with pytest.raises(rpq.StoreError, match="an empty path"):
        await rpq.write_metadata("")
    with pytest.raises(rpq.StoreError):
        await rpq.write_metadata("s3://")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["../x.parquet", "/x.parquet", "", "s3://b/x.parquet", "a//x.parquet"])
async def test_names_that_lead_elsewhere(folder: Folder, name: str) -> None:
    store = await stored(folder)
    with pytest.raises(rpq.SchemaError, match="names no file below the folder"):
        await rpq.write_metadata((store, "folder"), files=[*folder, name])


async def test_names_of_files_that_cannot_be(folder: Folder) -> None:
    store = await stored(folder)
    first = next(iter(folder))
    with pytest.raises(rpq.SchemaError, match="one string"):
        await rpq.write_metadata((store, "folder"), files=first)
    with pytest.raises(rpq.SchemaError, match="names no file"):
        await rpq.write_metadata((store, "folder"), files=[])
    with pytest.raises(rpq.SchemaError, match="named twice"):
        await rpq.write_metadata((store, "folder"), files=[first, first])
    with pytest.raises(rpq.NotFoundError) as caught:
        await rpq.write_metadata((store, "folder"), files=[first, "missing.parquet"])
    assert caught.value.where.key == "memory:folder/missing.parquet"
    await store.put("folder/a\\b.parquet", folder[first])
    with pytest.raises(rpq.UnsupportedError, match="cannot name the file"):
        await rpq.write_metadata((store, "folder"))


async def test_files_that_are_damaged_or_none(folder: Folder) -> None:
    """The file is named, and nothing is written."""
    whole = next(iter(folder.values()))
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for data, kind in (
        (whole[:-7], rpq.TornFileError),
        (b"", rpq.NotParquetError),
        (b"PAR1" + bytes(50) + b"PARE", rpq.UnsupportedError),
        (whole[:start] + bytes(20) + whole[start + 20 :], rpq.FormatError),
    ):
        store = await stored({**folder, "x.parquet": data})
        with pytest.raises(kind) as caught:
            await rpq.write_metadata((store, "folder"))
        assert caught.value.where.key == "memory:folder/x.parquet"
        assert "_metadata" not in await store.list_names("folder")
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_summary_of_summaries(folder: Folder) -> None:
    store = await stored(folder)
    await rpq.write_metadata((store, "folder"))
    await store.put("folder/all.parquet", await content(store, "folder/_metadata"))
    with pytest.raises(rpq.UnsupportedError, match="is a summary itself"):
        await rpq.write_metadata((store, "folder"), overwrite=True)


async def test_a_store_that_fails_leaves_what_was_there(folder: Folder) -> None:
    inner = await stored(folder)
    await inner.put("folder/_metadata", b"before")
    for fault in (Fault("list_objects"), Fault("read_tail", skip=2), Fault("put"), Fault("put", skip=1)):
        with pytest.raises(rpq.TransientError):
            await rpq.write_metadata((FaultyStore(inner, [fault]), "folder"), overwrite=True)
        assert await content(inner, "folder/_metadata") == b"before"
        assert asyncio.all_tasks() == {asyncio.current_task()}


# --- requests -------------------------------------------------------------------------------------------------


async def test_only_ends_of_files_are_read_and_not_too_many_at_once(folders: dict[str, Folder]) -> None:
    data = folders["us"]["day=0/part.parquet"]

    class Watched(RecordingStore):
        running = most = 0

        async def _do(self, call: Call, action: Any) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0)
            try:
                return await super()._do(call, action)
            finally:
                self.running -= 1

    watched = Watched(await stored({f"{number}.parquet": data for number in range(50)}))
    seen: list[tuple[int, int]] = []
    await rpq.write_metadata((watched, "folder"), progress=lambda done, there: seen.append((done, there)))
    assert seen == [(done, 50) for done in range(1, 51)]
    assert watched.most == 16
    verbs = [call.verb for call in watched.calls]
    assert verbs == ["head", "head", "list_objects", *["read_tail"] * 50, "put", "put"]
    assert [call.key for call in watched.calls[-2:]] == ["folder/_common_metadata", "folder/_metadata"]


# --- never silently wrong -------------------------------------------------------------------------------------


async def test_any_byte_of_a_summary_that_changes_is_found(folder: Folder) -> None:
    store = await stored(folder)
    await rpq.write_metadata((store, "folder"))
    data = await content(store, "folder/_metadata")
    for at in range(len(data)):
        await store.put("folder/_metadata", data[:at] + bytes([data[at] ^ 0x04]) + data[at + 1 :])
        with pytest.raises((rpq.FormatError, rpq.UnsupportedError)):
            await rpq.open((store, "folder/_metadata"))


async def test_a_seal_that_is_damaged_can_be_done_without(folder: Folder) -> None:
    store = await stored(folder)
    await rpq.write_metadata((store, "folder"))
    data = bytearray(await content(store, "folder/_metadata"))
    data[-50] ^= 1
    await store.put("folder/_metadata", bytes(data))
    with pytest.raises(rpq.FormatError, match="nothing vouches for the footer") as caught:
        await rpq.open((store, "folder/_metadata"))
    assert caught.value.hint == "rpq metadata memory:folder --overwrite, or open it with verify=False"
    async with rpq.open((store, "folder/_metadata"), verify=False) as file:
        assert (await file.read()).num_rows == 30


async def test_a_data_file_that_was_replaced_by_another_one(folder: Folder) -> None:
    """Its row groups are no longer where the summary has them; its size tells."""
    store = await stored(folder)
    await rpq.write_metadata((store, "folder"))
    names = list(folder)
    await store.put(f"folder/{names[1]}", folder[names[1]] + b"x")
    async with rpq.open((store, "folder/_metadata")) as file:
        with pytest.raises(rpq.ObjectChangedError, match="after the summary was written") as caught:
            await file.read()
        assert caught.value.where.key == f"memory:folder/{names[1]}"
        assert "rpq metadata" in str(caught.value.hint)
        assert (await file.read(row_groups=[0, 8])).num_rows == 6


# --- other places ---------------------------------------------------------------------------------------------


async def test_on_s3(s3: Any, folders: dict[str, Folder]) -> None:
    """In a folder of a bucket, and in the bucket itself."""
    for root in ("a folder/", ""):
        for name, data in folders["us"].items():
            s3.client.put_object(Bucket=s3.bucket, Key=root + name, Body=data)
        url = f"s3://{s3.bucket}/{root}".rstrip("/")
        written = await rpq.write_metadata(url, storage_options=s3.storage_options)
        assert written.url == f"{url}/_metadata" and written.num_rows == (30 if root else 60)
        async with rpq.open(written.url, storage_options=s3.storage_options) as file:
            assert (await file.read(columns=["n"])).num_rows == written.num_rows
        with pytest.raises(rpq.AlreadyExistsError):
            await rpq.write_metadata(url, storage_options=s3.storage_options)
        await rpq.write_metadata(url, overwrite=True, storage_options=s3.storage_options)


async def test_through_fsspec(folder: Folder, tmp_path: Path) -> None:
    import fsspec

    filesystem = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}"
    for name, data in folder.items():
        filesystem.pipe_file(f"{root}/{name}", data)
    written = await rpq.write_metadata(f"memory://{root}")
    async with rpq.open(written.url) as file:
        assert (await file.read()).num_rows == 30
    assert ds.parquet_dataset(f"{root}/_metadata", filesystem=filesystem).to_table().num_rows == 30
    filesystem.rm(root, recursive=True)


async def test_where_nothing_can_be_listed() -> None:
    with pytest.raises(rpq.UnsupportedError, match="the web server cannot list"):
        await rpq.write_metadata("http://127.0.0.1:1/folder", overwrite=True)


def test_blocking(folder: Folder, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sync.write_metadata(place(folder, tmp_path)).num_files == 3
    with sync.open(tmp_path / "_metadata") as file:
        assert file.read().num_rows == 30
