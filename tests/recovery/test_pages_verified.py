"""How many pages a check verified, and how many it could only decode."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes
from typer.testing import CliRunner

import resilient_pq as rpq
from resilient_pq.bulk.run_summary import FileEntry
from resilient_pq.cli.main import app, run
from resilient_pq.format.pages.page import pages_of
from resilient_pq.io.memory_store import MemoryStore

TABLE = pa.table(
    {"n": range(5000), "s": [f"v{i % 50}" for i in range(5000)], "l": [[i] * (i % 3) for i in range(5000)]}
)


def of_pyarrow(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(TABLE, sink, row_group_size=2000, data_page_size=1000, write_batch_size=100, **options)
    return sink.getvalue()


def num_pages(data: bytes) -> int:
    metadata, count = pq.read_metadata(io.BytesIO(data)), 0
    for i in range(metadata.num_row_groups):
        for j in range(metadata.num_columns):
            chunk = metadata.row_group(i).column(j)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            count += len(list(pages_of(memoryview(data)[start : start + chunk.total_compressed_size], start)))
    return count


async def checked(data: bytes) -> rpq.Report:
    store = MemoryStore()
    await store.put("file", data)
    report = await rpq.check((store, "file"))
    assert report.to_json()["pages_verified"] == report.pages_verified
    assert report.to_json()["pages_decoded"] == report.pages_decoded
    return report


async def ours() -> bytes:
    return await file_bytes(TABLE, row_group_rows=1000)


async def test_pages_with_checksums_are_verified() -> None:
    for data in (await ours(), of_pyarrow(write_page_checksum=True)):
        report = await checked(data)
        assert report.outcome == rpq.Outcome.SOUND
        assert (report.pages_verified, report.pages_decoded) == (num_pages(data), 0)


async def test_pages_without_are_decoded() -> None:
    data = of_pyarrow()
    report = await checked(data)
    assert (report.outcome, report.exit_code) == (rpq.Outcome.SOUND, 0)
    assert (report.pages_verified, report.pages_decoded) == (0, num_pages(data))


async def test_those_of_damaged_chunks_are_not_counted() -> None:
    data = bytearray(of_pyarrow(write_page_checksum=True))
    chunk = pq.read_metadata(io.BytesIO(bytes(data))).row_group(1).column(0)
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    inside = len(list(pages_of(memoryview(data)[start : start + chunk.total_compressed_size], start)))
    whole = num_pages(bytes(data))
    data[start + chunk.total_compressed_size - 5] ^= 1
    report = await checked(bytes(data))
    assert (report.pages_verified, report.pages_decoded) == (whole - inside, 0)


async def test_a_recovery_says_nothing_of_it() -> None:
    store = MemoryStore()
    await store.put("file", of_pyarrow())
    report = await rpq.recover((store, "file"), (store, "out"))
    assert report.pages_verified is None and "pages_verified" not in report.to_json()


def test_the_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, options in (("plain", {}), ("summed", {"write_page_checksum": True})):
        (tmp_path / f"{name}.parquet").write_bytes(of_pyarrow(**options))
    pages = num_pages(of_pyarrow())
    told = CliRunner().invoke(app, ["check", str(tmp_path / "plain.parquet")])
    assert told.exit_code == 0
    said = " ".join(told.output.split())
    assert "decoded 5,000 rows" in said
    assert f"no checksum {pages:,} of {pages:,} pages were decoded" in said
    capsys.readouterr()
    assert run(["check", str(tmp_path / "plain.parquet"), "--require-checksums"]) == 1
    assert f"{pages:,} of {pages:,} pages have no checksum" in " ".join(capsys.readouterr().out.split())
    assert run(["check", str(tmp_path / "summed.parquet"), "--require-checksums"]) == 0
    assert run(["check", str(tmp_path), "--require-checksums"]) == 1
    assert "1 damaged, 1 sound" in capsys.readouterr().out
    told = CliRunner().invoke(app, ["check", str(tmp_path / "summed.parquet")])
    assert f"{pages:,} pages verified" in " ".join(told.output.split())
    assert "no checksum" not in told.output
    told = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert f"no checksum {pages:,} of {2 * pages:,} pages in 1 file were decoded" in " ".join(told.output.split()), (
        told.output
    )
    told = CliRunner().invoke(app, ["check", "--json", str(tmp_path)])
    last = json.loads(told.stdout.splitlines()[-1])
    assert (last["pages_verified"], last["pages_decoded"], last["files_not_verified"]) == (pages, pages, 1)


@pytest.mark.parametrize("counts", [{}, {"pages_verified": None, "pages_decoded": None}])
def test_journals_of_before_are_read(counts: dict[str, None]) -> None:
    entry = FileEntry("a", "sound", 0, 1, None, 0, 1, None)
    document = {key: value for key, value in entry.to_json().items() if not key.startswith("pages_")}
    assert FileEntry.from_json(document | counts) == entry
