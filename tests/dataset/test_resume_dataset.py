"""A data set whose sink died at any moment: each stored row is in one finished file, once, and the next sink goes on."""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import warnings
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_wrapper import RecordingStore

import resilient_pq as rpq
from resilient_pq.io import LocalStore, MemoryStore, ObjectInfo, ObjectSink, Part, SinkOptions
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS
from resilient_pq.io.upload.multipart import MultipartSink
from resilient_pq.units import MiB


class Mortal(MemoryStore):
    """A store in memory that stores parts as S3 does, and whose client dies at one of its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: int | None = None  # Requests that are answered until then; None for any number
        self.after = False  # Whether the last one is still carried out, its answer lost
        self.num_requests = self.num_deleted = 0  # Those that changed something so far

    async def _request(self, request: Any) -> Any:
        if self.lives == 0:
            request.close()
            raise rpq.TransientError("the client is dead")
        self.num_requests += 1
        if self.lives is not None:
            self.lives -= 1
            if not self.lives:
                if self.after:
                    await request
                request.close()
                raise rpq.TransientError("the client died")
        return await request

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        if options.mode == "x":
            self._refuse_existing(key)
        return MultipartSink(self, key, options)

    async def put(self, *arguments: Any, **options: Any) -> ObjectInfo:
        info: ObjectInfo = await self._request(super().put(*arguments, **options))
        return info

    async def delete(self, *arguments: Any, **options: Any) -> None:
        self.num_deleted += 1
        await self._request(super().delete(*arguments, **options))

    async def create_upload(self, key: str) -> str:
        upload_id: str = await self._request(super().create_upload(key))
        return upload_id

    async def put_part(self, *arguments: Any) -> Part:
        part: Part = await self._request(super().put_part(*arguments))
        return part

    async def complete_upload(self, *arguments: Any, **options: Any) -> ObjectInfo:
        info: ObjectInfo = await self._request(super().complete_upload(*arguments, **options))
        return info

    async def abort_upload(self, key: str, upload_id: str) -> None:
        await self._request(super().abort_upload(key, upload_id))


@dataclass(frozen=True)
class Step:
    """A batch of a stream, or a checkpoint."""

    partitions: Sequence[int]  # Of each row, its partition
    checkpoint: bool  # Whether one is asked for behind the rows


SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.int64()), ("noise", pa.binary())])


class Stream:
    """A source of rows, which can begin again at any step, and what its sinks have promised."""

    def __init__(self, steps: Sequence[Step], settings: dict[str, Any], *, row_bytes: int = 0) -> None:
        self.steps = steps
        self.settings = {"partition_by": "p", **settings}
        self.row_bytes = row_bytes
        self.at = 0  # the step that follows the last checkpoint
        self.promised: dict[str, int] = {}
        self.num_runs = 0

    def batch(self, at: int) -> pa.Table:
        first = sum(len(step.partitions) for step in self.steps[:at])
        partitions = self.steps[at].partitions
        rows = range(first, first + len(partitions))
        noise = [random.Random(row).randbytes(self.row_bytes) for row in rows]
        return pa.table(
            {"n": pa.array(rows, pa.int64()), "p": pa.array(partitions, pa.int64()), "noise": noise}, SCHEMA
        )

    @property
    def rows(self) -> dict[str, list[int]]:
        """All rows by partition."""
        found: dict[str, list[int]] = defaultdict(list)
        for row, partition in enumerate(p for step in self.steps for p in step.partitions):
            found[f"p={partition}"].append(row)
        return dict(found)

    async def run(self, dst: Any) -> None:
        """Write what is left, behind what a sink before has stored."""
        self.num_runs += 1
        async with rpq.resume_dataset(dst, replay_from=self.promised, **self.settings) as sink:
            stored = sink.num_rows_stored_by_partition
            assert all(stored.get(name, 0) >= rows for name, rows in self.promised.items())
            for at in range(self.at, len(self.steps)):
                await sink.write(self.batch(at))
                assert sink.num_open_files <= self.settings.get("max_open", 32)
                # What is replayed has checkpoints at other places, as by a clock.
                if self.steps[at].checkpoint or self.num_runs > 1:
                    checkpoint = await sink.checkpoint()
                    assert checkpoint.state in ("stored", "visible")
                    self.at, self.promised = at + 1, dict(checkpoint.num_rows_by_partition)

    async def check(self, store: MemoryStore, *, roll_rows: int) -> None:
        """Each row is in one file, those of a partition in their order, and files have neither gaps nor more rows."""
        found: dict[str, list[int]] = defaultdict(list)
        for name in await store.list_names("set"):
            partition, _, file = name.partition("/")
            async with rpq.open((store, f"set/{name}")) as opened:
                rows = (await opened.read(columns=["n"])).to_pydict()["n"]
                key = opened.key_value_metadata["rpq.dataset"]
            assert key == f"{len(found[partition])}:{int(file[5:13])}:part"
            assert len(rows) <= roll_rows
            found[partition] += rows
        assert {name: rows for name, rows in found.items() if rows} == self.rows
        assert await store.list_uploads("") == []


steps = st.lists(st.builds(Step, st.lists(st.integers(0, 3), max_size=12), st.booleans()), min_size=1, max_size=8)


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
@given(
    steps,
    st.integers(1, 9),
    st.integers(1, 4),
    st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=4),
)
def test_a_sink_that_dies_at_any_request(
    steps: list[Step], roll_rows: int, max_open: int, deaths: list[tuple[int, bool]]
) -> None:
    async def run() -> None:
        store = Mortal()
        stream = Stream(steps, {"roll_rows": roll_rows, "max_open": max_open, "checkpoint_every": 1})
        for lives, after in deaths:
            store.lives, store.after = lives, after
            try:
                await stream.run((store, "set"))
            except (rpq.StoreError, rpq.WriterFencedError):
                assert store.lives == 0
            else:
                break
        store.lives = None
        await stream.run((store, "set"))
        await stream.check(store, roll_rows=roll_rows)

    asyncio.run(run())


async def die_everywhere(stream_of: Any, *, roll_rows: int, after: bool) -> int:
    """A sink that dies at its first request, at its second, and so on; and the sink after it likewise, at each."""
    store = Mortal()
    await stream_of().run((store, "set"))
    total = store.num_requests
    for lives in range(1, total + 1):
        store, stream = Mortal(), stream_of()
        store.lives, store.after = lives, after
        try:
            await stream.run((store, "set"))
        except (rpq.StoreError, rpq.WriterFencedError):
            assert store.lives == 0
        else:
            assert store.num_deleted and store.lives == 0, "only the removal of an epoch object may fail"
        store.lives = 1 + lives % 5  # within what it resumes, or soon after
        try:
            await stream.run((store, "set"))
        except (rpq.StoreError, rpq.WriterFencedError):
            assert store.lives == 0
        store.lives = None
        await stream.run((store, "set"))
        await stream.check(store, roll_rows=roll_rows)
    return total


def large_parts(seed: int) -> Stream:
    """Files of several parts, and partitions that are open at one time."""
    rng = random.Random(seed)
    made = [Step([rng.randrange(2) for _ in range(rng.randint(1, 12))], rng.random() < 0.5) for _ in range(6)]
    options = rpq.WriteOptions(part_bytes=MiB, max_part_bytes=MiB)
    settings = {"roll_rows": 9, "compression": "none", "row_group_rows": 3, "options": options}
    return Stream(made, settings, row_bytes=300_000)


@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
@pytest.mark.parametrize("after", [False, True])
async def test_a_sink_that_dies_at_every_request_of_a_small_run(after: bool) -> None:
    small = [Step([0, 1, 0], True), Step([1, 0], False), Step([0, 0, 1], True)]
    await die_everywhere(lambda: Stream(small, {"roll_rows": 3}), roll_rows=3, after=after)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("seed", range(4))
async def test_a_sink_that_dies_at_every_request_of_files_of_many_parts(seed: int, after: bool) -> None:
    assert await die_everywhere(lambda: large_parts(seed), roll_rows=9, after=after) > 20


# --- what is left, one case at a time ---------------------------------------------------------------------------


async def sink_that_dies(dst: Any, *, rows: int = 5, **settings: Any) -> None:
    """Leaves an unfinished file with stored rows, and rows behind them that are not."""
    writer = await rpq.create_dataset(dst, roll_rows=10, **settings)
    await writer.write({"n": range(rows)})
    await writer.checkpoint()
    await writer.write({"n": range(rows, rows + 2)})
    with pytest.raises(ConnectionError):
        async with writer:
            raise ConnectionError


async def test_a_local_file_is_finished_in_place(tmp_path: Path) -> None:
    await sink_that_dies(tmp_path)
    partial = tmp_path / "part-00000000.parquet.partial"
    before = partial.read_bytes()
    inode = partial.stat().st_ino
    async with rpq.resume_dataset(tmp_path, roll_rows=10) as writer:
        assert writer.num_rows_stored_by_partition == {"": 5}
        (file,) = writer.files
        assert (file.num_rows, file.first_row, file.sequence) == (5, 0, 0)
        await writer.write({"n": range(5, 8)})
    finished = tmp_path / "part-00000000.parquet"
    assert finished.stat().st_ino == inode  # nothing was copied
    assert finished.read_bytes().startswith(before[: len(before) // 2])
    assert (await rpq.check(finished)).outcome == "sound"
    assert [pq.read_table(path)["n"].to_pylist() for path in sorted(tmp_path.iterdir())] == [
        list(range(5)),
        list(range(5, 8)),
    ]


async def test_an_upload_becomes_an_object_of_what_was_stored() -> None:
    store = Mortal()
    await sink_that_dies((store, "set"))
    writer = await rpq.resume_dataset((store, "set"))
    assert writer.num_rows_stored_by_partition == {"": 5}
    assert [file.url for file in writer.files] == ["memory:set/part-00000000.parquet"]
    await writer.close()
    with pytest.warns(rpq.IncompleteFileWarning):
        async with rpq.open((store, "set/part-00000000.parquet")) as file:
            assert file.state == "in-progress"
            assert file.num_rows == 5
    assert await store.list_names("set") == ["part-00000000.parquet"]


async def test_a_file_behind_which_the_next_one_stands_is_known_to_have_ended() -> None:
    store = Mortal()
    await sink_that_dies((store, "set"))
    async with rpq.resume_dataset((store, "set")) as writer:
        with pytest.warns(rpq.IncompleteFileWarning):
            await rpq.open_many((store, "set"))
        await writer.write({"n": [5]})
    with warnings.catch_warnings(action="error"):
        async with rpq.open_many((store, "set")) as found:
            assert [file.state for file in found.files] == ["in-progress", "complete"]
            assert (await found.read()).num_rows == 6
    # One that was cut short since is not what the next one counted.
    file = await rpq.create_dataset((store, "cut"))
    await file.write({"n": [1]})
    await file.checkpoint()
    await rpq.resume_dataset((store, "cut"))
    tail = await store.read_tail("cut/part-00000000.parquet", 1 << 20)
    await store.put("set/part-00000000.parquet", tail.data)
    with pytest.warns(rpq.IncompleteFileWarning):
        await rpq.open_many((store, "set"))


async def test_a_sink_that_was_not_dead_is_fenced() -> None:
    store = Mortal()
    first = await rpq.create_dataset((store, "set"), partition_by="p")
    await first.write({"n": range(5), "p": ["a"] * 5})
    await first.checkpoint()
    second = await rpq.resume_dataset((store, "set"), partition_by="p")
    await first.write({"n": [5], "p": ["a"]})
    with pytest.raises(rpq.WriterFencedError):
        await first.checkpoint()
    with pytest.raises(rpq.WriterFailedError):
        await first.close()
    await second.write({"n": [6], "p": ["a"]})
    await second.close()
    assert [file.first_row for file in second.files] == [0, 5]


async def test_a_file_that_is_published_while_a_sink_looks() -> None:
    """The last request of a writer that was killed may still be on its way."""
    store = Mortal()
    first = await rpq.create_dataset((store, "set"))
    await first.write({"n": range(5)})
    await first.checkpoint()
    looked = 0

    class Late(Mortal):
        async def list_names(self, folder: str) -> list[str]:
            found = await store.list_names(folder)
            await arrived()
            return found

        async def list_uploads(self, prefix: str) -> Any:
            found = await store.list_uploads(prefix)
            await arrived()
            return found

    async def arrived() -> None:
        nonlocal looked
        looked += 1
        if looked == 1:
            await first.close()

    late = Late()
    late.__dict__ = store.__dict__  # one and the same store, that the first sink holds as it is
    async with rpq.resume_dataset((late, "set")) as second:
        assert second.num_rows_stored == 5
        await second.write({"n": [5]})
    assert [file.first_row for file in second.files] == [5]


async def test_a_local_sink_that_lives_keeps_its_file(tmp_path: Path) -> None:
    first = await rpq.create_dataset(tmp_path)
    await first.write({"n": [1]})
    with pytest.raises(rpq.AlreadyExistsError, match="another writer"):
        await rpq.resume_dataset(tmp_path)
    await first.write({"n": [2]})
    await first.close()
    async with rpq.resume_dataset(tmp_path) as second:
        assert second.num_rows_stored == 2


async def test_where_there_is_nothing_yet(tmp_path: Path) -> None:
    async with rpq.resume_dataset(tmp_path / "new" / "set", roll_rows=2) as writer:
        assert (writer.num_rows_stored, writer.files) == (0, ())
        await writer.write({"n": range(3)})
    assert [file.num_rows for file in writer.files] == [2, 1]


async def test_a_file_of_which_nothing_was_stored_is_removed(tmp_path: Path) -> None:
    writer = await rpq.create_dataset(tmp_path)
    await writer.write({"n": [1]})
    partial = tmp_path / "part-00000000.parquet.partial"
    begun = partial.read_bytes()
    await writer.abort()
    for left in (begun, begun[:200], begun[:99], begun[:3], b"", bytes(5000)):
        partial.write_bytes(left)
        writer = await rpq.resume_dataset(tmp_path)
        assert (writer.num_rows_stored, writer.files) == (0, ())
        await writer.close()
        assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_damaged_is_not_removed(tmp_path: Path) -> None:
    await sink_that_dies(tmp_path)
    partial = tmp_path / "part-00000000.parquet.partial"
    for damaged in (b"another file", b"PAR1" + os.urandom(200), b"PAR1" + os.urandom(2 * MiB)):
        partial.write_bytes(damaged)
        with pytest.raises(rpq.RecoveryError):
            await rpq.resume_dataset(tmp_path)
        assert partial.read_bytes() == damaged


async def test_a_file_that_has_both_names(tmp_path: Path) -> None:
    """Its writer died after the file got its name, and before the other one was removed."""
    await sink_that_dies(tmp_path)
    async with rpq.resume_dataset(tmp_path):
        pass
    finished = tmp_path / "part-00000000.parquet"
    os.link(finished, f"{finished}.partial")
    before = finished.read_bytes()
    async with rpq.resume_dataset(tmp_path) as writer:
        assert writer.num_rows_stored == 5
        await writer.write({"n": [5]})
    assert finished.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [finished.name, "part-00000001.parquet"]


@pytest.mark.parametrize("overwrite_partial", [False, True])
async def test_a_single_file_that_has_both_names_is_not_cut(tmp_path: Path, overwrite_partial: bool) -> None:
    """The same of `create` and of `resume`: the very file would be emptied that is published."""
    path = tmp_path / "f.parquet"
    async with rpq.create(path) as writer:
        await writer.write({"n": [1]})
    before = path.read_bytes()
    os.link(path, f"{path}.partial")
    with pytest.raises(rpq.RecoveryError, match="complete"):
        await rpq.resume(path, overwrite=True)
    os.link(path, f"{path}.partial")
    options = rpq.WriteOptions(overwrite_partial=overwrite_partial)
    writer = await rpq.create(path, options=options)
    assert path.read_bytes() == before
    await writer.write({"n": [2]})
    await writer.close()
    assert pq.read_table(path).to_pydict() == {"n": [2]}


async def test_an_upload_that_was_never_used_is_aborted() -> None:
    """The answer to its beginning was lost, and another one was begun and completed."""
    store = Mortal()
    async with rpq.create_dataset((store, "set"), roll_rows=2) as writer:
        await writer.write({"n": range(4)})
    for name in ("part-00000001.parquet", "part-00000002.parquet"):
        await store.create_upload(f"set/{name}")
    async with rpq.resume_dataset((store, "set")) as writer:
        assert writer.num_rows_stored == 4
    assert await store.list_uploads("") == []


async def test_rows_of_two_sinks_are_for_somebody_to_decide() -> None:
    store = Mortal()
    await sink_that_dies((store, "set"))
    (upload,) = await store.list_uploads("")
    data = await rpq.create_dataset((store, "elsewhere"))
    await data.write({"n": [1]})
    await data.close()
    tail = await store.read_tail("elsewhere/part-00000000.parquet", 1 << 20)
    await store.put("set/part-00000000.parquet", tail.data)
    with pytest.raises(rpq.RecoveryError, match=f"two sinks.*{upload.upload_id}"):
        await rpq.resume_dataset((store, "set"))
    assert await store.list_uploads("") == [upload]
    await store.delete("set/part-00000000.parquet")
    async with rpq.resume_dataset((store, "set")) as writer:
        assert writer.num_rows_stored == 5


async def test_only_files_of_the_name_and_the_folder_are_looked_at(tmp_path: Path) -> None:
    await sink_that_dies(tmp_path, name="other")
    await sink_that_dies(tmp_path / "below")
    (tmp_path / "part-0.parquet").write_bytes(b"somebody's")
    (tmp_path / "part-00000007.parquet.tmp").write_bytes(b"somebody's")
    async with rpq.resume_dataset(tmp_path) as writer:
        assert (writer.num_rows_stored, writer.files) == (0, ())
    assert (tmp_path / "other-00000000.parquet.partial").exists()
    assert (tmp_path / "below" / "part-00000000.parquet.partial").exists()


async def test_a_file_that_somebody_made_anew_is_not_believed(tmp_path: Path) -> None:
    async with rpq.create_dataset(tmp_path, roll_rows=2) as writer:
        await writer.write({"n": range(6)})
    newest = tmp_path / "part-00000002.parquet"
    others = tmp_path / "part-00000001.parquet"
    whole = newest.read_bytes()
    anew = pa.BufferOutputStream()
    pq.write_table(pq.read_table(newest), anew)
    for content in (others.read_bytes(), anew.getvalue().to_pybytes()):
        newest.write_bytes(content)
        with pytest.raises(rpq.RecoveryError, match="does not say how many rows"):
            await rpq.resume_dataset(tmp_path)
    newest.write_bytes(whole)
    others.unlink()  # only the newest counts
    async with rpq.resume_dataset(tmp_path) as writer:
        assert writer.num_rows_stored == 6


# --- a source that begins again ---------------------------------------------------------------------------------


async def test_rows_that_are_stored_are_passed_over(tmp_path: Path) -> None:
    settings = {"partition_by": "p", "roll_rows": 4}
    rows = {"n": list(range(20)), "p": [i % 3 for i in range(20)]}
    async with rpq.create_dataset(tmp_path, **settings) as writer:
        await writer.write({name: values[:7] for name, values in rows.items()})
        checkpoint = await writer.checkpoint()
        await writer.write({name: values[7:12] for name, values in rows.items()})
    async with rpq.resume_dataset(tmp_path, replay_from=checkpoint, **settings) as writer:
        for start in range(7, 20, 3):
            await writer.write({name: values[start : start + 3] for name, values in rows.items()})
    assert writer.num_rows == 20
    async with rpq.resume_dataset(tmp_path, replay_from={}, **settings) as writer:
        await writer.write(rows)
    assert not writer.files
    found = sorted(row for path in tmp_path.rglob("*.parquet") for row in pq.ParquetFile(path).read()["n"].to_pylist())
    assert found == list(range(20))


@pytest.mark.parametrize("rows", [{"p=a": 3}, {"p=b": 1}])
async def test_a_source_that_begins_too_late(rows: dict[str, int]) -> None:
    store = MemoryStore()
    async with rpq.create_dataset((store, "set"), partition_by="p") as writer:
        await writer.write({"n": range(2), "p": ["a", "a"]})
    with pytest.raises(rpq.RecoveryError, match="rows would be missing"):
        await rpq.resume_dataset((store, "set"), partition_by="p", replay_from=rows)


@pytest.mark.parametrize("rows", [3, {"": -1}, {"": "2"}, {"": 1.5}, {"": None}], ids=str)
async def test_a_source_that_names_no_rows(rows: Any) -> None:
    """Fewer rows than none would have rows passed over that are not stored."""
    with pytest.raises(rpq.SchemaError, match="replay_from"):
        rpq.resume_dataset((MemoryStore(), "set"), replay_from=rows)


async def test_a_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.make_folder("a/b/c")
    await store.make_folder("a/b/c/")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(rpq.StoreError, match="file"):
        await store.make_folder("file/below")


# --- one owner


class Versions(Mortal):
    """Lists every version of a part and completes with an older one, as SeaweedFS does."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, Part, bytes]] = []

    async def put_part(self, key: str, upload_id: str, number: int, data: Any) -> Part:
        part = await super().put_part(key, upload_id, number, data)
        self.sent.append((upload_id, *self._uploads[upload_id].parts[number]))
        return part

    async def complete_upload(self, key: str, upload_id: str, parts: Sequence[Part], **rest: Any) -> ObjectInfo:
        for name, part, content in self.sent:
            if name == upload_id and part in parts:
                self._upload(key, upload_id).parts[part.number] = part, content
        return await super().complete_upload(key, upload_id, parts, **rest)


