"""The summary of a run: numbers of files and rows, and the worst files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

from resilient_pq.bulk.file_result import FileResult
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.report import SCHEMA_VERSION, Report

#: Files that a summary names, at most.
MAX_WORST = 100
#: Characters of a message in a summary, at most.
_MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file in a few words and numbers, whatever is wrong with it.

    Attributes:
        url: The file.
        outcome: As of `FileResult`.
        exit_code: As of `FileResult`.
        num_rows: Rows that can be read, or were kept; None where nothing tells.
        rows_lost: Rows known to be lost; None where that cannot be told, as by a check.
        num_findings: Findings that cost rows.
        size: Bytes of the file; 0 where nothing tells.
        message: The first thing that is wrong; None where nothing is.
        output: What was written of it; None where nothing was.
        pages_verified: As of `Report`.
        pages_decoded: As of `Report`.
    """

    url: str
    outcome: str
    exit_code: int
    num_rows: int | None
    rows_lost: int | None
    num_findings: int
    size: int
    message: str | None
    output: str | None = None
    pages_verified: int | None = None
    pages_decoded: int | None = None

    @classmethod
    def of(cls, result: FileResult) -> FileEntry:
        """The entry of a result."""
        report, error = result.report, result.error
        if error is not None:
            return cls(result.url, result.outcome, result.exit_code, None, None, 0, 0, error.message[:_MAX_MESSAGE])
        if report is None:
            facts = result.facts or {}
            return cls(result.url, result.outcome, 0, facts.get("rows"), None, 0, facts.get("size", 0), None)
        kept = report.kept
        return cls(
            result.url,
            result.outcome,
            result.exit_code,
            report.num_rows,
            None if kept is None else kept.rows_lost,
            sum(finding.costs_rows for finding in report.findings),
            report.size,
            None if result.is_sound else _first_message(report),
            None if kept is None else kept.output or next(iter(kept.outputs.values()), None),
            report.pages_verified,
            report.pages_decoded,
        )

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> FileEntry:
        """The entry that `to_json` made the document of."""
        optional = ("pages_verified", "pages_decoded")  # older journals have none
        entry = cls(**{name: document[name] for name in cls.__slots__ if name in document or name not in optional})
        numbers = (entry.exit_code, entry.num_findings, entry.size)
        numbers_or_none = (entry.num_rows, entry.rows_lost, entry.pages_verified, entry.pages_decoded)
        if not all(isinstance(number, int) for number in numbers) or not isinstance(entry.outcome, str):
            raise TypeError("not an entry")
        if not all(number is None or isinstance(number, int) for number in numbers_or_none):
            raise TypeError("not an entry")
        return entry

    def to_json(self) -> dict[str, Any]:
        """A line of a journal, and of ``worst`` in a summary."""
        return asdict(self)

    @property
    def badness(self) -> tuple[int, int, int, str]:
        """The worst sorts first: by exit status, by rows lost, by findings, and then by name."""
        return -self.exit_code, -(self.rows_lost or 0), -self.num_findings, self.url


def _first_message(report: Report) -> str | None:
    """The first finding, one that costs rows if there is any, and the findings that name the source of the schema."""
    costly = [finding.message for finding in report.findings if finding.costs_rows]
    messages = costly[:1] or [finding.message for finding in report.findings[:1]]
    if report.schema_from is not None:
        messages += [each.message for each in report.findings if report.schema_from in each.message]
    return "; ".join(dict.fromkeys(messages))[:_MAX_MESSAGE] or None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What became of many files.

    Attributes:
        verb: "check", "recover" or "inspect".
        num_files: Files that are done, those of earlier runs included.
        num_resumed: Of these, the ones that an earlier run of the same journal had done.
        num_found: Files that were found so far; as many as `num_files` at the end.
        all_found: Whether the listing has come to its end.
        outcomes: How many files had which outcome.
        num_rows: Rows that can be read, or were kept.
        rows_lost: Rows known to be lost.
        num_uncounted: Files of which rows are lost that cannot be counted.
        size: Bytes of all files.
        exit_code: The highest of any file: 0 where nothing is wrong.
        worst: The worst files, at most 100, the very worst first; none that is sound.
        pages_verified: Pages of all files that checksums vouch for (`Report.pages_verified`).
        pages_decoded: Pages of all files that have none.
        num_not_verified: Files that have such pages.
    """

    verb: str
    num_files: int = 0
    num_resumed: int = 0
    num_found: int = 0
    all_found: bool = False
    outcomes: Mapping[str, int] = field(default_factory=dict)
    num_rows: int = 0
    rows_lost: int = 0
    num_uncounted: int = 0
    size: int = 0
    exit_code: int = 0
    worst: tuple[FileEntry, ...] = ()
    pages_verified: int = 0
    pages_decoded: int = 0
    num_not_verified: int = 0

    @property
    def num_not_sound(self) -> int:
        """Files with which something is, or was, wrong."""
        return self.num_files - sum(self.outcomes.get(outcome, 0) for outcome in ("sound", "read"))

    def to_json(self) -> dict[str, Any]:
        """The last document of a run (docs/json.md)."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "verb": self.verb,
            "outcome": self.worst[0].outcome if self.worst else "read" if self.verb == "inspect" else "sound",
            "rows": self.num_rows,
            "findings": [],
            "next": [],
            "files": self.num_files,
            "files_resumed": self.num_resumed,
            "outcomes": dict(self.outcomes),
            "rows_lost": self.rows_lost,
            "files_uncounted": self.num_uncounted,
            "size": self.size,
            "worst": [entry.to_json() for entry in self.worst],
        }
        if self.verb == "check":
            document |= {"pages_verified": self.pages_verified, "pages_decoded": self.pages_decoded}
            document["files_not_verified"] = self.num_not_verified
        return document


class Tally:
    """Counts files in a `RunSummary`, whose size does not depend on their number."""

    def __init__(self, verb: str) -> None:
        self.summary = RunSummary(verb)

    def find(self, count: int) -> None:
        """Count files that were listed."""
        self.summary = replace(self.summary, num_found=self.summary.num_found + count)

    def end_listing(self) -> None:
        """Note that there are no more files."""
        self.summary = replace(self.summary, all_found=True)

    def add(self, entry: FileEntry, *, resumed: bool = False) -> None:
        """Count a file that is done."""
        before, decoded = self.summary, entry.pages_decoded or 0
        is_uncounted = entry.outcome in ("partial", "nothing") and entry.rows_lost is None
        worst = before.worst
        if entry.outcome not in ("sound", "read"):
            worst = tuple(sorted((*worst, entry), key=lambda each: each.badness)[:MAX_WORST])
        self.summary = replace(
            before,
            num_files=before.num_files + 1,
            num_resumed=before.num_resumed + resumed,
            outcomes=dict(
                sorted({**before.outcomes, entry.outcome: before.outcomes.get(entry.outcome, 0) + 1}.items())
            ),
            num_rows=before.num_rows + (entry.num_rows or 0),
            rows_lost=before.rows_lost + (entry.rows_lost or 0),
            num_uncounted=before.num_uncounted + is_uncounted,
            size=before.size + entry.size,
            exit_code=max(before.exit_code, entry.exit_code),
            worst=worst,
            pages_verified=before.pages_verified + (entry.pages_verified or 0),
            pages_decoded=before.pages_decoded + decoded,
            num_not_verified=before.num_not_verified + (decoded > 0),
        )
