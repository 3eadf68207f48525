"""What our reader makes of a Parquet file, next to what the libraries of others make of it.

`scripts/corpus_report.py` prints it as a table, `tests/interop/test_corpus.py` holds it. Both hand files to a
`Judge`, which has a process of its own read them: libraries crash and hang on some of these files, and what
is measured of ours must not be spoilt by them. Run as a program, this file is that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import filecmp
import json
import os
import resource
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

MiB = 1024 * 1024
#: Memory that reading a file may take beyond what the process had.
MEMORY_LIMIT = 1024 * MiB
#: Bytes of a column whose values are compared at once, each a Python object.
AT_ONCE = 64 * MiB
#: Seconds that one reader has for one file.
TIME_LIMIT = 40.0

#: Files that hold more than `MEMORY_LIMIT`, so that whoever reads them needs more, and `LARGE_TIME_LIMIT`.
#: Peers fail on them where they have less than some 16 GB: then the file is only read, and compared with nothing.
LARGE = ("large_string_map.brotli.parquet",)
LARGE_TIME_LIMIT = 240.0


class Outcome(StrEnum):
    """What came of a file."""

    EQUAL = "equal"  # we read what a peer reads
    ALONE = "alone"  # we read it, and no peer does
    REFUSED = "refused"  # an error of ours, and no peer reads it either
    CHECKSUM = "checksum"  # a `ChecksumError`, but without checksums we read what a peer reads
    DIFFERENT = "different"  # we read other values than a peer
    MISSED = "missed"  # an error of ours, but a peer reads it
    FOREIGN = "foreign"  # an error that is none of ours
    CRASHED = "crashed"  # the process ended
    HUNG = "hung"  # no answer within the time limit


_FUZZ = "clusterfuzz-testcase-minimized-parquet-arrow-fuzz-"
#: Files that a peer reads, but we do not, or with other values: the end of their paths, what comes of them, and why
#: that is right.
EXCEPTIONS: dict[str, tuple[Outcome, str]] = {
    "/datapage_v1-corrupt-checksum.parquet": (
        Outcome.CHECKSUM,
        "a page's checksum does not hold, as the name says",
    ),
    "/rle-dict-uncompressed-corrupt-checksum.parquet": (
        Outcome.CHECKSUM,
        "a page's checksum does not hold, as the name says",
    ),
    "/interval_dictionary.parquet": (
        Outcome.DIFFERENT,
        "the others take the INTERVAL values for nulls, as they are UNKNOWN too",
    ),
    "/nullable_interval_dictionary.parquet": (Outcome.DIFFERENT, "as interval_dictionary.parquet"),
    "/repeated_types.parquet": (
        Outcome.DIFFERENT,
        "pyarrow takes INT96 of Julian day 0, in the year -4712, for 1970",
    ),
    "/int96_from_spark.parquet": (
        Outcome.DIFFERENT,
        "its last value is that of int96_from_spark.md, but not in pyarrow",
    ),
    "fastparquet/split/_metadata": (Outcome.DIFFERENT, "fastparquet makes columns of the names of folders, too"),
    "/ARROW-GH-45185.parquet": (
        Outcome.MISSED,
        "its first row begins within a list, which polars lets pass",
    ),
    "/ARROW-RS-GH-6229-LEVELS.parquet": (
        Outcome.MISSED,
        "its levels end too early, which duckdb lets pass",
    ),
    f"{_FUZZ}5697144926502912.fuzz": (Outcome.MISSED, "its footer has a wire type that Thrift does not have"),
    f"{_FUZZ}4740205688193024": (Outcome.MISSED, "it does not begin as a Parquet file does"),
    f"{_FUZZ}5665099979423744": (Outcome.MISSED, "it does not begin as a Parquet file does"),
    f"{_FUZZ}5068991573000192": (Outcome.MISSED, "a column chunk is said to be longer than the file"),
    f"{_FUZZ}5682250927833088": (Outcome.MISSED, "a column chunk is said to be longer than the file"),
    f"{_FUZZ}5754721228029952": (Outcome.MISSED, "a column chunk is said to be longer than the file"),
}
#: Files of which a peer reads more rows than a recovery keeps: the end of their paths, and why that is right.
NOT_RECOVERED: dict[str, str] = {
    "-corrupt-checksum.parquet": "checksums of pages do not hold",
    "/_metadata": "a summary: its rows lie in other files",
    "/ARROW-GH-45185.parquet": "its first row begins within a list: whose values these are is not known",
    "/ARROW-RS-GH-6229-LEVELS.parquet": "its levels end too early: how many nulls there are is not known",
    f"{_FUZZ}5754721228029952": "only fastparquet reads it: its page is said to go on to the end of the file",
    f"{_FUZZ}5682250927833088": "only fastparquet reads it: a size in its page header is negative",
}
#: Files that peers read with values that were never written, which a recovery keeps where the caller asks for them:
#: the end of their paths, and why.
KEPT_AS_UNPLACED: dict[str, str] = {
    f"{_FUZZ}5068991573000192": "bytes are missing in its page: peers take its footer for the last of its values",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What our reader makes of a file.

    Attributes:
        path: The file.
        outcome: What came of it.
        peer: The first of the peers that reads it, None where none does.
        detail: The error, or where the values differ.
        seconds: How long our reader took.
        peak: Bytes of memory that it took beyond those that the process had.
        rows: The rows that the peer reads.
        kept: The rows that a recovery keeps of the file.
    """

    path: str
    outcome: Outcome
    peer: str | None = None
    detail: str = ""
    seconds: float = 0.0
    peak: int = 0
    rows: int = 0
    kept: int = 0

    @property
    def exception(self) -> tuple[Outcome, str] | None:
        """What is to come of it, and why, where the file is one of `EXCEPTIONS`."""
        return next((found for end, found in EXCEPTIONS.items() if self.path.endswith(end)), None)

    @property
    def faults(self) -> list[str]:
        """What is wrong with it; empty where all is as it should be."""
        found = []
        expected = (Outcome.EQUAL, Outcome.ALONE, Outcome.REFUSED) if self.exception is None else self.exception[:1]
        if self.outcome not in expected:
            found.append(f"{self.outcome}, not {' or '.join(expected)} (peer: {self.peer}): {self.detail}")
        if self.peak > MEMORY_LIMIT and not self.path.endswith(LARGE):
            found.append(f"took {self.peak / MiB:,.0f} MiB")
        if self.kept < self.rows and not self.path.endswith(tuple(NOT_RECOVERED)):
            found.append(f"a recovery keeps {self.kept:,} rows, {self.peer} reads {self.rows:,}")
        return found


