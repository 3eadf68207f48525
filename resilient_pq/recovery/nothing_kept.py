"""The error of a recovery that keeps nothing, with its report and with what may help. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from resilient_pq.damage.chunk_salvage import UNPROVEN_PLACE
from resilient_pq.errors import NothingToRecoverError, RecoveryError, Where
from resilient_pq.reader.data_file import writing_again
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.strategy import Strategy
from resilient_pq.recovery.ledger.ledger_build import build_empty_ledger
from resilient_pq.recovery.ledger.ledger_model import Ledger
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, OtherPolicy, Outcome, Report

#: A policy that keeps more, and the command that asks for it.
OtherTry: TypeAlias = tuple[OtherPolicy | None, tuple[tuple[str, ...], ...]]


def summary_refused(url: str) -> RecoveryError:
    """The error for a summary of other files."""
    again = " ".join(writing_again(url))
    hint = f"recover those that are damaged, then write it again: {again}"
    return RecoveryError("it is a summary: its rows lie in other files", where=Where(key=url), hint=hint)


def nothing_to_recover(
    reconstruction: Reconstruction,
    findings: Sequence[Finding],
    ledger: Ledger | None,
    another: OtherTry = (None, ()),
) -> NothingToRecoverError:
    """The error for a file of which no row can be kept."""
    (other, following), source, contents = another, reconstruction.source, reconstruction.contents
    size = source.info.size
    reason = findings[0].message if findings else "no row group is whole"
    damage = findings[0].damage if findings else Damage.UNFINISHED
    lost = (LostRegion(0, size, None, damage, reason),)
    report = Report(
        verb="recover",
        url=source.url,
        outcome=Outcome.NOTHING,
        num_rows=0,
        size=size,
        findings=tuple(findings),
        schema=None if contents is None else str(contents.schema),
        kept=Kept(None, 0, 0, None, lost, ledger=ledger or build_empty_ledger(source, reason)),
        other_policy=other,
        next=following,
    )
    where, hint = Where(key=source.url), _hint_at_schema(reconstruction)
    if ledger is not None and any(UNPROVEN_PLACE in (fate.reason or "") for fate in ledger.rows):
        hint = "keep pages whose place nothing proves, wrong values among them: keep_unplaced=True (--keep-unplaced)"
    if other is not None:
        hint = f"on_damage={other.on_damage!r} (--on-damage {other.on_damage}) keeps {other}"
    return NothingToRecoverError(f"nothing to recover: {reason}", report=report, where=where, hint=hint)


def _hint_at_schema(reconstruction: Reconstruction) -> str | None:
    """What may help where nothing could be kept: the schema that is known, or another file's."""
    contents, identity = reconstruction.contents, reconstruction.identity
    if contents is None and identity is not None and identity.hint is not None:
        return identity.hint
    stated = (reconstruction.given, reconstruction.torn_footer, reconstruction.schema_from)
    if Strategy.CARVING in reconstruction.tried and all(each is None for each in stated):
        return "the schema of a file of the same make may tell which columns its pages are of: --schema-from FILE"
    return None if contents is None else "the schema is known: see the report"
