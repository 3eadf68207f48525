"""A data set written as a stream: which rows are in which file, where each lies, and when it is published."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from faulty_store import Fault, FaultyStore
from hypothesis import given
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.dataset import sink_state
from resilient_pq.io import MemoryStore
from resilient_pq.io.local_sink import LocalSink
from resilient_pq.io.local_store import LocalStore
from resilient_pq.writer import cut_policy

NULL = "__HIVE_DEFAULT_PARTITION__"


async def read(store: MemoryStore, url: str) -> list[int]:
    """The rows of a file, which have one column."""
    async with rpq.open((store, url.removeprefix("memory:"))) as file:
        table = await file.read()
    (name,) = table.column_names
    return list(table.to_pydict()[name])


def names(writer: rpq.DatasetWriter) -> list[str]:
    return [file.url.removeprefix("memory:set/") for file in writer.files]


# --- rolling ----------------------------------------------------------------------------------------------------


async def test_files_have_exactly_the_rows_asked_for() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), roll_rows=4) as writer:
        for start, stop in ((0, 3), (3, 5), (5, 15), (15, 18)):
            await writer.write({"n": range(start, stop)})
        assert names(writer) == [f"part-{at:08d}.parquet" for at in range(4)]
        assert (writer.num_rows, writer.num_open_files) == (18, 1)
    assert names(writer) == [f"part-{at:08d}.parquet" for at in range(5)]
    assert [(file.first_row, file.num_rows, file.sequence) for file in writer.files] == [
        (0, 4, 0), (4, 4, 1), (8, 4, 2), (12, 4, 3), (16, 2, 4),
    ]  # fmt: skip
    assert [await read(store, file.url) for file in writer.files] == [
        list(range(at, min(at + 4, 18))) for at in range(0, 18, 4)
    ]
    for file in writer.files:
        assert file.size == (await store.head(file.url.removeprefix("memory:"))).size
    assert writer.num_rows_stored == 18


async def test_a_file_is_seen_as_soon_as_it_is_full_and_not_before() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), roll_rows=4) as writer:
        await writer.write({"n": range(3)})
        assert await store.list_names("set") == []
        await writer.write({"n": [3]})
        assert await store.list_names("set") == ["part-00000000.parquet"]
    assert await store.list_names("set") == ["part-00000000.parquet"]  # nothing was left for another one


async def test_files_of_about_so_many_bytes() -> None:
    """How rows compress is told from those before them, within a file and from one to the next."""
    store, noise = MemoryStore(), os.urandom(1 << 20)
    wanted = 200_000
    async with rpq.create_dataset((store, "set"), roll_bytes=wanted, row_group_bytes=50_000) as writer:
        for start in range(0, 1 << 20, 1 << 14):
            piece = noise[start : start + (1 << 14)]
            await writer.write({"b": [piece[at : at + 64] for at in range(0, 1 << 14, 64)]})
    *full, last = writer.files
    assert sum(file.num_rows for file in writer.files) == (1 << 20) // 64
    assert len(full) in range(4, 7)
    assert all(0.85 * wanted < file.size < 1.2 * wanted for file in full)
    assert last.size < 1.2 * wanted


async def test_rows_that_take_no_room() -> None:
    async with rpq.create_dataset((MemoryStore(), "set"), roll_bytes=1_500) as writer:
        for _ in range(3):
            await writer.write([{}, {}])
            await writer.checkpoint()
    assert sum(file.num_rows for file in writer.files) == 6


@pytest.mark.parametrize("before", ["a small file", "a checkpoint of one row"])
async def test_what_small_files_hold_besides_is_not_taken_for_rows(before: str) -> None:
    wanted = 200_000
    settings: dict[str, Any] = {"partition_by": "p", "roll_bytes": wanted, "max_open": 1, "compression": "none"}
    async with rpq.create_dataset((MemoryStore(), "set"), **settings) as writer:
        if before == "a small file":
            await writer.write({"b": [b"1"], "p": ["another"]})
        else:
            await writer.write({"b": [b"1"], "p": ["a"]})
            await writer.checkpoint()
        await writer.write({"b": [os.urandom(100) for _ in range(10_000)], "p": ["a"] * 10_000})
    *full, _ = (file for file in writer.files if file.partition == "p=a")
    assert all(0.85 * wanted < file.size < 1.2 * wanted for file in full)
    assert len(full) in range(4, 7)


async def test_a_large_batch_is_cut_where_a_file_is_full() -> None:
    """Also before anything is known of how it compresses."""
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), roll_bytes=100_000, compression="none") as writer:
        await writer.write({"b": [os.urandom(100) for _ in range(10_000)]})
    assert len(writer.files) in range(9, 12)
    assert sum(file.num_rows for file in writer.files) == 10_000


async def test_a_file_that_the_format_can_hold_no_more_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_policy, "MAX_ROW_GROUPS", 3)
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), row_group_rows=2) as writer:
        await writer.write({"n": range(5)})
        await writer.write({"n": range(5, 17)})
    assert [file.num_rows for file in writer.files] == [6, 6, 5]
    assert [row for file in writer.files for row in await read(store, file.url)] == list(range(17))


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time = 100.0
        self.asleep = asyncio.Event()
        self._moved = asyncio.Event()

    def now(self) -> float:
        return self.time

    async def sleep_until(self, when: float) -> None:
        while self.time < when:
            self.asleep.set()
            self._moved.clear()
            await self._moved.wait()

    def pass_by(self, seconds: float) -> None:
        self.time += seconds
        self.asleep.clear()
        self._moved.set()


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sink_state, "now", made.now)
    monkeypatch.setattr(sink_state, "sleep_until", made.sleep_until)
    return made


class Published(MemoryStore):
    """Tells when an object is there."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    async def put(self, *arguments: Any, **options: Any) -> Any:
        info = await super().put(*arguments, **options)
        self.event.set()
        return info


