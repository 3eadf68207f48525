"""A file of JSON lines, each about one object, of which the newest counts. Blocking calls.

The first line says what the file is. A line is whole or void: each ends with the CRC32 of what stands before it, and
a last one that is torn is cut off. Nothing of it is kept in memory but 16 bytes for each line that was there when it
was opened. URLs stand in it in their display form, with a hash of the whole one beside it; only its owner may read it.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from io import FileIO
from typing import Any, ClassVar, Self

import numpy as np

from resilient_pq.checksum import crc32
from resilient_pq.errors import AlreadyExistsError, RecoveryError, Where
from resilient_pq.io.location import fingerprint, shown
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import open_private, sync_folder

try:
    import fcntl
except ImportError:  # Windows: two runs are not told apart there
    fcntl = None  # type: ignore[assignment]

_CRC = b',"crc":'


class KeyedLines:
    """An open file of lines, locked against other processes."""

    NOUN: ClassVar[str]
    FORMAT: ClassVar[str]
    OPTION: ClassVar[str]

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
        """Open a file, which must be new or of the same run: everything that its lines depend on, as JSON."""
        self.path = os.fspath(path)
        self._run = json.loads(json.dumps(dict(run)))
        with explained(f"cannot open the {self.NOUN}", self.path):
            # Binary, and without a buffer: a line is there, or it is not.
            self._file = open_private(self.path)
        try:
            with explained(f"cannot read the {self.NOUN}", self.path):
                self._lock(self._file)
                self.refresh()
        except BaseException:
            self._file.close()
            raise

    def refresh(self) -> None:
        """Find the lines that were appended since it was opened, too."""
        self._hashes, self._offsets = self._read()

    def newest(self, address: str) -> dict[str, Any] | None:
        """The newest line about an object, of those that were found; None where there is none."""
        names = _names(address)
        wanted = np.uint64(_hash(names))
        last = int(np.searchsorted(self._hashes, wanted, side="right")) - 1
        if last < 0 or self._hashes[last] != wanted:
            return None
        line = self._line_at(int(self._offsets[last]))
        # Another URL may have the same hash: the object is taken for a new one then.
        return line if line is not None and _names_in(line) == names else None

    def append(self, address: str, fields: Mapping[str, Any]) -> None:
        """Write a line about an object."""
        self._append(_line_of({**_names(address), **fields}))

    def append_to(self, line: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        """Write a line about the object of another line."""
        self._append(_line_of({**_names_in(line), **fields}))

    @staticmethod
    def key_of(address: str) -> int:
        """What lines about an object are found by."""
        return _hash(_names(address))

    def sync(self) -> None:
        """Make all lines survive a loss of power."""
        with explained(f"cannot write the {self.NOUN}", self.path):
            os.fsync(self._file.fileno())

    def lines_without(self, keys: Iterable[int]) -> Iterator[dict[str, Any]]:
        """The newest line about each object, of those that were found, that has none of some keys."""
        last = np.append(self._hashes[1:] != self._hashes[:-1], True)[: len(self._hashes)]
        last &= ~np.isin(self._hashes, np.fromiter(keys, np.uint64))
        for offset in np.sort(self._offsets[last]).tolist():
            if (line := self._line_at(offset)) is not None:
                yield line

    def compact(self) -> None:
        """Leave out lines that have newer ones, where these are most of the file; a crash leaves the old file."""
        if len(self._hashes) < 1000 + 2 * len(np.unique(self._hashes)):
            return
        with explained(f"cannot write the {self.NOUN}", self.path):
            new = open_private(f"{self.path}.new")
            try:
                self._lock(new)
                new.truncate(0)
                new.write(self._header())
                for line in self.lines_without(()):
                    new.write(_line_of({name: value for name, value in line.items() if name != "crc"}))
                os.fsync(new.fileno())
                os.replace(new.name, self.path)
                sync_folder(self.path)
            except BaseException:
                new.close()
                raise
        self._file.close()
        self._file = new
        self.refresh()

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self, file: FileIO) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._taken() from None
        except OSError:
            return  # a file system without locks
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(os.fspath(file.name))):
            raise self._taken()  # which has just replaced it

    def _taken(self) -> AlreadyExistsError:
        return AlreadyExistsError(f"another run is writing this {self.NOUN}", where=Where(key=self.path))

    def _header(self) -> bytes:
        return json.dumps({"format": self.FORMAT, "run": self._run}, separators=(",", ":")).encode() + b"\n"

    def _read(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The hashes of the URLs of all lines, sorted, and the offsets of the lines; the newest of a URL last."""
        hashes, offsets, at = array("Q"), array("Q"), 0
        header = self._header()
        with open(self.path, "rb") as file:
            for number, line in enumerate(file):
                found = _parsed(line)
                if number == 0 and not header.startswith(line):  # it may be torn: a file that was just begun
                    self._check(found)
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

    def _check(self, header: dict[str, Any] | None) -> None:
        where = Where(key=self.path)
        if header is None or header.get("format") != self.FORMAT:
            hint = f"name another file for {self.OPTION}"
            raise RecoveryError(f"this is no {self.NOUN} of a run", where=where, hint=hint)
        others = header.get("run")
        if others != self._run:
            known = others if isinstance(others, dict) else {}
            differing = sorted(name for name in {*known, *self._run} if known.get(name) != self._run.get(name))
            raise RecoveryError(
                f"the {self.NOUN} is of another run, with another {', another '.join(differing)}",
                where=where,
                hint=f"run the same command again, or name another file for {self.OPTION}",
            )

    def _line_at(self, offset: int) -> dict[str, Any] | None:
        """The line that begins at an offset; None where it is torn."""
        found = bytearray()
        with explained(f"cannot read the {self.NOUN}", self.path):
            self._file.seek(offset)
            while b"\n" not in found and (piece := self._file.read(4096)):
                found += piece
        return _parsed(bytes(found[: found.find(b"\n") + 1]))

    def _append(self, data: bytes) -> None:
        end = os.fstat(self._file.fileno()).st_size
        with explained(f"cannot write the {self.NOUN}", self.path):
            try:
                written = self._file.write(data)
                while written is not None and written < len(data):  # a disk that is nearly full
                    data = data[written:]
                    written = self._file.write(data)
            except OSError:
                os.ftruncate(self._file.fileno(), end)  # so that a line behind it is whole
                raise


def _line_of(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode()[:-1]
    return text + _CRC + b"%d}\n" % crc32(text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line that is whole; None for one that is torn or changed. Lines of older versions have no CRC32."""
    try:
        found = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("crc", stated := crc32(line[: line.rfind(_CRC)])) != stated:
        return None
    return found


def _names(address: str) -> dict[str, str]:
    """The identity of an object in a line: its display form, and a hash of the address where that is longer."""
    url = shown(address)
    return {"url": url} if url == address else {"url": url, "key": fingerprint(address)}


def _names_in(line: Mapping[str, Any]) -> dict[str, str]:
    """The identity of the object in a parsed line."""
    return {name: str(line[name]) for name in ("url", "key") if name in line}


def _hash(names: Mapping[str, str]) -> int:
    name = names.get("key", names.get("url", ""))
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
