"""`recover` and `check` of damaged encrypted files with their keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from encrypted_files import KEYS, MODES, rows_of, sealed_file
from sampled import either

import resilient_pq as rpq


@pytest.fixture(scope="module", params=MODES)
def sealed(request: pytest.FixtureRequest) -> bytes:
    return sealed_file(rows_of(300), mode=request.param)


async def read(path: Path, **options: object) -> pa.Table:
    async with rpq.open(path, keys=KEYS, require_complete=False, **options) as file:
        return pa.table(await file.read())


async def test_a_whole_file_is_sound_with_its_keys(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed)
    report = await rpq.check(path, keys=KEYS)
    assert (report.outcome, report.num_rows, report.findings) == ("sound", 300, ())


@pytest.mark.parametrize("step", either([307], [1]))
async def test_all_rows_up_to_a_cut_come_back(sealed: bytes, tmp_path: Path, step: int) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    for size in range(700, len(sealed), step):
        path.write_bytes(sealed[:size])
        saved.unlink(missing_ok=True)
        try:
            report = await rpq.recover(path, saved, keys=KEYS)
        except rpq.NothingToRecoverError:
            continue
        found = await read(saved)
        assert found.equals(rows_of(300).slice(0, len(found))), size
        assert report.num_rows == len(found)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1 :]


@pytest.mark.parametrize("step", either([401], [1], 3000))
async def test_of_a_file_with_a_changed_byte_no_more_than_its_page_is_lost(
    sealed: bytes, tmp_path: Path, step: int
) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    expected = rows_of(300).to_pylist()
    for at in range(1, len(sealed), step):
        path.write_bytes(flipped(sealed, at))
        saved.unlink(missing_ok=True)
        report = await rpq.check(path, keys=KEYS)
        assert report.outcome == "damaged", at
        recovery = await rpq.recover(path, saved, keys=KEYS)
        found = (await read(saved)).to_pylist()
        assert len(found) in (200, 300), at
        assert found == [row for row in expected if row in found], at
        assert recovery.num_rows == report.num_rows == len(found), at


@pytest.mark.parametrize("step", either([97], [1], 3000))
async def test_reading_a_changed_byte_is_an_error_or_changes_nothing(sealed: bytes, tmp_path: Path, step: int) -> None:
    path, num_alike = tmp_path / "day.parquet", 0
    for at in range(0, len(sealed), step):
        path.write_bytes(flipped(sealed, at))
        try:
            found = await read(path)
        except rpq.FormatError:  # which has ChecksumError and AuthenticationError below it
            continue
        num_alike += 1
        assert found.equals(rows_of(300)), at
    assert num_alike * step < len(sealed)