async def test_a_quiet_stream_publishes_too(time: Clock) -> None:
    store = Published()
    async with rpq.create_dataset((store, "set"), roll_seconds=60, partition_by="p") as writer:
        await writer.write({"n": [1], "p": ["a"]})
        await time.asleep.wait()
        time.pass_by(30)
        await writer.write({"n": [2, 3], "p": ["a", "b"]})
        await time.asleep.wait()
        time.pass_by(29.9)
        await time.asleep.wait()
        assert not writer.files
        time.pass_by(0.1)
        await store.event.wait()
        await writer.checkpoint()  # in its turn after that
        assert names(writer) == ["p=a/part-00000000.parquet"]
        store.event.clear()
        await writer.write({"n": [4], "p": ["a"]})
        await time.asleep.wait()
        time.pass_by(30)
        await store.event.wait()
        await writer.checkpoint()
        assert names(writer)[1:] == ["p=b/part-00000000.parquet"]
    assert names(writer)[2:] == ["p=a/part-00000001.parquet"]


async def test_the_timer_waits_for_the_next_file_when_none_is_open(time: Clock) -> None:
    store = Published()
    async with rpq.create_dataset((store, "set"), roll_seconds=60, roll_rows=2) as writer:
        for start in (0, 3):
            await writer.write({"n": range(start, start + 3)})
            await time.asleep.wait()
            store.event.clear()
            time.pass_by(61)
            await store.event.wait()
            await writer.checkpoint()
    assert [file.num_rows for file in writer.files] == [2, 1, 2, 1]


async def test_an_error_of_the_timer_is_told_by_the_next_call(time: Clock) -> None:
    store = FaultyStore(MemoryStore(), [Fault("complete", rpq.StoreError("no room"))])
    writer = await rpq.create_dataset((store, "set"), roll_seconds=60)
    await writer.write({"n": [1]})
    await time.asleep.wait()
    time.pass_by(60)
    with pytest.raises(rpq.WriterFailedError, match="no room"):
        while True:  # until the timer has had its turn
            await writer.checkpoint()
            await asyncio.sleep(0)
    with pytest.raises(rpq.WriterFailedError):
        await writer.close()
    assert writer.closed and not writer.files


