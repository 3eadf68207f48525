r"""A writer's log of its checkpoints: one JSON object a line, so that a person and a shell can read it.

What an upload on S3 holds cannot be read before it is completed; its log tells how many rows there are::

    {"event": "begun", "url": "s3://bucket/day.parquet", "upload_id": "2~x7", "file_id": "0f3c..."}
    {"event": "written", "ordinal": 1, "num_rows": 250000, "offset": 9437201, "upload_id": "2~x7"}
    {"event": "stored", "ordinal": 1, "num_rows": 250000, "offset": 9437201, "upload_id": "2~x7"}

"stored" is there when the rows are stored, not before. "written" comes before the checkpoint is on its way to
an upload: a kill between the store's answer and the next line leaves the upload one checkpoint further than
"stored" says, and its rows are known all the same. A log may go on for many uploads, of one file or of several;
a line that a kill cut short is passed over, and so are events that this version does not know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any, Self

from resilient_pq.errors import FormatError, Where
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import open_private
from resilient_pq.lazy_dataclass import dataclass

#: No line of a log comes near: keys have at most 1,024 bytes, and upload ids some hundred.
_MAX_LINE_BYTES = 64 * 1024
#: Events that name a checkpoint.
_CHECKPOINTS = ("written", "stored")


@dataclass(frozen=True, slots=True)
class LoggedCheckpoint:
    """A checkpoint in a writer's log."""

    ordinal: int  # its number in the file, from 1
    num_rows: int  # rows before it
    offset: int  # bytes of the file up to its end
    upload_id: str | None = None  # the upload that holds it; None for a local file
    url: str | None = None  # the object that is written; None where the log does not tell
    file_id: str | None = None  # the file's id, hexadecimal; None where the log does not tell
    stored: bool = True  # whether the log says that it was stored, and not only that it was on its way


def begun_line(*, url: str, upload_id: str | None, file_id: str) -> str:
    """The line that says that a file, or an upload that goes on with it, was begun."""
    return _line({"event": "begun", "url": url, "upload_id": upload_id, "file_id": file_id})


def written_line(*, ordinal: int, num_rows: int, offset: int, upload_id: str | None) -> str:
    """The line that says that a checkpoint is on its way."""
    counts = {"ordinal": ordinal, "num_rows": num_rows, "offset": offset}
    return _line({"event": "written", **counts, "upload_id": upload_id})


def stored_line(*, ordinal: int, num_rows: int, offset: int, upload_id: str | None) -> str:
    """The line that says that a checkpoint was stored."""
    counts = {"ordinal": ordinal, "num_rows": num_rows, "offset": offset}
    return _line({"event": "stored", **counts, "upload_id": upload_id})


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event) + "\n"


def parse_log(lines: Iterable[bytes]) -> list[LoggedCheckpoint]:
    """The checkpoints that a log names, in its order."""
    found: list[LoggedCheckpoint] = []
    begun: dict[str | None, tuple[str | None, str | None]] = {}
    seen = known = 0
    for line in lines:
        seen += 1
        event = _event(line)
        if event is None:
            continue
        known += 1
        upload_id = event.get("upload_id")
        if event["event"] == "begun":
            begun[upload_id] = event.get("url"), event.get("file_id")
        elif event["event"] in _CHECKPOINTS:
            url, file_id = begun.get(upload_id, (None, None))
            counts = event["ordinal"], event["num_rows"], event["offset"]
            found.append(LoggedCheckpoint(*counts, upload_id, url, file_id, stored=event["event"] == "stored"))
    if seen and not known:
        raise FormatError("this is no log of checkpoints", hint="name the file that checkpoint_log named")
    return found


def _event(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None where it is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        return None
    if not all(isinstance(event.get(name), str | None) for name in ("upload_id", "url", "file_id")):
        return None
    if event["event"] in _CHECKPOINTS:
        counts = (event.get("ordinal"), event.get("num_rows"), event.get("offset"))
        if any(type(count) is not int or count < 0 for count in counts):
            return None
    return event


def rows_stored(log: Iterable[LoggedCheckpoint], *, upload_id: str | None, num_bytes: int | None) -> int | None:
    """Rows of an upload up to the checkpoint that ends just at `num_bytes`; None where the log names none."""
    ends = {checkpoint.offset: checkpoint.num_rows for checkpoint in log if checkpoint.upload_id == upload_id}
    return None if num_bytes is None else ends.get(num_bytes)


class CheckpointLog:
    """Appends to a log; made by `open`.

    Each line reaches the operating system before its call returns, so that it survives a kill of the process. It is
    not forced to the disk: the rows are safe in the store, and the log only tells how many there are.
    """

    def __init__(self, file: IO[bytes], path: str) -> None:
        self._file = file
        self._path = path
        self._torn = False  # whether the last line may have been written in part

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> CheckpointLog:
        """Begin a log, or go on with one that is there."""
        name = os.fspath(path)
        with explained("cannot write the log of checkpoints", name):
            file = open_private(name)  # it names the file's id, which those who supply data are better not told
            size = file.seek(0, os.SEEK_END)
            if size and not _ends_a_line(file, size):
                file.write(b"\n")  # a kill cut the last line short
        return cls(file, name)

    def begun(self, *, url: str, upload_id: str | None, file_id: str) -> None:
        """Note that a file was begun, or an upload that goes on with it."""
        self._append(begun_line(url=url, upload_id=upload_id, file_id=file_id))

    def written(self, *, ordinal: int, num_rows: int, offset: int, upload_id: str) -> None:
        """Note that a checkpoint is on its way to an upload."""
        self._append(written_line(ordinal=ordinal, num_rows=num_rows, offset=offset, upload_id=upload_id))

    def stored(self, *, ordinal: int, num_rows: int, offset: int, upload_id: str | None) -> None:
        """Note that a checkpoint was stored."""
        self._append(stored_line(ordinal=ordinal, num_rows=num_rows, offset=offset, upload_id=upload_id))

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._file.close()

    def _append(self, line: str) -> None:
        with explained("cannot write the log of checkpoints", self._path):
            left = memoryview((f"\n{line}" if self._torn else line).encode())
            self._torn = True
            while left:
                left = left[self._file.write(left) :]
            self._torn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_log(path: str | os.PathLike[str]) -> list[LoggedCheckpoint]:
    """The checkpoints that a log names, in its order."""
    name = os.fspath(path)
    with explained("cannot read the log of checkpoints", name), open(name, "rb") as file:
        try:
            return parse_log(_lines(file))
        except FormatError as error:
            raise error.at(Where(key=name)) from None


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines that are not too long, so that a file that is no log is not read into memory at once."""
    while line := file.readline(_MAX_LINE_BYTES):
        yield line


def _ends_a_line(file: IO[bytes], size: int) -> bool:
    file.seek(size - 1)
    return file.read(1) == b"\n"
