"""`check` and `recover` of encrypted files without their keys: what the ciphertext alone tells."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from encrypted_files import FOOTER_KEY, KEYS, flipped, headers_of, rows_of, sealed_file
from sampled import either

import resilient_pq as rpq
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.recovery.evidence.records.record_scan import scan_headers


async def test_a_whole_file_is_ciphertext_whole_and_never_sound(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed)
    report = await rpq.check(path)
    assert (report.outcome, report.exit_code, report.findings) == ("ciphertext whole", 0, ())
    assert report.num_rows == (None if sealed.endswith(b"PARE") else 300)
    assert "sound" not in str(report) and "sound" not in json.dumps(report.to_json())


# Each of the four ways to encrypt has its own share of the places.
@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize("step", either([233], [4]))
async def test_a_file_with_any_byte_changed_is_not_whole(sealed: bytes, tmp_path: Path, step: int) -> None:
    path = tmp_path / "day.parquet"
    for at in range(len(sealed) % step, len(sealed), step):
        path.write_bytes(flipped(sealed, at, 0x40))
        report = await rpq.check(path)
        assert report.outcome in ("damaged", "nothing"), at
        assert any(found.start <= at < found.end for found in report.findings), (at, report.findings)


@pytest.mark.usefixtures("without_threads")
@pytest.mark.parametrize("step", either([311], [4]))
async def test_a_file_cut_anywhere_is_cut_at_its_newest_whole_checkpoint(
    sealed: bytes, tmp_path: Path, step: int
) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    checkpoint = headers_of(sealed, RecordKind.CHECKPOINT)[0]
    for size in range(4 + len(sealed) % step, len(sealed), step):
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


async def test_damaged_parity_hides_no_damaged_chunk_behind_it(tmp_path: Path) -> None:
    numbers, path = pa.table({"number": np.arange(500_000)}), tmp_path / "day.parquet"
    data = sealed_file(numbers, rows=50_000, parity=0.2, compression=None, encodings={"number": "plain"})
    second = headers_of(data, RecordKind.PARITY)[1]
    chunk = next(header for header in headers_of(data, RecordKind.CHUNK) if header.offset >= second.end)
    for end, costs_rows in ((second.end, False), (chunk.end, True)):  # without the record of the chunk, too
        path.write_bytes(data[: second.offset] + bytes(end - second.offset) + data[end:])
        report = await rpq.check(path)
        (found,) = (found for found in report.findings if found.start <= second.offset < found.end)
        assert ("no row is lost" in found.message) is not costs_rows
        assert any(found.costs_rows for found in report.findings) is costs_rows


async def two_writers(path: Path) -> tuple[bytes, bytes]:
    """A file, and one that goes on otherwise behind its first checkpoint; bytes of neither are those of the other."""
    table = pa.table({name: np.arange(400) for name in ("number", "again", "more")})
    options = {"compression": None, "encodings": "plain"}
    older = sealed_file(table, **options)
    begun = older[: headers_of(older, RecordKind.CHECKPOINT)[0].end]
    path.with_name(path.name + ".partial").write_bytes(begun)
    async with rpq.resume(
        path, encryption=rpq.Encryption(FOOTER_KEY), row_group_rows=100, checkpoint_every=None, **options
    ) as writer:
        await writer.write(table.slice(writer.num_rows_stored))
    later = path.read_bytes()
    path.unlink()
    return older, later


async def test_what_two_writers_wrote_is_no_whole_row_group(tmp_path: Path) -> None:
    """One goes on with a file behind its first checkpoint; then an end of one file comes behind a beginning of the other."""
    path = tmp_path / "day.parquet"
    for _ in range(20):
        older, later = await two_writers(path)
        begun = headers_of(older, RecordKind.CHECKPOINT)[0].end
        border = next(header.offset for header in headers_of(later, RecordKind.CHUNK)[1:] if header.offset > begun)
        if border in [header.offset for header in headers_of(older, RecordKind.CHUNK)]:
            break  # random numbers in records take a byte more or less
    else:
        pytest.fail("the borders of two files are never at one offset")
    path.write_bytes(later)
    assert (await rpq.check(path)).outcome == "ciphertext whole"
    for one, other in ((older, later), (later, older)):
        path.write_bytes(one[:border] + other[border:])
        report = await rpq.check(path)
        assert report.outcome == "damaged"
        assert any(found.start <= border < found.end for found in report.findings)
