"""`check` beside a sidecar: it finds changes that no page checksum shows, and says what a repair brings back."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import sync as rpq


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A protected file of pyarrow whose pages have no checksums, and in which a changed value decodes."""
    path = tmp_path / "a.parquet"
    table = pa.table({"x": np.random.default_rng(1).random(20_000)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    rpq.protect(path)
    return path


def rot(path: Path, at: int, data: bytes) -> None:
    """Change bytes without a trace, as a disk does."""
    status = os.stat(path)
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_changed_value_without_a_checksum_is_found(foreign: Path) -> None:
    report = rpq.check(foreign)
    assert report.outcome == "sound" and report.pages_decoded and report.blocks_damaged is None
    rot(foreign, 5_000, b"\x01")
    report = rpq.check(foreign)
    assert report.outcome == "damaged" and (report.blocks_damaged, report.blocks_repairable) == (1, 1)
    assert report.next[0] == ("rpq", "repair", str(foreign), str(foreign.with_name("a.repaired.parquet")))
    rpq.repair(foreign, in_place=True)
    rpq.protect(foreign, overwrite=True)
    assert rpq.check(foreign).outcome == "sound"


def test_a_file_that_was_written_anew_is_not_damaged(foreign: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0]}), foreign)
    assert rpq.check(foreign).outcome == "sound"


def test_more_damage_than_parity(foreign: Path) -> None:
    rot(foreign, 1_000, bytes(100_000))
    report = rpq.check(foreign)
    assert report.outcome == "nothing" and report.blocks_damaged is not None and report.blocks_repairable is not None
    assert report.blocks_repairable < report.blocks_damaged and all(command[1] != "repair" for command in report.next)


def test_a_file_that_is_copied_into_its_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    rpq.write(path, {"x": np.random.default_rng(1).random(900)})
    rpq.protect(path)
    assert rpq.check(path).blocks_damaged is None
    rot(path, 1_000, b"?" * 900)
    report = rpq.check(path)
    assert (report.blocks_damaged, report.blocks_repairable) == (3, 3) and report.next[0][1] == "repair"


@pytest.mark.parametrize("inline", [False, True])
def test_parity_is_computed_again(tmp_path: Path, inline: bool) -> None:
    path = tmp_path / "a.parquet"
    rpq.write(path, {"x": np.random.default_rng(1).random(20_000)}, parity="10%" if inline else None)
    assert inline or rpq.check(path, deep=True).parity_blocks == 0
    where = path
    if not inline:
        rpq.protect(path)
        where = Path(f"{path}.rpqparity")
    report = rpq.check(path, deep=True)
    assert report.outcome == "sound" and report.parity_blocks and report.parity_blocks > 10
    data = where.read_bytes()
    for at in (len(data) * 9 // 10,) if inline else (5_000, len(data) // 2):
        rot(where, at, bytes([data[at] ^ 1]))
        assert rpq.check(path).outcome == ("damaged" if inline else "sound")
        report = rpq.check(path, deep=True)
        assert report.outcome == "damaged" and not report.findings[0].costs_rows
        assert inline or report.next == (("rpq", "protect", str(path), "--overwrite"),)
        rot(where, at, data[at : at + 1])


def test_a_sidecar_of_another_version_is_a_finding(foreign: Path) -> None:
    pq.write_table(pa.table({"x": np.random.default_rng(2).random(20_000)}), foreign, compression="none")
    assert rpq.check(foreign).outcome == "sound"
    report = rpq.check(foreign, deep=True)
    assert report.outcome == "damaged" and "belong to other bytes" in report.findings[0].message
    assert [result.outcome for result in rpq.check_many(foreign.parent, deep=True)] == ["damaged"]
    Path(f"{foreign}.rpqparity").write_bytes(b"no sidecar")
    assert "its parity is lost" in rpq.check(foreign, deep=True).findings[0].message