class Pausing(Versions):
    """Lets something else happen between the listing of an upload and its completion."""

    meanwhile: Any = None

    async def complete_upload(self, *arguments: Any, **rest: Any) -> ObjectInfo:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().complete_upload(*arguments, **rest)


@pytest.mark.parametrize("fencing", ["lease", "none"])
async def test_a_sink_that_wakes_while_another_takes_over(fencing: Any) -> None:
    """What it stores after its parts were listed is lost on such a store: with a lease it is never told otherwise."""
    store = Pausing()
    zombie = await rpq.create_dataset((store, "d"), roll_rows=100, fencing=fencing)
    await zombie.write({"n": list(range(10))})
    await zombie.checkpoint()
    told: list[int] = []

    async def wake() -> None:
        await zombie.write({"n": list(range(10, 20))})
        with suppress(rpq.WriterFencedError):
            told.append((await zombie.checkpoint()).num_rows)

    store.meanwhile = wake
    sink = await rpq.resume_dataset((store, "d"), fencing=fencing)
    assert sink.num_rows_stored == 10
    assert told == ([] if fencing == "lease" else [20])


async def test_one_who_resumes_is_told_that_another_was_quicker() -> None:
    """The upload that it is about to complete is no more: it has not vanished, it is the other one's."""
    store = Pausing()
    sink = await rpq.create_dataset((store, "d"), roll_rows=100)
    await sink.write({"n": list(range(10))})
    await sink.checkpoint()
    quicker: list[int] = []

    async def resume() -> None:
        async with rpq.resume_dataset((store, "d"), roll_rows=100) as other:
            quicker.append(other.num_rows_stored)

    store.meanwhile = resume
    with pytest.raises(rpq.WriterFencedError) as caught:
        await rpq.resume_dataset((store, "d"), roll_rows=100)
    assert quicker == [10] and caught.value.hint