# --- partitions -------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """The name of a value, by the rules alone."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return str(value).lower()
    return quote(str(value), safe="")


def split_by_hand(rows: list[dict[str, Any]], keys: list[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each partition in their order: what `partition_by` means."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        name = "/".join(f"{key}={text_of(row[key])}" for key in keys)
        found[name].append({key: value for key, value in row.items() if key not in keys})
    return dict(found)


ROWS_OF = {
    "day": st.one_of(st.none(), st.dates()),
    "text": st.one_of(
        st.none(), st.sampled_from(["", "a", "a b", "x/y", "=%", "ü", "..", "\x01"]), st.text(max_size=3)
    ),
    "small": st.one_of(st.none(), st.integers(-3, 3)),
    "large": st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    "flag": st.booleans(),
    "strings": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=3)),
    "pair": st.one_of(st.none(), st.fixed_dictionaries({"a": st.integers(0, 9), "b": st.text(max_size=2)})),
    "number": st.floats(allow_nan=False),
    "bits": st.one_of(st.none(), st.booleans()),
}
SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("text", pa.string()),
        ("strings", pa.list_(pa.large_string())),
        ("small", pa.int8()),
        ("large", pa.uint64()),
        ("number", pa.float64()),
        pa.field("flag", pa.bool_(), nullable=False),
        ("pair", pa.struct([("a", pa.int16()), ("b", pa.string())])),
        ("bits", pa.bool_()),
    ]
)


@given(
    st.lists(st.fixed_dictionaries(ROWS_OF), max_size=30).filter(lambda rows: all(row["text"] != NULL for row in rows)),
    st.lists(st.sampled_from(["day", "text", "small", "large", "flag"]), min_size=1, max_size=3, unique=True),
    st.integers(1, 30),
    st.integers(1, 12),
    st.integers(1, 4),
)
def test_any_rows_come_back_from_their_partitions(
    rows: list[dict[str, Any]], keys: list[str], batch_rows: int, roll_rows: int, max_open: int
) -> None:
    async def run() -> None:
        store = MemoryStore()
        settings: dict[str, Any] = {"partition_by": keys, "roll_rows": roll_rows, "max_open": max_open}
        async with rpq.create_dataset((store, "set"), SCHEMA, **settings) as writer:
            for start in range(0, len(rows), batch_rows):
                table = pa.Table.from_pylist(rows[start : start + batch_rows], SCHEMA)
                await writer.write(table)
                assert writer.num_open_files <= max_open
            taken = (await writer.checkpoint()).num_rows_by_partition
        expected = split_by_hand(rows, keys)
        assert taken == writer.num_rows_stored_by_partition == {name: len(each) for name, each in expected.items()}
        found: dict[str, list[Any]] = defaultdict(list)
        for file in sorted(writer.files, key=lambda each: each.sequence):
            assert file.first_row == len(found[file.partition])
            assert file.num_rows <= roll_rows
            async with rpq.open((store, file.url.removeprefix("memory:"))) as opened:
                found[file.partition] += (await opened.read()).to_pylist()
        assert found == expected

    asyncio.run(run())


PARTITIONED = pa.table(
    {
        "n": range(120),
        "day": pa.array([dt.date(2026, 8, 1 + i % 5) if i % 7 else None for i in range(120)]),
        "country": [["FR", "de la Réunion", "a/b=c", "", None, "100%"][i % 6] for i in range(120)],
        "flag": [bool(i % 2) for i in range(120)],
        "list": [[i, None] if i % 3 else None for i in range(120)],
    }
)


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partitioned")
    with sync.create_dataset(
        folder / "set", partition_by=["day", "country", "flag"], max_open=100, roll_rows=3
    ) as writer:
        for start in range(0, 120, 50):
            writer.write(PARTITIONED.slice(start, 50))
    return folder / "set"


