"""When each object was last proven, and what it was then: lines of a file that survives kills. Blocking calls."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from resilient_pq.bulk.keyed_lines import KeyedLines

#: Seconds between two times that lines are made to survive a loss of power.
_SYNC_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class LastProof:
    """The last proof of an object."""

    proven: int  # When it was right, in seconds since 1970; 0 where it never was
    version: str  # Its version (`proof.version_of`)
    listed: str | None  # What the listing called this version; None where it does not tell
    size: int
    digest: str  # The xxh3-128 of its bytes when they were right; empty where they never were
    damage: str | None = None  # What is wrong with it now; None where nothing is

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self | None:
        """The proof in a line; None where there is none."""
        try:
            found = cls(**{name: line[name] for name in cls.__slots__})
        except KeyError:
            return None
        texts = (found.version, found.digest, found.listed or "", found.damage or "")
        is_proof = isinstance(found.proven, int) and isinstance(found.size, int)
        return found if is_proof and all(isinstance(text, str) for text in texts) else None


class ScrubState(KeyedLines):
    """An open state, locked against other runs."""

    NOUN: ClassVar[str] = "state"
    FORMAT: ClassVar[str] = "resilient_pq scrub 1"
    OPTION: ClassVar[str] = "--state"
    _synced = 0.0

    def last(self, address: str) -> LastProof | None:
        """The last proof of an object."""
        line = self.newest(address)
        return None if line is None else LastProof.from_json(line)

    def note(self, address: str, proof: LastProof) -> None:
        """Note a proof; it survives a kill at once, and a loss of power a second later."""
        self.append(address, asdict(proof))
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self.sync()
            self._synced = time.monotonic()

    def note_gone(self, seen: Iterable[int]) -> list[str]:
        """The names of objects of earlier runs whose keys are not among those seen; each is told once."""
        gone = [line for line in self.lines_without(seen) if LastProof.from_json(line) is not None]
        for line in gone:
            self.append_to(line, {"gone": True})
        return [line["url"] for line in gone]
