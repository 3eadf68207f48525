"""What a check or a recovery found, as data: for people through the CLI, for programs as JSON (docs/json.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from resilient_pq.damage.lost_region import Damage, LostRegion, place_to_json
from resilient_pq.errors import Where
from resilient_pq.io.location import is_web, without_query
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.notebook_html import damage_strip, page_frame, preformatted
from resilient_pq.recovery.ledger.ledger_model import Ledger
from resilient_pq.shell_commands import shell_line
from resilient_pq.units import counted, in_bytes

__all__ = [
    "SCHEMA_VERSION",
    "Damage",
    "Finding",
    "Kept",
    "LostRegion",
    "Outcome",
    "Report",
    "recovered_name",
    "rows_lost",
    "rows_words",
]

SCHEMA_VERSION = 1
#: Findings that `str` shows; `findings` has all.
_SHOWN_FINDINGS = 20


class Outcome(StrEnum):
    """The answer in one word."""

    CIPHERTEXT_WHOLE = "ciphertext whole"
    """An encrypted file, looked at without its keys: its bytes are as they were written, and no value was read."""
    UNCHECKED = "unchecked"
    """An encrypted file of another writer, looked at without its keys: nothing vouches for its bytes."""
    SOUND = "sound"
    """A check found nothing; a recovery copied the object as it was."""
    INCOMPLETE = "incomplete"
    """Whole as far as it goes, but its writer did not finish it, or a recovery made it of one that did not."""
    DAMAGED = "damaged"
    """Bytes are missing or changed."""
    RECOVERED = "recovered"
    """The end of the file is proven, and every row before it was kept."""
    PARTIAL = "partial"
    """Some rows were kept, others were lost."""
    NOTHING = "nothing"
    """No row could be kept."""
    SEALED = "sealed"
    """A copy was written that has a checksum on every page."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        damage: Its kind.
        message: What was found, for people.
        where: The place.
        start: Absolute offset of the first byte concerned, None where it cannot be told.
        end: Offset after the last byte concerned.
        costs_rows: Whether rows cannot be read because of it; False for lost copies and the like.
    """

    damage: Damage
    message: str
    where: Where = field(default_factory=Where)
    start: int | None = None
    end: int | None = None
    costs_rows: bool = True

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {
            "damage": str(self.damage),
            "message": self.message,
            "file": self.where.key,
            **place_to_json(self.where),
            "start": self.start,
            "end": self.end,
            "costs_rows": self.costs_rows,
        }


@dataclass(frozen=True, slots=True)
class Kept:
    """What a recovery wrote.

    Attributes:
        output: URL of the new object; None when nothing was written.
        num_rows: Rows in it; None of an encrypted file whose rows only its keys tell.
        num_bytes: Bytes of the input that went into it as they were.
        rows_lost: Rows known to be lost; None when bytes were lost that do not tell how many rows they held.
        lost: The regions lost.
        num_bytes_unread: Of `num_bytes`, those that the store copied itself: they were not read, and their checksums
            not compared.
        ledger: What became of every byte and of every row; None when nothing was looked at.
        outputs: The URL of each column's own object by its name, where each has one; `output` is None then.
    """

    output: str | None
    num_rows: int | None
    num_bytes: int
    rows_lost: int | None
    lost: tuple[LostRegion, ...] = ()
    num_bytes_unread: int = 0
    ledger: Ledger | None = None
    outputs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OtherPolicy:
    """What another `on_damage` would keep of a file.

    Attributes:
        on_damage: Its name, as `recover` takes it.
        num_rows: Rows that it keeps.
        columns: By the path of each leaf column, the share of these rows that have their value, 0.0 to 1.0.
    """

    on_damage: str
    num_rows: int
    columns: Mapping[str, float]

    def __str__(self) -> str:
        """The rows, and how much of each column is there."""
        whole = [name for name, share in self.columns.items() if share == 1]
        parts = [f"{', '.join(whole)} whole"] if whole else []
        for name, share in self.columns.items():
            if share < 1:
                parts.append(f"{name} {share:.0%}" if share else f"{name} lost")
        return f"{self.num_rows:,} rows: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """As in docs/json.md."""
        return {"on_damage": self.on_damage, "rows": self.num_rows, "columns": dict(self.columns)}


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """What was found, and what to do next.

    Attributes:
        verb: "check", "recover", "seal", "convert" or "uploads complete".
        url: What was looked at, as it may be shown: a URL without a user, and with a hash in the place of its query.
        outcome: The answer in one word.
        num_rows: Rows that can be read, or that a recovery can keep; None of an encrypted file whose rows only its keys
            tell.
        num_row_groups: Their row groups.
        size: Bytes of the object; those of its data files too when it is a summary.
        findings: What is not as it should be.
        next: The commands to run next, as argument lists.
        schema: The schema as message text; None when it is not known.
        kept: What a recovery wrote; None for a check.
        schema_from: Where the schema comes from, when the object does not tell it: the URL of another one, or words for
            what the caller gave; None when it does, or when columns were made up.
        pages_verified: Of the column chunks without damage, the pages whose bytes a checksum vouches for; None but of a
            check.
        pages_decoded: Of these, the pages that have none: they were decoded, and a changed value would not be seen.
        notes: More for people: which uploads are open for the name of the output, and how to remove them.
        other_policy: Another `on_damage` that keeps more than ten times as many rows; None where there is none.
        blocks_damaged: Blocks that are not as they were when the sidecar beside the file was made; None without one.
        blocks_repairable: Those of them that `repair` can bring back.
        parity_blocks: Blocks of parity that a deep check computed again; 0 where the file has none, None of others.
    """

    verb: str
    url: str
    outcome: Outcome
    num_rows: int | None
    num_row_groups: int = 0
    size: int = 0
    findings: tuple[Finding, ...] = ()
    next: tuple[tuple[str, ...], ...] = ()
    schema: str | None = None
    kept: Kept | None = None
    schema_from: str | None = None
    pages_verified: int | None = None
    pages_decoded: int | None = None
    notes: tuple[str, ...] = ()
    other_policy: OtherPolicy | None = None
    blocks_damaged: int | None = None
    blocks_repairable: int | None = None
    parity_blocks: int | None = None

    def __repr__(self) -> str:
        """What was found, in a line."""
        findings = counted(len(self.findings), "finding")
        return f"<resilient_pq.Report: {self.verb} of {self.url}: {self.outcome}, {self._rows}, {findings}>"

    def __str__(self) -> str:
        """What was found, kept and lost, and what to do next, in some lines."""
        lines = [f"{self.verb} of {self.url}: {self.outcome}", f"rows: {self._rows}; {in_bytes(self.size)}"]
        if self.pages_decoded:
            pages = counted((self.pages_verified or 0) + self.pages_decoded, "page")
            lines.append(f"no checksum: {self.pages_decoded:,} of {pages}, in which a changed value is not seen")
        if self.kept is not None:
            lost = self.kept.rows_lost
            lines.append(f"lost: {rows_words(lost)}")
            lines += [f"written: {url}" for url in (self.kept.output, *self.kept.outputs.values()) if url is not None]
        if self.other_policy is not None:
            lines.append(f"on_damage={self.other_policy.on_damage!r} keeps {self.other_policy}")
        found = [f"{finding.damage}: {finding.message} ({finding.where})" for finding in self.findings]
        lines += found[:_SHOWN_FINDINGS]
        if len(found) > _SHOWN_FINDINGS:
            lines.append(f"... and {len(found) - _SHOWN_FINDINGS:,} more findings")
        return "\n".join([*lines, *(f"next: {shell_line(command)}" for command in self.next)])

    def _repr_html_(self) -> str:
        """The same for notebooks, with a map: of a recovery its page, of a check the damaged places."""
        shown = preformatted(str(self))
        if self.kept is not None and self.kept.ledger is not None:
            from resilient_pq.recovery.ledger.html_page import ledger_page  # noqa: PLC0415 (it imports this module)

            return shown + page_frame(ledger_page(self.kept.ledger, self))
        here = [found for found in self.findings if found.where.key in (None, self.url)]
        places = [(found.start, found.end) for found in here if found.start is not None and found.end is not None]
        return shown + damage_strip(self.size, places) if self.findings else shown

    @property
    def _rows(self) -> str:
        return f"{rows_words(self.num_rows)} in {counted(self.num_row_groups, 'row group')}"

    @property
    def num_pages(self) -> int:
        """Pages that were verified or decoded."""
        return (self.pages_verified or 0) + (self.pages_decoded or 0)

    @property
    def exit_code(self) -> int:
        """0 sound or everything recovered, 1 damage or losses, 3 nothing recoverable."""
        match self.outcome:
            case Outcome.SOUND | Outcome.RECOVERED | Outcome.SEALED | Outcome.CIPHERTEXT_WHOLE:
                return 0
            case Outcome.INCOMPLETE | Outcome.DAMAGED | Outcome.PARTIAL | Outcome.UNCHECKED:
                return 1
            case Outcome.NOTHING:
                return 3

    def to_json(self) -> dict[str, Any]:
        """One document, as in docs/json.md."""
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "verb": self.verb,
            "url": self.url,
            "outcome": str(self.outcome),
            "rows": self.num_rows,
            "row_groups": self.num_row_groups,
            "size": self.size,
            "findings": [finding.to_json() for finding in self.findings],
            "next": [list(command) for command in self.next],
            "schema": self.schema,
        }
        if self.verb in ("check", "recover"):
            document["other_policy"] = None if self.other_policy is None else self.other_policy.to_json()
        if self.pages_verified is not None:
            document |= {"pages_verified": self.pages_verified, "pages_decoded": self.pages_decoded}
            document |= {"blocks_damaged": self.blocks_damaged, "blocks_repairable": self.blocks_repairable}
            document["parity_blocks"] = self.parity_blocks
        if self.kept is not None:
            document |= {
                "rows_kept": self.kept.num_rows,
                "rows_lost": self.kept.rows_lost,
                "bytes_kept": self.kept.num_bytes,
                "bytes_unread": self.kept.num_bytes_unread,
                "lost": [region.to_json() for region in self.kept.lost],
                "output": self.kept.output,
                "outputs": dict(self.kept.outputs),
                "ledger": None if self.kept.ledger is None else self.kept.ledger.to_json(),
                "schema_from": self.schema_from,
                "notes": list(self.notes),
            }
        return document


def rows_words(num_rows: int | None) -> str:
    """A number of rows for people."""
    return "an unknown number of rows" if num_rows is None else counted(num_rows, "row")


def rows_lost(regions: Sequence[LostRegion]) -> int | None:
    """Rows of all regions together; None when one of them does not tell."""
    counts = [region.num_rows for region in regions]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def recovered_name(url: str, done: str = "recovered") -> str:
    """A name for the recovered, or repaired, object: beside the damaged one, but here where that is on a web server."""
    base = without_query(url).removesuffix(".partial")
    if is_web(base):
        base = base.rpartition("/")[2]
    return f"{base.removesuffix('.parquet')}.{done}.parquet"