def parquet_files(folder: Path) -> list[Path]:
    """Every file below `folder` that is Parquet, or claims to be, in the order of their paths."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            magic = file.read(4)
        claims = path.suffix in (".parquet", ".parq") or "fuzz" in path.parent.name
        if magic in (b"PAR1", b"PARE") or claims:
            found.append(path)
    return found


# --- the process that asks ------------------------------------------------------------------------------


class Judge:
    """Judges files one after the other; use it as ``with Judge() as judge``."""

    def __init__(self) -> None:
        """The process is started when the first file is judged."""
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def judge(self, path: Path) -> Verdict:
        """What our reader makes of the file at `path`."""
        left_out: list[str] = []
        while True:
            answer = self._ask(path, left_out)
            if isinstance(answer, Verdict):
                return answer
            reader, outcome = answer
            if reader == OURS:
                return Verdict(str(path), outcome, detail=f"{outcome} while reading")
            if reader not in PEERS:
                raise RuntimeError(f"{path}: the comparison {outcome}")
            left_out.append(reader)  # a peer crashed or hung: ask again without it

    def _ask(self, path: Path, left_out: Sequence[str]) -> Verdict | tuple[str, Outcome]:
        """The verdict; or, where the process crashed or hung, which reader was at work, and how it ended."""
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"path": str(path), "left_out": left_out}).encode() + b"\n")
        process.stdin.flush()
        reader = OURS
        seconds = LARGE_TIME_LIMIT if str(path).endswith(LARGE) else TIME_LIMIT
        while True:
            line = self._line(process, seconds)
            if line is None:
                outcome = Outcome.HUNG if process.poll() is None else Outcome.CRASHED
                self._stop()
                return reader, outcome
            said = json.loads(line)
            if "verdict" in said:
                fields = {**said["verdict"], "outcome": Outcome(said["verdict"]["outcome"])}
                return Verdict(**fields)
            reader = said["reader"]

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """The next line that it says; None where it says none in this time."""
        assert process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._unread:
            ready, _, _ = select.select([process.stdout], [], [], max(end - time.monotonic(), 0))
            more = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                if ready:
                    process.wait()
                return None
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return line

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # some peers print the stack of each of their panics
                env={**os.environ, "POLARS_MAX_THREADS": "2", "RUST_BACKTRACE": "0"},
            )
            self._unread = b""
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        """The judge itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self._stop()