async def test_two_sinks_that_begin_the_same_file() -> None:
    store = Mortal()
    sinks = [await rpq.create_dataset((store, "d"), roll_rows=100) for _ in range(2)]
    for sink in sinks:
        await sink.write({"n": list(range(10))})
    assert (await sinks[1].checkpoint()).state == "stored"
    with pytest.raises(rpq.WriterFencedError):
        await sinks[0].checkpoint()
    await sinks[1].close()
    assert await store.list_names("d") == ["part-00000000.parquet"]


async def test_a_sink_that_was_killed_when_it_had_announced_a_file() -> None:
    """Nothing stands in the way of the one that comes next."""
    for lives in range(1, 9):
        store = Mortal()
        sink = await rpq.create_dataset((store, "d"), roll_rows=100)
        await sink.write({"n": list(range(10))})
        store.lives = lives
        with suppress(rpq.StoreError, rpq.WriterFailedError):
            await sink.checkpoint()
            await sink.close()
        store.lives = None
        async with rpq.resume_dataset((store, "d"), roll_rows=100) as sink:
            await sink.write({"n": list(range(sink.num_rows_stored, 20))})
            await sink.checkpoint()
        async with rpq.open_many((store, "d")) as dataset:
            assert (await dataset.read()).to_pylist() == [{"n": n} for n in range(20)]
        left = [name for name in await store.list_names("d") if not name.endswith(".parquet")]
        assert not left and not await store.list_uploads("")


