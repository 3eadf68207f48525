"""The schema of a sibling for a file without a schema, if the pages of the file fit it. An async shell.

Files of one folder are mostly written by one program, which is not taken for granted. Siblings are tried in the order
of their likeliness, and the first that fits is taken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from resilient_pq.errors import FormatError
from resilient_pq.format.file_metadata import RowGroup
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.evidence.located_row_group import RebuiltFile
from resilient_pq.recovery.evidence.schema_source import KnownSchema, Siblings
from resilient_pq.recovery.report import Damage, Finding


@dataclass(frozen=True, slots=True)
class SiblingFit:
    """The row groups that pages make up, and the sibling whose schema they have; None where columns were invented."""

    rebuilt: RebuiltFile
    origin: str | None


async def fit_siblings(siblings: Siblings, carve: Callable[[KnownSchema | None], Awaitable[RebuiltFile]]) -> SiblingFit:
    """Rebuild a file by the schema of the first sibling that fits, or by invented columns where none does.

    A sibling fits where at least as many pages belong to its columns as to invented ones. Two that fit differ only in
    names and meanings, which pages do not show: then the likelier one is taken, and a finding says so.
    """
    fitting: list[tuple[KnownSchema, RebuiltFile]] = []
    invented: RebuiltFile | None = None
    schemas = await siblings.schemas()
    for known in schemas:
        rebuilt = await _try_carving(carve, known)
        if rebuilt is None or not rebuilt.row_groups:
            continue
        if leaves_pages_out(rebuilt):
            invented = invented or await carve(None)
            if count_pages(rebuilt) < count_pages(invented):
                continue
        fitting.append((known, rebuilt))
    if fitting:
        known, rebuilt = fitting[0]
        chosen = _report_choice(known, [other.origin for other, _ in fitting[1:]])
        return SiblingFit(replace(rebuilt, findings=(chosen, *rebuilt.findings)), known.origin)
    return SiblingFit(_with_misfits(invented or await carve(None), schemas), None)


def _with_misfits(invented: RebuiltFile, schemas: Sequence[KnownSchema]) -> RebuiltFile:
    """Row groups in invented columns, with the siblings that do not fit as a finding."""
    if not schemas or not invented.row_groups:
        return invented
    message = f"its pages do not fit the columns of {', '.join(known.origin for known in schemas)}"
    finding = Finding(Damage.UNVERIFIED, message, costs_rows=False)
    return replace(invented, findings=(finding, *invented.findings))


async def _try_carving(
    carve: Callable[[KnownSchema | None], Awaitable[RebuiltFile]], known: KnownSchema
) -> RebuiltFile | None:
    try:
        return await carve(known)
    except FormatError:
        return None  # there are too many ways to lay the pages out in these columns


def _report_choice(known: KnownSchema, others: Sequence[str]) -> Finding:
    message = f"the schema is that of {known.origin}, whose columns its pages fit"
    if others:
        message += f"; they fit the other names and types of {', '.join(others)} as well, which are no nearer"
    return Finding(Damage.UNVERIFIED, message, costs_rows=False)


def leaves_pages_out(rebuilt: RebuiltFile) -> bool:
    """Whether a finding says that pages, or their rows, are lost."""
    return any(finding.costs_rows for finding in rebuilt.findings)


def count_pages(rebuilt: RebuiltFile) -> int:
    """Pages that belong to a column."""
    chunks = (chunk for row_group in rebuilt.row_groups for chunk in row_group.chunks if chunk is not None)
    return sum(len(chunk.pages.pages) for chunk in chunks if chunk.pages is not None)


async def match_names(siblings: Siblings, row_groups: Sequence[RowGroup]) -> KnownSchema | None:
    """The schema of the first sibling whose columns have the names and types in some row groups; None for none."""
    for known in await siblings.schemas():
        leaves: list[object] = [(list(leaf.path), int(leaf.node.physical_type)) for leaf in known.schema.leaves]
        if all(_columns(row_group) == leaves for row_group in row_groups):
            return known
    return None


def _columns(row_group: RowGroup) -> list[tuple[list[str] | None, int] | None]:
    chunks = [chunk.meta_data for chunk in row_group.columns]
    return [None if chunk is None else (chunk.path_in_schema, chunk.type) for chunk in chunks]
