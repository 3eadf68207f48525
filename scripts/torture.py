"""Damaged files, and how many rows each tool gets out of them: ``python scripts/torture.py > docs/torture.md``.

Two files of the same rows, one written by resilient_pq and one by pyarrow, both with their defaults but for the sizes
of row groups and pages, are damaged in a dozen ways. Every tool reads the same damaged bytes in a process of its own,
with a limit of time. What could be had at best is computed from the layout of the whole file, by
tests/plugins/page_layout.py. The same seed gives the same table.

``--structure N`` does something else: small files are damaged by their structure, and what resilient_pq makes of them
is held against their rows (torture_structure.py).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

CHECKOUT = Path(__file__).resolve().parent.parent
for folder in (CHECKOUT, CHECKOUT / "tests" / "plugins"):
    if find_spec("resilient_pq" if folder == CHECKOUT else "page_layout") is None:
        sys.path.insert(0, str(folder))

from page_layout import Layout  # noqa: E402 (see above)

from resilient_pq import WriteOptions  # noqa: E402
from resilient_pq import sync as rpq  # noqa: E402

TOOLS = ("resilient_pq", "pyarrow", "duckdb", "polars", "fastparquet")
ROWS, ROW_GROUP_ROWS, PAGE_ROWS = 200_000, 20_000, 2_500
SECTOR, PART, MiB = 4096, 64 * 1024, 1024 * 1024
SECONDS = 60
#: Rows that a writer had been given when it was killed; the last whole row group before them was on disk.
KILLED_AFTER = 130_000


def make_rows(seed: int, count: int = ROWS) -> pa.Table:
    """Rows of a common kind; `id` numbers them."""
    rng = np.random.default_rng(seed)
    towns = np.array([f"town {i}" for i in range(50)], dtype=object)
    notes = rng.bytes(8 * count).hex()
    town = pa.array(towns[rng.integers(0, 50, count)], mask=rng.random(count) < 0.1)
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "time": pa.array(np.cumsum(rng.integers(1, 2_000_000, count)), pa.timestamp("us")),
            "town": town,
            "score": pa.array(rng.random(count), mask=rng.random(count) < 0.05),
            "note": pa.array([notes[i : i + 16] for i in range(0, 16 * count, 16)]),
        }
    )


@dataclass(frozen=True)
class Whole:
    """A file before the damage: its bytes, and where everything lies."""

    data: bytes = field(repr=False)
    layout: Layout = field(repr=False)

    @property
    def pages(self) -> list[Any]:
        """Of all chunks."""
        return [page for row_group in self.layout.row_groups for chunk in row_group.chunks for page in chunk.pages]

    def rows_there(self, gone: Sequence[range]) -> int:
        """Rows of which every byte is there, or a copy of it, when some are gone.

        A lost footer of another's file is not counted: a sibling may tell what it said.
        """
        if not self.layout.records:
            gone = [range(place.start, min(place.stop, self.layout.footer.start)) for place in gone]
        return len(self.layout.rows(gone))

    def damaged(self, start: int, piece: bytes) -> Damaged:
        """Other bytes in the place of some."""
        data = self.data[:start] + piece + self.data[start + len(piece) :]
        changed = [i for i in range(start, start + len(piece)) if data[i] != self.data[i]]
        return data, self.rows_there([range(i, i + 1) for i in changed])

    def flipped(self, offset: int, rng: random.Random) -> Damaged:
        """One bit turned."""
        return self.damaged(offset, bytes([self.data[offset] ^ (1 << rng.randrange(8))]))

    def cut(self, end: int) -> Damaged:
        """The bytes before an offset."""
        return self.data[:end], self.rows_there([range(end, len(self.data))])


#: What became of a file, and how many rows are there.
Damaged = tuple[bytes, int]


def exchanged(file: Whole, rng: random.Random) -> Damaged:
    """Two parts in each other's place."""
    first, second = sorted(rng.sample(range(1, file.layout.footer.start // PART), 2))
    parts = [file.data[at : at + PART] for at in range(0, len(file.data), PART)]
    parts[first], parts[second] = parts[second], parts[first]
    return b"".join(parts), file.rows_there([])


def without_a_part(file: Whole, rng: random.Random) -> Damaged:
    start = PART * rng.randrange(1, file.layout.footer.start // PART)
    return file.data[:start] + file.data[start + PART :], file.rows_there([range(start, start + PART)])


def zeroed_sector(file: Whole, rng: random.Random) -> Damaged:
    return file.damaged(SECTOR * rng.randrange(1, file.layout.footer.start // SECTOR), bytes(SECTOR))


def zeroed_dictionary(file: Whole, rng: random.Random) -> Damaged:
    page = rng.choice([page for page in file.pages if page.is_dictionary])
    return file.damaged(page.body.start, bytes(len(page.body)))


def a_bit_of(what: str) -> Callable[[Whole, random.Random], Damaged]:
    def flip(file: Whole, rng: random.Random) -> Damaged:
        if what == "footer":
            return file.flipped(rng.choice(file.layout.footer), rng)
        page = rng.choice([page for page in file.pages if not page.is_dictionary])
        return file.flipped(rng.choice(page.body if what == "body" else page.header), rng)

    return flip


#: Every damage, and whether it strikes at a place that is drawn; those are tried several times.
DAMAGES: dict[str, tuple[Callable[[Whole, random.Random], Damaged], bool]] = {
    "none": (lambda file, rng: (file.data, file.rows_there([])), False),
    "last byte cut off": (lambda file, rng: file.cut(len(file.data) - 1), False),
    "footer cut off": (lambda file, rng: file.cut(file.layout.footer.start), False),
    "cut at 50 %": (lambda file, rng: file.cut(len(file.data) // 2), False),
    "last 1 MiB zeroed": (lambda file, rng: file.damaged(len(file.data) - MiB, bytes(MiB)), False),
    "first 4 KiB zeroed": (lambda file, rng: file.damaged(0, bytes(SECTOR)), False),
    "a bit of a data page": (a_bit_of("body"), True),
    "a bit of a page header": (a_bit_of("header"), True),
    "a bit of the footer": (a_bit_of("footer"), True),
    "4 KiB zeroed": (zeroed_sector, True),
    "a dictionary page zeroed": (zeroed_dictionary, True),
    "two parts of 64 KiB exchanged": (exchanged, True),
    "a part of 64 KiB missing": (without_a_part, True),
}
#: Those that leave the footer as it is; they are tried without it as well.
WITH_FOOTER = (
    "a bit of a data page", "a bit of a page header", "4 KiB zeroed", "a dictionary page zeroed",
    "two parts of 64 KiB exchanged", "a part of 64 KiB missing",
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A damage: its name, the files it made, and how many rows are there in all of them."""

    name: str
    files: list[bytes] = field(repr=False)
    there: int


def trials_of(file: Whole, seed: int, count: int, *, footer: bool = True) -> Iterator[Trial]:
    """Every damage done to a file; those of `WITH_FOOTER` alone, with the footer cut off besides, if not `footer`."""
    for name, (damage, drawn) in DAMAGES.items():
        if not footer and name not in WITH_FOOTER:
            continue
        rng = random.Random(f"{seed} {name}")
        made = [damage(file, rng) for _ in range(count if drawn else 1)]
        lost = 0 if footer else len(file.layout.footer)
        yield Trial(name, [data[: len(data) - lost] for data, _ in made], sum(rows for _, rows in made))


def write_ours(table: pa.Table, path: Path) -> None:
    options = WriteOptions(page_rows=PAGE_ROWS)
    with (
        mock.patch("os.urandom", lambda size: bytes(range(size))),  # the same file id whenever this runs
        rpq.create(str(path), table.schema, row_group_rows=ROW_GROUP_ROWS, options=options) as writer,
    ):
        writer.write(table)


def write_with_pyarrow(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, **PYARROW)


#: Pages of about the same number of rows; all else is pyarrow's default.
PYARROW: dict[str, Any] = {"row_group_size": ROW_GROUP_ROWS, "data_page_size": 16 * 1024, "write_batch_size": 512}


def write_and_die(library: str, path: Path, seed: int) -> None:
    """Write row groups until the process is killed, by itself and without warning."""
    table = make_rows(seed)
    if library == "resilient_pq":
        options = WriteOptions(page_rows=PAGE_ROWS)
        writer = rpq.create(str(path), table.schema, row_group_rows=ROW_GROUP_ROWS, options=options).__enter__()
        writer.write(table.slice(0, KILLED_AFTER))
        writer.checkpoint()
        writer.write(table.slice(KILLED_AFTER, ROW_GROUP_ROWS // 2))
    else:
        sizes = {name: value for name, value in PYARROW.items() if name != "row_group_size"}
        other = pq.ParquetWriter(path, table.schema, **sizes)
        other.write_table(table.slice(0, KILLED_AFTER), row_group_size=ROW_GROUP_ROWS)
    os.kill(os.getpid(), signal.SIGKILL)


def killed(library: str, folder: Path, seed: int) -> Trial:
    """What a writer left behind that was killed after so many rows were in whole row groups."""
    path = folder / f"killed {library}.parquet"
    command = [sys.executable, __file__, "--killed", library, str(path), "--seed", str(seed)]
    done = subprocess.run(command, check=False, env=environment())
    if done.returncode != -signal.SIGKILL:
        raise SystemExit(f"the writer to be killed ended with {done.returncode}")
    left = path if path.exists() else path.with_name(path.name + ".partial")
    return Trial("killed writer", [left.read_bytes()], KILLED_AFTER)


def environment() -> dict[str, str]:
    """Of a child: it finds the package where this process has found it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(place) for place in sys.path)}


class Reader:
    """A tool in a process of its own, begun anew when that has died or does not answer."""

    def __init__(self, tool: str, original: Path) -> None:
        self.tool = tool
        script = Path(__file__).with_name("torture_read.py")
        self._command = [sys.executable, str(script.resolve()), tool, original.name]
        self._folder = original.parent
        self._process: subprocess.Popen[str] | None = None

    def read(self, path: Path, sibling: Path | None) -> dict[str, Any]:
        """Rows that are right, rows that are wrong, and the error it met."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, env=environment(), cwd=self._folder,
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        # Names alone: libraries put them into their errors, and the folder is another one each time.
        task = {"path": path.name, "sibling": None if sibling is None else sibling.name}
        process.stdin.write(json.dumps(task) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = self.end()
        died = f"the process died: {signal.Signals(-status).name}" if ready and status < 0 else f"exit {status}"
        return {"right": 0, "wrong": 0, "error": died if ready else f"no answer in {SECONDS} seconds"}

    def end(self) -> int:
        """End the process; gives its exit status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        assert process.stdin is not None
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.stdin.close()
            return process.wait(1)
        process.kill()
        return process.wait()


def shortened(error: str) -> str:
    """An error's beginning."""
    text = error.replace("`", "'")
    return text if len(text) <= 90 else text[:89] + "…"


def section(title: str, trials: Sequence[Trial], readers: Sequence[Reader], path: Path, sibling: Path | None) -> str:
    """A table of rows, and one of errors."""
    numbers = [["damage", "files", "rows there", *(reader.tool for reader in readers)]]
    errors: list[str] = []
    for trial in trials:
        cells = [trial.name, str(len(trial.files)), f"{trial.there:,}"]
        for reader in readers:
            right = wrong = 0
            met: list[str] = []
            for data in trial.files:
                path.write_bytes(data)
                answer = reader.read(path, sibling)
                right, wrong = right + answer["right"], wrong + answer["wrong"]
                met += [answer["error"]] if answer["error"] else []
            cells.append(f"{right:,}" + (f", **{wrong:,} wrong**" if wrong else ""))
            if met:
                errors.append(f"* {trial.name}, {reader.tool}: `{shortened(met[0])}`")
        numbers.append(cells)
        print(" | ".join(cells), file=sys.stderr)
    lines = ["| " + " | ".join(cells) + " |" for cells in numbers]
    lines.insert(1, "|---|" + "---:|" * (len(numbers[0]) - 1))
    return "\n".join([f"## {title}", "", *lines, "", "What they said, of the first file:", "", *errors, ""])


def document(arguments: argparse.Namespace, folder: Path) -> str:
    """The whole document."""
    table, seed, count = make_rows(arguments.seed), arguments.seed, arguments.trials
    original, path = folder / "original.feather", folder / "damaged.parquet"
    pyarrow.feather.write_feather(table, original, compression="uncompressed")
    readers = [Reader(tool, original) for tool in TOOLS]
    write_ours(table, folder / "ours.parquet")
    write_with_pyarrow(table, folder / "theirs.parquet")
    sibling = folder / "sibling.parquet"
    write_with_pyarrow(make_rows(seed + 1, 1000), sibling)
    ours, theirs = (
        Whole(data, Layout(data)) for data in ((folder / f"{name}.parquet").read_bytes() for name in ("ours", "theirs"))
    )
    versions = ", ".join(f"{tool} {importlib.metadata.version(tool)}" for tool in TOOLS[1:])
    try:
        return "\n".join(
            [
                INTRODUCTION.format(
                    rows=ROWS, row_groups=ROWS // ROW_GROUP_ROWS, pages=PAGE_ROWS, seed=seed, trials=count,
                    versions=versions, ours=len(ours.data) / MiB, theirs=len(theirs.data) / MiB,
                ),
                section(
                    "A file that resilient_pq wrote",
                    [*trials_of(ours, seed, count), killed("resilient_pq", folder, seed)], readers, path, None,
                ),
                section(
                    "A file that pyarrow wrote",
                    [*trials_of(theirs, seed, count), killed("pyarrow", folder, seed)], readers, path, sibling,
                ),
                section(
                    "The same without its footer",
                    [*trials_of(theirs, seed, count, footer=False)], readers, path, sibling,
                ),
            ]
        )  # fmt: skip
    finally:
        for reader in readers:
            reader.end()


INTRODUCTION = """# Torture

Made by `python scripts/torture.py --seed {seed} --trials {trials} > docs/torture.md`, which takes some minutes.

{rows:,} rows of five columns (numbers, times, few and many strings, floats, nulls in two of them) in {row_groups}
row groups with pages of about {pages:,} rows: {ours:.1f} MiB as resilient_pq writes them (zstd, page checksums),
{theirs:.1f} MiB as pyarrow does (snappy, no checksums), both with defaults otherwise. Each damage is done to a fresh
copy; where its place is drawn, to {trials} of them, and the numbers are sums. *Rows there* are those of which every
byte is still in the file, or has a copy in it, in all columns. Rows that are returned but are not the ones that were
written, or come twice, are **wrong**, and not counted as recovered. A page that is damaged may still give right rows
beside the wrong ones, and a tool that does not mind can return more rows than are there.

resilient_pq recovers into a new file, given a sibling's schema where pyarrow wrote (`--schema-from`). The others read
the whole file, or, when that fails, row group by row group, each in a try of its own; pyarrow with its verification of
page checksums switched on. Each runs in a process of its own: {versions}.
"""


def main() -> None:
    """Print the document, or be the writer that is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=20, help="files for each damage whose place is drawn")
    parser.add_argument("--structure", type=int, metavar="N", help="run N cases of damage by structure, from --seed on")
    parser.add_argument("--jobs", type=int, default=1, help="processes for these cases")
    parser.add_argument("--case", type=int, metavar="SEED", help="run one of these cases again")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the files of that case")
    parser.add_argument("--killed", nargs=2, metavar=("LIBRARY", "PATH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.structure is not None or arguments.case is not None:
        import torture_structure  # noqa: PLC0415 (what it needs is slow to import)

        sys.exit(torture_structure.main(arguments))
    if arguments.killed:
        write_and_die(arguments.killed[0], Path(arguments.killed[1]), arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        print(document(arguments, Path(folder)))


if __name__ == "__main__":
    main()