@pytest.mark.parametrize(("fencing", "requests"), [("lease", 6), ("none", 1)])
async def test_what_a_small_file_of_a_data_set_costs(fencing: Any, requests: int) -> None:
    """An upload, since one who takes over can end that, between the first and the last version of its epoch object."""
    store = Mortal()
    async with rpq.create_dataset((store, "d"), roll_rows=10, fencing=fencing) as sink:
        await sink.write({"n": list(range(40))})
    assert store.num_requests == 4 * requests


role: contextvars.ContextVar[str] = contextvars.ContextVar("role", default="")


class TwoSinks(RecordingStore):
    """Before one of the second sink's requests the first begins, and sleeps before one of its own until it is woken."""

    def __init__(self, begin_at: int, sleep_at: int) -> None:
        super().__init__(MemoryStore())
        self.left = {"second": begin_at, "first": sleep_at}
        self.sleeps, self.woken = asyncio.Event(), asyncio.Event()
        self.first: asyncio.Task[None] | None = None

    async def create(self, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        if options.mode == "x" and await self.exists(key):
            raise rpq.AlreadyExistsError("the object exists already")
        return MultipartSink(self, key, options)

    async def _do(self, call: Any, action: Any) -> Any:
        who = role.get()
        if who and self.left[who] == 0:
            if who == "first":
                self.sleeps.set()
                await self.woken.wait()
            else:
                self.first = asyncio.create_task(self.publish())
                sleeping = asyncio.create_task(self.sleeps.wait())
                await asyncio.wait([self.first, sleeping], return_when=asyncio.FIRST_COMPLETED)
                sleeping.cancel()
        if who:
            self.left[who] -= 1
        return await super()._do(call, action)

    async def publish(self) -> None:
        role.set("first")
        with suppress(rpq.ResilientPQError):
            async with rpq.create_dataset((self, "d")) as sink:
                await sink.write({"n": [-1, -2]})

    async def store_rows(self) -> int:
        role.set("second")
        sink = await rpq.resume_dataset((self, "d"))
        await sink.write({"n": [1, 2, 3]})
        assert (await sink.checkpoint()).state == "stored"
        return sink.num_rows_stored


async def test_a_small_file_is_not_published_over_what_another_sink_was_told_to_be_stored() -> None:
    store = Mortal()
    sinks = [await rpq.resume_dataset((store, "d")) for _ in range(2)]
    for sink in sinks:
        await sink.write({"n": list(range(3))})
    assert (await sinks[0].checkpoint()).state == "stored"
    with pytest.raises(rpq.WriterFencedError):
        await sinks[1].close()
    await sinks[0].write({"n": [3]})
    await sinks[0].close()
    async with rpq.open_many((store, "d")) as dataset:
        assert (await dataset.read()).to_pylist() == [{"n": n} for n in range(4)]


@pytest.mark.parametrize("begin_at", range(15))
async def test_a_sink_that_sleeps_while_it_publishes_a_small_file(begin_at: int) -> None:
    """Whichever request it sleeps before, and whichever one of the next sink's it begins at."""
    num_asleep = num_told = 0
    for sleep_at in range(16):
        store, told = TwoSinks(begin_at, sleep_at), 0
        with suppress(rpq.ResilientPQError):
            told = await asyncio.create_task(store.store_rows())
        num_asleep += store.sleeps.is_set()
        store.woken.set()
        if store.first is not None:
            await store.first
        if told:
            num_told += 1
            async with rpq.resume_dataset((store, "d")) as sink:
                assert sink.num_rows_stored == told, sleep_at
    assert num_told and (num_asleep or begin_at > 10)