# --- the process that reads -----------------------------------------------------------------------------

OURS = "ours"


def read_by_us(path: str, *, verify: bool = True) -> Any:
    """The whole file as a table of pyarrow."""
    import pyarrow as pa  # noqa: PLC0415 (the process that asks does without)

    import resilient_pq as rpq  # noqa: PLC0415

    async def read() -> Any:
        async with rpq.open(path, verify=verify) as file:
            return await file.read()

    table = pa.table(asyncio.run(read()))
    for i, field in enumerate(table.schema):
        if field.type == pa.month_day_nano_interval():
            table = table.set_column(i, field.name, _interval_bytes(table.column(i)))
    return table


def _interval_bytes(column: Any) -> Any:
    """INTERVAL as the file has it, and as pyarrow gives it: months, days and milliseconds in 4 bytes each."""
    import pyarrow as pa  # noqa: PLC0415

    values = [
        None if value is None else struct.pack("<III", value.months, value.days, value.nanoseconds // 1_000_000)
        for value in column.to_pylist()
    ]
    return pa.array(values, pa.binary(12))


def kept_by_us(path: str) -> int:
    """The rows that a recovery keeps, read again unless they are a copy; 0 where it keeps none."""
    import resilient_pq as rpq  # noqa: PLC0415

    keep_unplaced = path.endswith(tuple(KEPT_AS_UNPLACED))

    async def recover() -> int:
        with tempfile.TemporaryDirectory() as folder:
            output = str(Path(folder) / "output.parquet")
            try:
                report = await rpq.recover(path, output, keep_unplaced=keep_unplaced)
            except rpq.ResilientPQError:
                return 0
            if filecmp.cmp(path, output, shallow=False):
                return report.num_rows  # a copy of what was read before
            async with rpq.open(output) as file:
                table = await file.read()
            if (table.num_rows, file.num_rows) != (report.num_rows, report.num_rows):
                raise AssertionError(f"{table.num_rows} rows are kept, {report.num_rows} are told of")
            return report.num_rows

    return asyncio.run(recover())


def _by_pyarrow(path: str, **options: Any) -> Any:
    import pyarrow.parquet as pq  # noqa: PLC0415

    return pq.ParquetFile(path, **options).read()


def _by_duckdb(path: str) -> Any:
    import duckdb  # noqa: PLC0415

    with duckdb.connect() as connection:
        return connection.execute("SELECT * FROM read_parquet(?)", [path]).to_arrow_table()


def _by_polars(path: str) -> Any:
    import polars as pl  # noqa: PLC0415

    return pl.read_parquet(path, hive_partitioning=False).to_arrow()


def _by_fastparquet(path: str) -> Any:
    import fastparquet  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    return pa.Table.from_pandas(fastparquet.ParquetFile(path).to_pandas(), preserve_index=False)


PEERS: dict[str, Callable[[str], Any]] = {
    "pyarrow": _by_pyarrow,
    "duckdb": _by_duckdb,
    "polars": _by_polars,
    "fastparquet": _by_fastparquet,
}


def main() -> None:
    """Read the files that the input names, and say what came of each."""
    import warnings  # noqa: PLC0415

    import resilient_pq as rpq  # noqa: PLC0415

    warnings.simplefilter("ignore")
    sys.stdout.flush()
    # What libraries print must not get between our lines.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def say(**what: Any) -> None:
            answers.write(json.dumps(what) + "\n")
            answers.flush()

        with contextlib.suppress(OSError, rpq.ResilientPQError):
            read_by_us(__file__)  # all modules are there before memory is measured
        for line in sys.stdin:
            question = json.loads(line)
            verdict = _judged(question["path"], question["left_out"], lambda reader: say(reader=reader))
            say(verdict=asdict(verdict))


def _judged(path: str, left_out: Sequence[str], at_work: Callable[[str], None]) -> Verdict:
    import resilient_pq as rpq  # noqa: PLC0415

    at_work(OURS)
    measured = _Measured(limited=not path.endswith(LARGE))
    table, error = None, None
    try:
        with measured:
            table = read_by_us(path)
    except rpq.ResilientPQError as ours:
        error = ours
    except BaseException as foreign:  # whatever it is, it has to be told
        return Verdict(path, Outcome.FOREIGN, None, _told(foreign), measured.seconds, measured.peak)
    peer, theirs = _by_peers(path, left_out, at_work)
    at_work("comparison")
    said = _told(error) if error is not None else ""
    if theirs is None:
        outcome = Outcome.ALONE if table is not None else Outcome.REFUSED
    elif isinstance(error, rpq.ChecksumError):
        different = _difference(path, read_by_us(path, verify=False), peer, theirs)
        said, outcome = (different, Outcome.DIFFERENT) if different else (said, Outcome.CHECKSUM)
    elif table is None:
        outcome = Outcome.MISSED
    else:
        said = _difference(path, table, peer, theirs)
        outcome = Outcome.DIFFERENT if said else Outcome.EQUAL
    rows = 0 if theirs is None else theirs.num_rows
    del table, theirs  # of a large file there is no room for them beside what a recovery reads
    kept = kept_by_us(path) if rows else 0
    return Verdict(path, outcome, peer, said, measured.seconds, measured.peak, rows, kept)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}"