def test_pyarrow_reads_it_back(partitioned: Path) -> None:
    keys = pa.schema([("day", pa.date32()), ("country", pa.string()), ("flag", pa.bool_())])
    found = ds.dataset(partitioned, partitioning=ds.partitioning(keys, flavor="hive")).to_table()
    assert found.sort_by("n").select(PARTITIONED.column_names).equals(PARTITIONED)


def test_duckdb_reads_it_back(partitioned: Path) -> None:
    query = f"""
        select n, day::date as day, country, flag::bool as flag, list
        from read_parquet('{partitioned}/**/*.parquet', hive_partitioning=true, hive_types_autocast=false) order by n
    """
    assert duckdb.sql(query).arrow().read_all().to_pylist() == PARTITIONED.to_pylist()


def test_polars_reads_it_back(partitioned: Path) -> None:
    types = {"day": pl.Date, "country": pl.String, "flag": pl.Boolean}
    found = pl.scan_parquet(partitioned, hive_partitioning=True, hive_schema=types).sort("n").collect()
    assert found.select(PARTITIONED.column_names).to_dicts() == PARTITIONED.to_pylist()


def test_the_folders_are_those_that_pyarrow_makes(partitioned: Path, tmp_path: Path) -> None:
    pq.write_to_dataset(PARTITIONED, tmp_path / "theirs", partition_cols=["day", "country", "flag"])
    folders = [
        {os.path.relpath(path, root) for path, _, files in os.walk(root) if files}
        for root in (partitioned, tmp_path / "theirs")
    ]
    assert folders[0] == folders[1]


async def test_rows_that_stand_together_are_not_copied_and_those_of_one_partition_neither() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), partition_by="p") as writer:
        await writer.write(pa.table({"p": ["b"] * 3 + ["a"] * 2, "n": range(5)}))
        await writer.write(pa.table({"p": ["a"] * 2, "n": range(5, 7)}))
    found = {file.partition: await read(store, file.url) for file in writer.files}
    assert found == {"p=b": [0, 1, 2], "p=a": [3, 4, 5, 6]}


async def test_dictionaries_and_views_name_partitions_too() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), partition_by=["d", "v"]) as writer:
        columns = {
            "d": pa.array(["x", "y", None, "x"]).dictionary_encode(),
            "v": pa.array(["long enough for a buffer", "s", "s", None], pa.string_view()),
            "n": pa.array(range(4)),
        }
        await writer.write(pa.table(columns))
    assert {file.partition for file in writer.files} == {
        "d=x/v=long%20enough%20for%20a%20buffer", "d=y/v=s", f"d={NULL}/v=s", f"d=x/v={NULL}",
    }  # fmt: skip


async def test_the_arrow_schema_of_the_files_is_the_one_of_the_rows_without_the_partitions() -> None:
    store = MemoryStore()
    schema = pa.schema([("p", pa.int32()), ("s", pa.large_string()), ("t", pa.timestamp("ns", "Europe/Paris"))])
    async with rpq.create_dataset((store, "set"), schema, partition_by="p", metadata={"mine": "kept"}) as writer:
        await writer.write({"p": [1], "s": ["x"], "t": [dt.datetime(2026, 8, 1, tzinfo=dt.UTC)]})
    async with rpq.open((store, "set/p=1/part-00000000.parquet")) as file:
        assert pa.schema(file.arrow_schema).remove_metadata() == schema.remove(0)
        assert file.key_value_metadata["mine"] == "kept"
        assert file.key_value_metadata["rpq.dataset"] == "0:0:part"


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        (pa.array([1.5]), "cannot name partitions"),
        (pa.array([[1]]), "cannot name partitions"),
        (pa.array([b"x"]), "cannot name partitions"),
        (pa.array([dt.datetime(2026, 8, 1)]), "the date of a timestamp"),
        (pa.array([{"a": 1}]), "cannot name partitions"),
        (pa.array([NULL]), "readers take for null"),
        (pa.array([-800_000], pa.int32()).cast(pa.date32()), "years 1 to 9999"),
        (pa.array(["é" * 43]), "too long for the name"),
    ],
)
async def test_what_cannot_name_a_partition_is_refused(column: pa.Array, hint: str) -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), partition_by="p") as writer:
        with pytest.raises(rpq.SchemaError, match=hint):
            await writer.write(pa.table({"p": column, "n": [1]}))
        assert writer.num_rows == 0
    assert await store.list_names("set") == []


