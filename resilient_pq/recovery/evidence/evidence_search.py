"""The strategies, tried one after the other until nothing more can be learned of a damaged file. An async shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.errors import KeyMissingError, NotParquetError, TornFileError, Where
from resilient_pq.off_event_loop import off_loop
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.evidence.carve_strategy import carve_row_groups
from resilient_pq.recovery.evidence.footers.footer_strategies import find_true_end, read_footer
from resilient_pq.recovery.evidence.identify import identify
from resilient_pq.recovery.evidence.reconstruction import Reconstruction
from resilient_pq.recovery.evidence.records.record_strategies import read_chunk_records, read_records, restore_parts
from resilient_pq.recovery.evidence.row_group_choice import find_gaps
from resilient_pq.recovery.evidence.schema_source import KnownSchema, Siblings
from resilient_pq.recovery.evidence.strategy import Strategy, next_strategy
from resilient_pq.recovery.evidence.text_mode import undo_text_change
from resilient_pq.recovery.report import Damage, Finding

_TEXT_MODE = "text-mode"
#: Identities that say no more than that there is no footer at the end.
_NO_NEWS = ("parquet", "unknown")
#: A file that was transferred as text is read into memory to undo that, up to so many bytes.
_MOST_UNDONE = 1 << 30


async def reconstruct(
    source: DamagedObject,
    given: KnownSchema | None = None,
    siblings: Siblings | None = None,
    *,
    only_footer: bool = False,
    invent_columns: bool = True,
) -> Reconstruction:
    """Try one strategy after the other, as far as is needed, or only the footer at the end.

    Without `invent_columns` pages are not searched for where the file does not name its columns.
    """
    known = Reconstruction(source, given=given, siblings=siblings or Siblings())
    while (strategy := await off_loop(known.num_chunks, _choose_strategy, known)) is not None:
        if strategy is Strategy.CARVING and known.contents is None and not invent_columns:
            return known
        known = await _STRATEGIES[strategy](replace(known, tried=(*known.tried, strategy)))
        if only_footer:
            return known
    if known.error is not None:
        broken = await off_loop(known.num_chunks, _describe_broken_footer, known)
        known = replace(known, findings=(*broken, *known.findings))
    return known


async def reconstruct_if_sound(source: DamagedObject) -> Reconstruction | None:
    """What the footer at the end tells of a file; None where it is not whole, or more has to be read."""
    try:
        known = await reconstruct(source, only_footer=True)
    except KeyMissingError:
        return None  # the rest of an encrypted file has to be read
    contents = known.contents
    return known if known.footer_whole and contents is not None and not contents.data_files else None


def _choose_strategy(known: Reconstruction) -> Strategy | None:
    return next_strategy(known.facts)


async def _identify_bytes(known: Reconstruction) -> Reconstruction:
    source = known.source
    identity = await source.drive(identify(source.info.size))
    known = replace(known, identity=identity)
    if identity.name != _TEXT_MODE or source.info.size > _MOST_UNDONE:
        return known
    whole = undo_text_change(bytes(await source.read(ByteRange(0, source.info.size))))
    if whole is None:
        return known
    finding = Finding(Damage.CORRUPT, identity.sentence, costs_rows=False)
    return known.with_findings(finding).read_from(await source.with_bytes(whole[1]))


_STRATEGIES: dict[Strategy, Callable[[Reconstruction], Awaitable[Reconstruction]]] = {
    Strategy.FOOTER: read_footer,
    Strategy.RECORDS: read_records,
    Strategy.PLACEMENT: restore_parts,
    Strategy.IDENTITY: _identify_bytes,
    Strategy.CHUNK_RECORDS: read_chunk_records,
    Strategy.TRUE_END: find_true_end,
    Strategy.CARVING: carve_row_groups,
}


def _describe_broken_footer(known: Reconstruction) -> list[Finding]:
    """The findings for a file whose footer cannot be used: what is lost, and all behind the last whole record."""
    error, candidates, size = known.error, known.candidates, known.source.info.size
    assert error is not None
    kind = Damage.CORRUPT
    if isinstance(error, TornFileError):
        kind = Damage.TORN
    elif isinstance(error, NotParquetError) and candidates is None:
        kind = Damage.FOREIGN
    start = candidates.last.end if candidates is not None and candidates.last is not None else 0
    findings = [Finding(kind, error.message, error.where, start, size)]
    if known.identity is not None and known.identity.name not in _NO_NEWS and not known.row_groups:
        named = Finding(Damage.FOREIGN, known.identity.sentence, Where(offset=0), 0, size)
        findings = [named, *findings] if size else [named]  # of no bytes both say the same
    for region in find_gaps(known.row_groups):
        findings.append(Finding(region.damage, region.reason, region.where, region.start, region.end))
    # In the clear, records of an encrypted file are smaller than what they stand for.
    is_apart = candidates is None or known.source.decrypt is not None
    for gap in () if is_apart or candidates is None else candidates.unaccounted:
        message = "no whole record stands here; it was a second copy, nothing is lost with it"
        where = Where(offset=gap.start)
        findings.append(Finding(Damage.CORRUPT, message, where, gap.start, gap.end, costs_rows=False))
    return findings