def _by_peers(path: str, left_out: Sequence[str], at_work: Callable[[str], None]) -> tuple[str | None, Any | None]:
    """The first peer that reads the file, and its table."""
    for name, read in PEERS.items():
        if name in left_out:
            continue
        at_work(name)
        try:
            return name, read(path)
        except Exception:  # whatever a peer has to say of a file that it does not read
            continue
        except BaseException as error:
            if "Panic" not in type(error).__name__:  # that of Rust's panics is no Exception
                raise
    return None, None


class _Measured:
    """Time and memory that the block takes; with `limited`, an allocation beyond the limit fails in it."""

    def __init__(self, *, limited: bool) -> None:
        self.limited = limited
        self._limits = resource.getrlimit(resource.RLIMIT_AS)
        self.seconds = 0.0
        self.peak = 0

    def __enter__(self) -> None:
        if self.limited:
            # Address space is more than memory: allocators and threads reserve what they never touch.
            limit, most = _status("VmSize") + 2 * MEMORY_LIMIT, self._limits[1]
            resource.setrlimit(
                resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(limit, most), most)
            )
        Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back
        self._before = _status("VmRSS")
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
        self.peak = max(_status("VmHWM") - self._before, 0)
        resource.setrlimit(resource.RLIMIT_AS, self._limits)


