"""What a scrub did, and what it knows of all objects. Pure."""

from __future__ import annotations

from datetime import datetime

from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.uploads.open_uploads import Upload


@dataclass(frozen=True, slots=True)
class ScrubbedFile:
    """An object that is, or was, damaged, or that could not be read.

    Attributes:
        url: The object.
        outcome: "rot" (bytes changed, and the version of the object did not), "damaged" (found so when it was first
            seen, or in a new version), or "error" (it could not be read).
        message: What is wrong.
        healed: Where its bytes came from: "parity" or "replica"; None where it is still as it was.
        not_healed: Why it could not be healed; None where it was, or where that was not asked for.
    """

    url: str
    outcome: str
    message: str
    healed: str | None = None
    not_healed: str | None = None


@dataclass(frozen=True, slots=True)
class ScrubReport:
    """What a scrub did, and what it knows of all objects.

    Attributes:
        num_files: Objects that were listed, sidecars included.
        num_proven: Those that were read in this run, and are right.
        num_new: Those of them that were not known before, or had changed.
        num_bytes: Bytes of the objects that were read.
        num_due: Objects whose proof is due, and that were not read in this run.
        oldest_proof: When the object was proven whose proof is the oldest; None where an object has none, or there is
            no object.
        damaged: Objects that are, or were, damaged, and those that could not be read.
        gone: Objects of earlier runs that are not there any more; each is named by one run.
        uploads: Uploads below the folders that have been open for more than a day.
        partial_files: Local files that a writer began and did not finish.
    """

    num_files: int = 0
    num_proven: int = 0
    num_new: int = 0
    num_bytes: int = 0
    num_due: int = 0
    oldest_proof: datetime | None = None
    damaged: tuple[ScrubbedFile, ...] = ()
    gone: tuple[str, ...] = ()
    uploads: tuple[Upload, ...] = ()
    partial_files: tuple[str, ...] = ()

    @property
    def num_damaged(self) -> int:
        """Objects that are damaged still."""
        return sum(each.healed is None and each.outcome != "error" for each in self.damaged)

    @property
    def exit_code(self) -> int:
        """0 where all that was read is right or healed, 1 where an object is damaged, 4 where one cannot be read."""
        if self.num_damaged:
            return 1
        return 4 if any(each.outcome == "error" for each in self.damaged) else 0