async def test_a_batch_that_is_refused_leaves_no_row_behind() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), partition_by="p") as writer:
        await writer.write({"p": ["a", "b"], "n": [1, 2]})
        for wrong in ({"p": ["a", NULL], "n": [3, 4]}, {"p": ["a"], "n": ["text"]}, {"p": ["a"]}):
            with pytest.raises(rpq.SchemaError):
                await writer.write(wrong)
        await writer.write({"p": ["a"], "n": [5]})
    assert {file.partition: await read(store, file.url) for file in writer.files} == {"p=a": [1, 5], "p=b": [2]}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"partition_by": ["p", "p"]}, "twice"),
        ({"partition_by": "a/b"}, "name of a folder"),
        ({"partition_by": ["a=b"]}, "name of a folder"),
        ({"partition_by": [3]}, "name of a folder"),
        ({"partition_by": "_day"}, "name of a folder"),  # which Arrow passes over, with all rows in it
        ({"name": "_hidden"}, "beginning of the names"),
        ({"name": "a/b"}, "beginning of the names"),
        ({"roll_rows": 0}, "roll_rows is 0"),
        ({"roll_bytes": 1.5}, "roll_bytes is 1.5"),
        ({"roll_seconds": float("nan")}, "roll_seconds"),
        ({"max_open": 0}, "max_open is 0"),
        ({"on_error": "ignore"}, "on_error"),
        ({"row_group_bytes": 0}, "row_group_bytes"),
        ({"options": rpq.WriteOptions(checkpoint_log="log")}, "of a single file"),
        ({"options": rpq.WriteOptions(overwrite_partial=True)}, "of a single file"),
    ],
)
def test_settings_that_can_never_work_are_refused_at_once(settings: dict[str, Any], said: str) -> None:
    for begin in (rpq.create_dataset, rpq.resume_dataset):
        with pytest.raises(rpq.SchemaError, match=said):
            begin((MemoryStore(), "set"), **settings)


@pytest.mark.parametrize(("keys", "said"), [("x", "no column"), (["p", "n"], "every column")])
async def test_partitions_that_the_schema_has_not(keys: Any, said: str) -> None:
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    with pytest.raises(rpq.SchemaError, match=said):
        await rpq.create_dataset((MemoryStore(), "set"), schema, partition_by=keys)


# --- bounds -----------------------------------------------------------------------------------------------------


async def test_the_file_written_least_recently_makes_room() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), partition_by="p", max_open=2) as writer:
        for p in ("a", "b", "a", "c", "a", "b"):
            await writer.write({"p": [p], "n": [0]})
            assert writer.num_open_files <= 2
        assert names(writer) == ["p=b/part-00000000.parquet", "p=c/part-00000000.parquet"]
        await writer.write({"p": ["c", "b", "a"], "n": [0, 0, 0]})  # those that are open come first
        assert names(writer)[2:] == ["p=b/part-00000001.parquet"]


async def test_all_open_row_groups_share_the_memory_of_one() -> None:
    store = MemoryStore()
    most = 100_000
    async with rpq.create_dataset((store, "set"), partition_by="p", row_group_bytes=most) as writer:
        for at in range(60):
            size = 4_000 if at % 6 else 16_000
            await writer.write({"p": [at % 6], "b": [os.urandom(size)]})
            assert writer.num_bytes_buffered <= most
    groups = {}
    for file in writer.files:
        async with rpq.open((store, file.url.removeprefix("memory:"))) as opened:
            groups[file.partition] = opened.num_row_groups
    largest = groups.pop("p=0")
    assert largest > max(groups.values())  # the largest is closed first


