"""`check` and `recover` of encrypted files without their keys: what the ciphertext alone tells."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from encrypted_files import KEYS, MODES, rows_of, sealed_file
from sampled import either

import resilient_pq as rpq
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.recovery.evidence.records.record_scan import scan_headers


@pytest.fixture(scope="module", params=MODES)
def sealed(request: pytest.FixtureRequest) -> bytes:
    return sealed_file(rows_of(300), mode=request.param)


async def test_a_whole_file_is_ciphertext_whole_and_never_sound(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed)
    report = await rpq.check(path)
    assert (report.outcome, report.exit_code, report.findings) == ("ciphertext whole", 0, ())
    assert report.num_rows == (None if sealed.endswith(b"PARE") else 300)
    assert "sound" not in str(report) and "sound" not in json.dumps(report.to_json())


def damaged(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]


@pytest.mark.parametrize("step", either([233], [1]))
async def test_a_file_with_any_byte_changed_is_not_whole(sealed: bytes, tmp_path: Path, step: int) -> None:
    path = tmp_path / "day.parquet"
    for at in range(0, len(sealed), step):
        path.write_bytes(damaged(sealed, at))
        report = await rpq.check(path)
        assert report.outcome in ("damaged", "nothing"), at
        assert any(found.start <= at < found.end for found in report.findings), (at, report.findings)


@pytest.mark.parametrize("step", either([311], [1]))
async def test_a_file_cut_anywhere_is_cut_at_its_newest_whole_checkpoint(
    sealed: bytes, tmp_path: Path, step: int
) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    checkpoint = next(header for _, header in scan_headers(sealed, 0) if header.kind == RecordKind.CHECKPOINT)
    for size in range(4, len(sealed), step):
        path.write_bytes(sealed[:size])
        saved.unlink(missing_ok=True)
        assert (await rpq.check(path)).outcome in ("damaged", "nothing", "incomplete")
        if size < checkpoint.end:
            with pytest.raises(rpq.NothingToRecoverError, match="nothing to recover"):
                await rpq.recover(path, saved)
            assert not saved.exists()
            continue
        report = await rpq.recover(path, saved)
        assert (report.outcome, report.num_rows) == ("partial", None)
        assert saved.read_bytes() == sealed[: checkpoint.end]
        assert any("with all keys" in note for note in report.notes)
    async with rpq.open(saved, keys=KEYS, require_complete=False) as file:
        assert pa.table(await file.read()).equals(rows_of(200))


async def test_a_record_of_zero_bytes_is_not_taken_for_the_zeros_before_a_footer(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    for _, header in scan_headers(sealed, 0):
        if header.kind != RecordKind.FINAL:
            path.write_bytes(sealed[: header.offset] + bytes(header.end - header.offset) + sealed[header.end :])
            report = await rpq.check(path)
            assert report.outcome == "damaged", header
            assert any(found.start <= header.offset < found.end for found in report.findings), header
