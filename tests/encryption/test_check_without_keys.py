"""`check` and `recover` of encrypted files without their keys: what the ciphertext alone tells."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.recovery.evidence.records.record_scan import scan_headers

FOOTER_KEY = b"footer key 16 by"
SECRET_KEY = b"secret key 16 by"
MODES = {
    "uniform": {},
    "columns": {"column_keys": {"word": SECRET_KEY}},
    "plaintext footer": {"plaintext_footer": True, "column_keys": {"word": SECRET_KEY}},
    "ctr": {"algorithm": "AES_GCM_CTR_V1"},
}


def rows_of(count: int) -> pa.Table:
    return pa.table(
        {
            "number": pa.array(range(count), pa.int64()),
            "word": [None if i % 7 == 3 else f"secret word {i % 40}" for i in range(count)],
        }
    )


async def write(
    path: Path, table: pa.Table, *, checkpoints: tuple[int, ...] = (1,), rows: int = 100, **options: object
) -> bytes:
    """The bytes of an encrypted file with row groups of so many rows, and checkpoints behind some of them."""
    encryption = rpq.Encryption(FOOTER_KEY, **MODES[options.pop("mode", "uniform")])
    async with rpq.create(
        path, schema=table.schema, row_group_rows=rows, encryption=encryption, checkpoint_every=None, **options
    ) as writer:
        for ordinal, batch in enumerate(table.to_batches(rows)):
            await writer.write(batch)
            if ordinal in checkpoints:
                await writer.checkpoint()
    return path.read_bytes()


@pytest.fixture(scope="module", params=MODES)
def sealed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sealed") / "sealed.parquet"
    return asyncio.run(write(path, rows_of(300), mode=request.param))


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
    async with rpq.open(saved, keys={"footer": FOOTER_KEY, "word": SECRET_KEY}, require_complete=False) as file:
        assert pa.table(await file.read()).equals(rows_of(200))


async def test_a_record_of_zero_bytes_is_not_taken_for_the_zeros_before_a_footer(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    for _, header in scan_headers(sealed, 0):
        if header.kind != RecordKind.FINAL:
            path.write_bytes(sealed[: header.offset] + bytes(header.end - header.offset) + sealed[header.end :])
            report = await rpq.check(path)
            assert report.outcome == "damaged", header
            assert any(found.start <= header.offset < found.end for found in report.findings), header