# --- errors -----------------------------------------------------------------------------------------------------


async def test_files_of_the_name_are_not_mixed_with_others() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set")) as writer:
        await writer.write({"n": [1]})
    with pytest.raises(rpq.AlreadyExistsError, match="resume_dataset"):
        await rpq.create_dataset((store, "set"))
    with pytest.raises(rpq.SchemaError, match="partitioned by nothing"):
        await rpq.create_dataset((store, "set"), partition_by="p")
    async with rpq.create_dataset((store, "set"), name="other", partition_by="p") as writer:
        await writer.write({"n": [1], "p": [2]})
    async with rpq.create_dataset((store, ""), name="part") as writer:  # folders of other data sets do not count
        await writer.write({"n": [1]})
    assert await store.list_names("") == [
        "part-00000000.parquet", "set/p=2/other-00000000.parquet", "set/part-00000000.parquet",
    ]  # fmt: skip


async def test_two_sinks_of_one_name_never_both_write_a_file() -> None:
    store = MemoryStore()
    first = await rpq.create_dataset((store, "set"))
    second = await rpq.create_dataset((store, "set"))
    await first.write({"n": [1]})
    await second.write({"n": [2]})
    await first.close()
    with pytest.raises(rpq.AlreadyExistsError):
        await second.close()
    assert await read(store, "set/part-00000000.parquet") == [1]
    third = await rpq.resume_dataset((store, "set"))
    await third.write({"n": [3]})
    await third.close()
    assert names(third) == ["part-00000001.parquet"]


async def test_a_file_that_another_sink_has_begun(tmp_path: Path) -> None:
    first = await rpq.create_dataset(tmp_path)
    second = await rpq.create_dataset(tmp_path)
    await first.write({"n": [1]})
    with pytest.raises(rpq.AlreadyExistsError, match="name= of its own"):
        await second.write({"n": [2]})
    with pytest.raises(rpq.WriterFailedError):
        await second.write({"n": [2]})
    with pytest.raises(rpq.WriterFailedError):
        await second.close()
    with pytest.raises(rpq.AlreadyExistsError, match="another writer"):
        await rpq.resume_dataset(tmp_path)
    await first.close()
    assert pq.read_table(tmp_path / "part-00000000.parquet").to_pydict() == {"n": [1]}


