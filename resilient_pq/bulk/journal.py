"""What a run of many files has done, as lines of a file, so that another run goes on where it stopped. Blocking calls.

The first line says which run it is. Behind it stands a line for each file that is done, and for each output that was
begun; the newest line of a file counts. A line is whole or void: the last one may be torn, and is cut off then. Nothing
of it is kept in memory but 16 bytes for each line of earlier runs. URLs stand in it in their display form, with a
hash of the whole one beside it; only its owner may read it.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self

import numpy as np

from resilient_pq.bulk.run_summary import FileEntry
from resilient_pq.errors import AlreadyExistsError, RecoveryError, Where
from resilient_pq.io.location import fingerprint, shown
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import open_private

try:
    import fcntl
except ImportError:  # Windows: two runs are not told apart there
    fcntl = None  # type: ignore[assignment]

_FORMAT = "resilient_pq journal 1"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The entry of an earlier run for a file; `begun` if an output of its own may exist."""

    entry: FileEntry | None
    version: str | None
    begun: bool


class Journal:
    """An open journal, locked against other runs."""

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
        """Open a journal, which must be new or of the same run: everything that results depend on, as JSON."""
        self.path = os.fspath(path)
        with explained("cannot open the journal", self.path):
            # Binary, and without a buffer: a line is there, or it is not.
            self._file = open_private(self.path)
        try:
            with explained("cannot read the journal", self.path):
                self._lock()
                self._hashes, self._offsets = self._read(json.loads(json.dumps(dict(run))))
        except BaseException:
            self._file.close()
            raise

    def remembered(self, address: str) -> Remembered | None:
        """The entry of an earlier run for a file, if there is one."""
        names = _names(address)
        wanted = np.uint64(_hash(names))
        last = int(np.searchsorted(self._hashes, wanted, side="right")) - 1
        if last < 0 or self._hashes[last] != wanted:
            return None
        with explained("cannot read the journal", self.path):
            self._file.seek(int(self._offsets[last]))
            line = _parsed(self._line())
        if line is None or _names_in(line) != names:
            return None  # another URL of the same hash: the file is done once more
        try:
            entry = None if line.get("entry") is None else FileEntry.from_json(line["entry"])
        except (KeyError, TypeError):
            return None
        if entry is not None and entry.url != names["url"]:
            return None  # nothing that a run writes: the file is done once more
        return Remembered(entry, line.get("version"), line.get("begun") is True)

    def begin(self, address: str, version: str | None) -> None:
        """Note that the output of a file may exist from now on, and that there was none before."""
        self._append(_line_of({**_names(address), "version": version, "begun": True}))

    def done(self, address: str, version: str | None, entry: FileEntry, *, begun: bool = False) -> None:
        """Note the result of a file, and whether its output was begun."""
        self._append(_line_of({**_names(address), "version": version, "begun": begun, "entry": entry.to_json()}))

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def __enter__(self) -> Self:
        """The journal itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let go of it."""
        self.close()

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyExistsError("another run is writing this journal", where=Where(key=self.path)) from None
        except OSError:
            return  # a file system without locks

    def _read(self, run: dict[str, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The hashes of the URLs of all lines, sorted, and the offsets of the lines; the newest of a URL last."""
        hashes, offsets, at = array("Q"), array("Q"), 0
        header = _line_of({"format": _FORMAT, "run": run})
        with open(self.path, "rb") as file:
            for number, line in enumerate(file):
                found = _parsed(line)
                if number == 0 and not header.startswith(line):  # it may be torn: a journal that was just begun
                    self._check(found, run)
                if not line.endswith(b"\n"):
                    break
                if number and found is not None:
                    hashes.append(_hash(_names_in(found)))
                    offsets.append(at)
                at += len(line)
        if at != os.fstat(self._file.fileno()).st_size:
            os.ftruncate(self._file.fileno(), at)  # a line that was torn
        if not at:
            self._append(header)
        by_hash, places = np.array(hashes, np.uint64), np.array(offsets, np.uint64)
        order = np.argsort(by_hash, kind="stable")
        return by_hash[order], places[order]

    def _check(self, header: dict[str, Any] | None, run: dict[str, Any]) -> None:
        where = Where(key=self.path)
        if header is None or header.get("format") != _FORMAT:
            raise RecoveryError("this is no journal of a run", where=where, hint="name another file for --resume")
        others = header.get("run")
        if others != run:
            known = others if isinstance(others, dict) else {}
            differing = sorted(name for name in {*known, *run} if known.get(name) != run.get(name))
            raise RecoveryError(
                f"the journal is of another run, with another {', another '.join(differing)}",
                where=where,
                hint="run the same command again, or name another file for --resume",
            )

    def _line(self) -> bytes:
        """The line that begins where the file is read."""
        found = bytearray()
        while b"\n" not in found:
            piece = self._file.read(4096)
            if not piece:
                break
            found += piece
        return bytes(found[: found.find(b"\n") + 1])

    def _append(self, data: bytes) -> None:
        end = os.fstat(self._file.fileno()).st_size
        with explained("cannot write the journal", self.path):
            try:
                written = self._file.write(data)
                while written is not None and written < len(data):  # a disk that is nearly full
                    data = data[written:]
                    written = self._file.write(data)
            except OSError:
                os.ftruncate(self._file.fileno(), end)  # so that a line behind it is whole
                raise


def _line_of(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line that is whole; None for one that is torn."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _names(address: str) -> dict[str, str]:
    """The identity of a file in a line: its display form, and a hash of the address where that is longer."""
    url = shown(address)
    return {"url": url} if url == address else {"url": url, "key": fingerprint(address)}


def _names_in(line: Mapping[str, Any]) -> dict[str, str]:
    """The identity of the file in a parsed line."""
    return {name: str(line[name]) for name in ("url", "key") if name in line}


def _hash(names: Mapping[str, str]) -> int:
    name = names.get("key", names.get("url", ""))
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
