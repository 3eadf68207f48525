"""What a run of many files has done, as lines of a file, so that another run goes on where it stopped. Blocking calls.

There is a line for each file that is done, and for each output that was begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from resilient_pq.bulk.keyed_lines import KeyedLines
from resilient_pq.bulk.run_summary import FileEntry


@dataclass(frozen=True, slots=True)
class Remembered:
    """The entry of an earlier run for a file; `begun` if an output of its own may exist."""

    entry: FileEntry | None
    version: str | None
    begun: bool


class Journal(KeyedLines):
    """An open journal, locked against other runs."""

    NOUN: ClassVar[str] = "journal"
    FORMAT: ClassVar[str] = "resilient_pq journal 1"
    OPTION: ClassVar[str] = "--resume"

    def remembered(self, address: str) -> Remembered | None:
        """The entry of an earlier run for a file, if there is one."""
        line = self.newest(address)
        if line is None:
            return None
        try:
            entry = None if line.get("entry") is None else FileEntry.from_json(line["entry"])
        except (KeyError, TypeError):
            return None
        if entry is not None and entry.url != line["url"]:
            return None  # nothing that a run writes: the file is done once more
        return Remembered(entry, line.get("version"), line.get("begun") is True)

    def begin(self, address: str, version: str | None) -> None:
        """Note that the output of a file may exist from now on, and that there was none before."""
        self.append(address, {"version": version, "begun": True})

    def done(self, address: str, version: str | None, entry: FileEntry, *, begun: bool = False) -> None:
        """Note the result of a file, and whether its output was begun."""
        self.append(address, {"version": version, "begun": begun, "entry": entry.to_json()})