async def test_after_an_exception_nothing_more_is_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (it is the caller's own)
        async with rpq.create_dataset(tmp_path, roll_rows=3, partition_by="p") as writer:
            await writer.write({"n": range(8), "p": ["a", "b"] * 4})
            await writer.checkpoint()
            raise ValueError
    assert [file.num_rows for file in writer.files] == [3, 3]
    kept = "2 files are published; 2 rows are kept in 2 unfinished files; resume them with rpq.resume_dataset"
    assert caught.value.__notes__ == [kept]
    assert writer.num_rows_stored == 8
    # What `rpq recover` makes of one file has no place in the data set.
    assert all(message.endswith("resume them with rpq.resume_dataset") for message in caplog.messages)
    assert len(caplog.messages) == 2
    with pytest.raises(rpq.WriterClosedError):
        await writer.write({"n": [1], "p": ["a"]})
    found = sorted(path.name for path in tmp_path.rglob("*.*"))
    assert found == ["part-00000000.parquet"] * 2 + ["part-00000001.parquet.partial"] * 2


async def test_after_an_exception_nothing_is_kept_if_so_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        async with rpq.create_dataset(tmp_path, roll_rows=3, on_error="abort") as writer:
            await writer.write({"n": range(5)})
            await writer.checkpoint()
            raise ValueError
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000000.parquet"]
    assert writer.num_rows_stored == 3


async def test_abort_removes_what_is_open(tmp_path: Path) -> None:
    writer = await rpq.create_dataset(tmp_path, roll_rows=3)
    await writer.write({"n": range(5)})
    await writer.checkpoint()
    await writer.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000000.parquet"]


@pytest.mark.parametrize("how", ["an error", "abort"])
async def test_when_one_file_cannot_be_left_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """No file stays open and locked, and the caller has its own error."""
    verb = "keep" if how == "an error" else "abort"
    left = getattr(LocalSink, verb)

    async def fails_for_one(sink: LocalSink) -> None:
        await left(sink)
        if "p=a" in sink.describe():
            raise rpq.StoreError("no room")

    monkeypatch.setattr(LocalSink, verb, fails_for_one)
    writer = await rpq.create_dataset(tmp_path, partition_by="p")
    await writer.write({"n": range(3), "p": ["a", "b", "c"]})
    await writer.checkpoint()
    if how == "abort":
        with pytest.raises(rpq.StoreError, match="no room"):
            await writer.abort()
    else:
        with pytest.raises(ConnectionError) as caught:
            async with writer:
                raise ConnectionError
        assert caught.value.__notes__ == [
            "one file was not left as it should be: no room",
            "3 rows are kept in 3 unfinished files; resume them with rpq.resume_dataset",
        ]
    async with rpq.resume_dataset(tmp_path, partition_by="p") as resumed:
        assert resumed.num_rows_stored == (0 if how == "abort" else 3)


async def test_when_one_file_is_not_published_the_others_are() -> None:
    store = FaultyStore(MemoryStore(), [Fault("complete", rpq.StoreError("no room"), skip=1)])
    writer = await rpq.create_dataset((store, "set"), partition_by="p")
    await writer.write({"n": range(3), "p": ["a", "b", "c"]})
    with pytest.raises(rpq.StoreError, match="no room"):
        await writer.close()
    assert sorted(names(writer)) == await store.list_names("set")
    assert len(writer.files) == 2
    assert writer.closed


@pytest.mark.parametrize("end", ["close", "abort", "error"])
async def test_nothing_is_held_when_it_has_ended(
    end: str, time: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its timer nor the store that it opened; and it takes no more rows."""
    closed = 0
    close = LocalStore.close

    async def counted(store: LocalStore) -> None:
        nonlocal closed
        closed += 1
        await close(store)

    monkeypatch.setattr(LocalStore, "close", counted)
    before = asyncio.all_tasks()
    writer = await rpq.create_dataset(tmp_path, roll_seconds=60)
    await writer.write({"n": [1]})
    await time.asleep.wait()
    assert asyncio.all_tasks() - before and not closed
    if end == "error":
        await writer.__aexit__(ConnectionError, ConnectionError(), None)
    else:
        await getattr(writer, end)()
    assert asyncio.all_tasks() == before
    assert writer.closed and closed == 1
    with pytest.raises(rpq.WriterClosedError):
        await writer.write({"n": [2]})
    await writer.close()
    assert len(writer.files) == (end == "close") and closed == 1


async def test_nothing_was_written() -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), roll_seconds=1) as writer:
        checkpoint = await writer.checkpoint()
    assert (checkpoint.num_rows, dict(checkpoint.num_rows_by_partition), writer.files) == (0, {}, ())
    assert await store.list_names("set") == []


async def test_what_a_store_without_durability_says() -> None:
    async with rpq.create_dataset((MemoryStore(), "set"), roll_rows=2) as writer:
        await writer.write({"n": [1, 2, 3]})
        assert (await writer.checkpoint()).state == "accepted"
        await writer.write({"n": [4]})
        assert (await writer.checkpoint()).state == "visible"


def test_the_sync_twin(tmp_path: Path) -> None:
    with sync.create_dataset(tmp_path, roll_rows=2) as writer:
        writer.write({"n": range(5)})
        assert writer.checkpoint().num_rows == 5
    assert [file.num_rows for file in writer.files] == [2, 2, 1]
    with sync.resume_dataset(tmp_path) as writer:
        assert writer.num_rows_stored == 5
