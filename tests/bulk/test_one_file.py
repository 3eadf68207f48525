"""What is done with one file of many: it raises nothing, can be sent elsewhere, and says what `check` and `recover` say."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import resilient_pq as rpq
from resilient_pq.bulk.file_task import RecoverOptions, check_one, recover_one
from resilient_pq.bulk.run_summary import FileEntry
from resilient_pq.io import Stores
from resilient_pq.recovery import check as checking
from resilient_pq.recovery.report import Kept

TABLE = pa.table({"id": list(range(400)), "name": [f"n{i}" for i in range(400)]})
OPTIONS = RecoverOptions(make_folder=True)


def foreign(path: Path, table: pa.Table = TABLE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=100)
    return path


def footless(path: Path, table: pa.Table = TABLE) -> Path:
    """A file of pyarrow without its footer."""
    data = foreign(path, table).read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    path.write_bytes(data[:-footer])
    return path


@pytest.fixture
def flipped(tmp_path: Path) -> Path:
    path = tmp_path / "flipped.parquet"
    with rpq.sync.create(path, row_group_rows=100) as writer:
        writer.write(TABLE)
    with rpq.sync.open(path) as file:
        chunk = file.metadata.row_groups[1].columns[0].meta_data
    assert chunk is not None
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + chunk.total_compressed_size - 5] ^= 1  # of the data page, which stands last
    path.write_bytes(data)
    return path


async def test_a_check_says_what_check_says(flipped: Path) -> None:
    result = await check_one(str(flipped))
    assert result.report == await rpq.check(flipped)
    assert (result.verb, result.url, result.outcome, result.exit_code) == ("check", str(flipped), "damaged", 1)
    assert result.to_json() == result.report.to_json()
    assert pickle.loads(pickle.dumps(result)) == result


async def test_an_error_concerns_one_file_and_is_told(tmp_path: Path) -> None:
    missing = await check_one(tmp_path / "missing.parquet")
    assert (missing.outcome, missing.exit_code, missing.report) == ("error", 4, None)
    assert missing.error is not None and missing.error.type == "NotFoundError"
    document = missing.to_json()
    assert document["error"]["where"]["key"] == document["url"] == str(tmp_path / "missing.parquet")
    assert pickle.loads(pickle.dumps(missing)) == missing
    unknown = await check_one("nosuchscheme://a/b.parquet")
    assert (unknown.url, unknown.exit_code) == ("nosuchscheme://a/b.parquet", 2)


async def test_a_mistake_of_ours_is_told_with_its_place(flipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def mistaken(*_: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(checking, "reconstruct", mistaken)
    result = await check_one(flipped)
    assert result.error is not None and result.exit_code == 70
    assert "report it" in (result.error.hint or "") and any("mistaken" in note for note in result.to_json()["notes"])


async def test_a_recovery_makes_its_folder_and_says_what_recover_says(flipped: Path, tmp_path: Path) -> None:
    dst = tmp_path / "deep" / "er" / "out.parquet"
    result = await recover_one(flipped, dst, OPTIONS)
    expected = await rpq.recover(flipped, tmp_path / "other.parquet")
    assert result.report is not None and result.report.kept is not None and expected.kept is not None
    assert (result.outcome, result.report.kept.num_rows) == (expected.outcome, expected.kept.num_rows)
    assert pq.read_table(dst).num_rows == result.report.num_rows == 300
    assert pickle.loads(pickle.dumps(result)).to_json() == result.to_json()
    again = await recover_one(flipped, dst, OPTIONS)
    assert again.error is not None and (again.error.type, again.exit_code) == ("AlreadyExistsError", 4)


async def test_only_damaged_files_are_written(flipped: Path, tmp_path: Path) -> None:
    options = RecoverOptions(only_damaged=True, make_folder=True)
    sound = foreign(tmp_path / "sound.parquet")
    result = await recover_one(sound, tmp_path / "out" / "sound.parquet", options)
    assert result.is_sound and result.report is not None and result.report.kept is not None
    assert (result.report.kept, result.report.num_rows) == (Kept(None, 0, 0, 0), 400)
    assert not (tmp_path / "out").exists()
    result = await recover_one(flipped, tmp_path / "out" / "flipped.parquet", options)
    assert result.outcome == "partial" and (tmp_path / "out" / "flipped.parquet").exists()
    result = await recover_one(flipped, tmp_path / "out" / "flipped.parquet", options)
    assert result.error is not None and result.error.type == "AlreadyExistsError"


async def test_nothing_to_recover_is_a_report(tmp_path: Path) -> None:
    path = tmp_path / "noise.parquet"
    path.write_bytes(b"no Parquet at all" * 10)
    result = await recover_one(path, tmp_path / "out" / "noise.parquet", OPTIONS)
    assert (result.outcome, result.exit_code, result.error) == ("nothing", 3, None)
    assert not (tmp_path / "out").exists()


async def test_a_sibling_tells_the_schema(tmp_path: Path) -> None:
    damaged = footless(tmp_path / "b.parquet")
    sibling = foreign(tmp_path / "c.parquet")
    torn = footless(tmp_path / "a.parquet")
    result = await recover_one(damaged, tmp_path / "out.parquet", OPTIONS, schema_from=[torn, sibling])
    assert result.report is not None and result.report.schema_from == str(sibling)
    assert result.to_json()["schema_from"] == str(sibling)
    assert [str(sibling) in finding.message for finding in result.report.findings].count(True) == 1
    assert pq.read_table(tmp_path / "out.parquet").equals(TABLE)


async def test_a_sibling_that_does_not_fit_is_not_believed(tmp_path: Path) -> None:
    damaged = footless(tmp_path / "b.parquet")
    other = foreign(tmp_path / "other.parquet", pa.table({"x": [1.5], "y": [True], "z": [2]}))
    result = await recover_one(damaged, tmp_path / "out.parquet", OPTIONS, schema_from=[other])
    assert result.report is not None and result.report.schema_from is None
    assert any("do not fit" in finding.message for finding in result.report.findings)
    assert pq.read_table(tmp_path / "out.parquet").column(0).to_pylist() == TABLE.column("id").to_pylist()
    right = foreign(tmp_path / "right.parquet")
    result = await recover_one(damaged, tmp_path / "again.parquet", OPTIONS, schema_from=[other, right])
    assert result.report is not None and result.report.schema_from == str(right)
    assert pq.read_table(tmp_path / "again.parquet").equals(TABLE)


async def test_of_siblings_that_differ_in_names_only_the_likelier_is_taken_and_told(tmp_path: Path) -> None:
    damaged = footless(tmp_path / "b.parquet")
    near = foreign(tmp_path / "near.parquet")
    far = foreign(tmp_path / "far.parquet", TABLE.rename_columns(["other", "words"]))
    result = await recover_one(damaged, tmp_path / "out.parquet", OPTIONS, schema_from=[near, far])
    assert result.report is not None and result.report.schema_from == str(near)
    told = [finding.message for finding in result.report.findings if str(near) in finding.message]
    assert len(told) == 1 and str(far) in told[0]
    assert told[0] in (FileEntry.of(result).message or ""), "in a table of many files, too"
    assert pq.read_table(tmp_path / "out.parquet").equals(TABLE)


async def test_a_given_schema_is_not_asked_of_siblings(tmp_path: Path) -> None:
    damaged = footless(tmp_path / "b.parquet")
    far = foreign(tmp_path / "far.parquet", TABLE.rename_columns(["other", "words"]))
    options = RecoverOptions(schema=TABLE.schema)
    result = await recover_one(damaged, tmp_path / "out.parquet", options, schema_from=[far])
    assert result.report is not None and result.report.schema_from == "the Arrow schema that was given"
    assert pq.read_table(tmp_path / "out.parquet").equals(TABLE)


async def test_stores_are_shared_and_left_open(flipped: Path) -> None:
    stores = Stores()
    first = stores.resolve(flipped)[0]
    result = await check_one(flipped, stores=stores)
    assert result.outcome == "damaged" and stores.resolve(flipped)[0] is first
    await stores.close()


async def test_a_folder_that_cannot_be_made_is_an_error_of_the_file(flipped: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    result = await recover_one(flipped, tmp_path / "taken" / "out.parquet", OPTIONS)
    assert result.error is not None and result.exit_code == 4 and not stat.S_ISDIR((tmp_path / "taken").stat().st_mode)
