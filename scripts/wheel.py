"""Builds the wheel of this platform and tries it in a fresh environment: ``python scripts/wheel.py [FOLDER]``.

``--installed`` tries the package of the Python that runs this. It needs no package besides those of the wheel.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def try_installed(folder: Path) -> None:
    """Write a file, check it, cut it, recover it and read it."""
    from resilient_pq import sync as rpq  # noqa: PLC0415

    path, torn, saved = (folder / name for name in ("a.parquet", "torn.parquet", "saved.parquet"))
    with rpq.create(path, row_group_rows=1_000) as writer:
        for start in range(0, 10_000, 1_000):
            ids = list(range(start, start + 1_000))
            writer.write({"id": ids, "name": [f"name {n % 97}" for n in ids]})
    report = rpq.check(path)
    assert report.num_rows == 10_000 and not report.findings, report
    data = path.read_bytes()
    torn.write_bytes(data[: len(data) * 3 // 4])
    kept = rpq.recover(torn, saved).num_rows
    assert 0 < kept < 10_000, kept
    for file, rows in ((path, 10_000), (saved, kept)):
        assert rpq.read(file, columns=["id"]).to_pylist() == [{"id": n} for n in range(rows)]
    print(f"wrote, checked, recovered and read with Python {sys.version.split()[0]}")


def build(target: Path) -> None:
    """Build the wheel into a folder, and install and try it in an environment of its own."""
    run = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps", "-w", str(target)]
    subprocess.run([*run, str(ROOT)], check=True)
    wheel = max(target.glob("resilient_pq-*.whl"), key=lambda path: path.stat().st_mtime)
    print(f"{wheel}: {wheel.stat().st_size:,} bytes")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        subprocess.run([python, "-m", "pip", "--disable-pip-version-check", "install", "-q", str(wheel)], check=True)
        subprocess.run([python, "-I", Path(__file__).resolve(), "--installed"], check=True, cwd=folder)


if __name__ == "__main__":
    if sys.argv[1:] == ["--installed"]:
        with tempfile.TemporaryDirectory() as scratch:
            try_installed(Path(scratch))
    else:
        build(Path(sys.argv[1] if sys.argv[1:] else "dist"))