def _status(name: str) -> int:
    """Bytes of memory that the kernel says the process has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


# --- values that compare --------------------------------------------------------------------------------


def _difference(path: str, ours: Any, peer: str | None, theirs: Any) -> str:
    """Where two tables differ in more than how their values are represented; empty where they do not."""
    found = first_difference(ours, theirs)
    if found and peer == "pyarrow":
        # Nanoseconds reach from 1677 to 2262: unless it is told otherwise, pyarrow lets INT96 beyond wrap around.
        again = first_difference(ours, _by_pyarrow(path, coerce_int96_timestamp_unit="us"))
        return found if again else ""
    return found


def first_difference(ours: Any, theirs: Any) -> str:
    """The first value, or column, that is not the same in two tables of pyarrow; empty where all are."""
    if ours.column_names != theirs.column_names:
        return f"columns {ours.column_names[:20]}, not {theirs.column_names[:20]}"
    if ours.num_rows != theirs.num_rows:
        return f"{ours.num_rows} rows, not {theirs.num_rows}"
    for name, one, other in zip(ours.column_names, ours.columns, theirs.columns, strict=True):
        if one.type == other.type and one.equals(other):
            continue
        for start, left, right in _slices(one, other):
            pairs = enumerate(zip(plain_values(left), plain_values(right), strict=True), start)
            for row, (mine, its) in pairs:
                if mine != its:
                    return f"{name!r}, row {row}: {str(mine)[:100]} ({one.type}), not {str(its)[:100]} ({other.type})"
    return ""


def _slices(one: Any, other: Any) -> Iterator[tuple[int, Any, Any]]:
    """Slices of two columns whose values take little more than `AT_ONCE`, and the first row of each."""
    rows = max(len(one) * AT_ONCE // max(one.nbytes, other.nbytes, 1), 1)
    for start in range(0, len(one), rows):
        yield start, one.slice(start, rows), other.slice(start, rows)


_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def plain_values(column: Any) -> list[Any]:
    """Python values that are equal where the values are, whichever form a library gives its types.

    NaNs are equal, and so are numbers and decimals of one value; text is its bytes, dates are days, times and
    time stamps nanoseconds, structs tuples, and maps lists of pairs.
    """
    import pyarrow as pa  # noqa: PLC0415

    kinds = pa.types
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_values(array.storage)
    if kinds.is_dictionary(kind):
        return plain_values(array.dictionary_decode())
    if kinds.is_struct(kind):
        valid = array.is_valid().to_pylist()
        fields = [plain_values(child) for child in array.flatten()]
        rows = zip(*fields, strict=True) if fields else [()] * len(array)
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    if kinds.is_map(kind):
        keys, items = (plain_values(_within(array, child)) for child in (array.keys, array.items))
        return _cut(array, list(zip(keys, items, strict=True)))
    if kinds.is_fixed_size_list(kind) or kinds.is_list_view(kind) or kinds.is_large_list_view(kind):
        return plain_values(array.cast(pa.large_list(kind.value_type)))
    if kinds.is_list(kind) or kinds.is_large_list(kind):
        return _cut(array, plain_values(_within(array, array.values)))
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind):
        return list(array.cast(pa.large_binary()).to_pylist())
    if kinds.is_date(kind):
        return list(array.cast(pa.date32()).cast(pa.int32()).to_pylist())
    if kinds.is_timestamp(kind) or kinds.is_time(kind) or kinds.is_duration(kind):
        counts = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        factor = 10**9 // _PER_SECOND[kind.unit]
        return [None if count is None else count * factor for count in counts]
    values = array.to_pylist()
    if kinds.is_floating(kind):
        return ["NaN" if value is not None and value != value else value for value in values]  # noqa: PLR0124
    return list(values)


def _within(array: Any, elements: Any) -> Any:
    """Those elements that belong to the lists of an array, which may be a slice of another."""
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return elements.slice(start, end - start)


def _cut(array: Any, elements: list[Any]) -> list[Any]:
    """The lists of a list or map array, of which these are the elements."""
    offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    spans = zip(pairwise(offsets), valid, strict=True)
    return [elements[start - offsets[0] : end - offsets[0]] if there else None for (start, end), there in spans]


if __name__ == "__main__":
    main()
