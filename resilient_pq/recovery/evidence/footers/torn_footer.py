"""File metadata found at the damaged end of a file, whoever wrote it, and findings about that end. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from resilient_pq.damage.partial_metadata import MetadataEnd, PartialMetaData
from resilient_pq.errors import ResilientPQError, Where
from resilient_pq.format.file_metadata import ColumnChunk
from resilient_pq.format.footer import MAGIC
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.evidence.byte_remap import ByteRemap, RemapSegment
from resilient_pq.recovery.evidence.located_row_group import (
    LocatedChunk,
    LocatedRowGroup,
    Method,
    RebuiltFile,
    without_malformed_sums,
)
from resilient_pq.recovery.report import Damage, Finding


@dataclass(frozen=True, slots=True)
class ObjectExtent:
    """An object of `size` bytes: where the padding at its end begins, and whether it begins with the magic."""

    size: int
    data_end: int
    has_magic: bool


@dataclass(frozen=True, slots=True)
class TornFooter:
    """File metadata that were found at the damaged end of a file."""

    # The schema, and the row groups that are named in full; their offsets are those of the file as it was written
    contents: Contents
    complete: bool  # Whether the metadata are whole; otherwise there may have been more row groups, keys, and a maker
    start: int  # Offset at which they lie
    end: int  # Offset at which the file truly ends: just after the magic, or after the last byte of metadata
    # What is added to an offset of the file as it was written to have the one where the byte lies; other than 0 where
    # bytes are missing or were added before the row groups
    shift: int
    num_rows: int | None  # Rows of the file as it was written; None where the metadata were cut before that
    num_row_groups: int | None  # Row groups of the file as it was written; None where the metadata were cut before that
    ordinals: tuple[int, ...]  # For each row group in `contents`, its number in the file as it was written
    # Column chunks that are named in full of the row group after those in `contents`, where these end
    columns: tuple[ColumnChunk, ...] = ()
    findings: tuple[Finding, ...] = ()  # What is wrong with the end, for people

    @property
    def stated_rows(self) -> int | None:
        """Rows of the file as it was written; None where no number states them, or it contradicts the row groups."""
        named = self.contents.num_rows
        if self.num_row_groups == len(self.ordinals):
            return named if self.num_rows in (0, named) else None  # early parquet-rs wrote 0 rows
        return None if self.num_rows is None or self.num_rows < named else self.num_rows

    @property
    def view(self) -> ByteRemap:
        """The file as it was written, up to its end."""
        size = self.end - self.shift
        return ByteRemap(size, (RemapSegment(max(0, -self.shift), size, self.shift),))

    @property
    def rebuilt(self) -> RebuiltFile:
        """The same as a file that was carved."""
        metadata = replace(self.contents.metadata, row_groups=[], num_rows=0)
        return RebuiltFile(self.contents.schema, metadata, tuple(_locate_row_groups(self)), self.findings)


def _locate_row_groups(found: TornFooter) -> Iterator[LocatedRowGroup]:
    """The row groups that a footer, whole or not, names."""
    contents = found.contents
    method = Method.FOOTER if found.complete else Method.TORN_FOOTER
    for position, (ordinal, rows_before) in enumerate(zip(found.ordinals, _rows_before(found), strict=True)):
        row_group = contents.metadata.row_groups[position]
        chunks: list[LocatedChunk | None] = []
        for leaf in contents.schema.leaves:
            try:
                chunk = replace(chunk_read(contents, position, leaf), row_group=ordinal)
                chunks.append(LocatedChunk(without_malformed_sums(chunk)))
            except ResilientPQError:
                chunks.append(None)
        places = [chunk.read.range for chunk in chunks if chunk is not None and chunk.read.metadata.num_values]
        start = min((place.start for place in places), default=len(MAGIC))
        end = max((place.end for place in places), default=len(MAGIC))
        sorting = tuple(row_group.sorting_columns or ())
        yield LocatedRowGroup(ordinal, row_group.num_rows, rows_before, tuple(chunks), method, start, end, sorting)


def _rows_before(found: TornFooter) -> list[int | None]:
    """Rows before each row group, counted from the front, and behind missing ones from the end."""
    row_groups = found.contents.metadata.row_groups
    counts: list[int | None] = [None] * len(row_groups)
    num_rows = 0
    for position, ordinal in enumerate(found.ordinals):
        if position != ordinal:
            break
        counts[position] = num_rows
        num_rows += row_groups[position].num_rows
    left, following = found.num_rows or 0, found.num_row_groups
    for position in range(len(row_groups) - 1, -1, -1):
        left -= row_groups[position].num_rows
        if counts[position] is not None or found.ordinals[position] + 1 != following or left < num_rows:
            break
        counts[position], following = left, found.ordinals[position]
    return counts


def describe_whole(
    extent: ObjectExtent, contents: Contents, start: int, end: int, shift: int, *, tail_is_whole: bool
) -> TornFooter:
    """A footer whose metadata are whole."""
    findings = list(_findings_before(extent, shift))
    if not tail_is_whole:
        message = "the footer is whole, but its length and the magic behind it are missing or damaged"
        findings.append(_finding(message, start, extent.data_end))
    if end < extent.data_end:
        message = f"{extent.data_end - end:,} bytes of something else stand behind the end of the file"
        findings.append(_finding(message, end, extent.data_end, searched=False))
    findings += _findings_behind(extent, end)
    metadata = contents.metadata
    return TornFooter(
        contents, True, start, end, shift, metadata.num_rows, len(metadata.row_groups),
        tuple(range(len(metadata.row_groups))), (), tuple(findings),
    )  # fmt: skip


def describe_schema_alone(extent: ObjectExtent, contents: Contents, start: int, end: int) -> TornFooter:
    """Metadata without row groups, with bytes behind them, as at the beginning of a resilient file."""
    message = "there is no footer; metadata without row groups, which bytes stand behind, tell the schema"
    findings = [
        *_findings_before(extent, 0),
        Finding(Damage.TORN, message, Where(offset=start), start, end),
        *_findings_behind(extent, extent.data_end),
    ]
    return TornFooter(contents, False, start, end, 0, None, None, (), (), tuple(findings))


def describe_torn(
    extent: ObjectExtent, partial: PartialMetaData, contents: Contents, ordinals: tuple[int, ...], start: int
) -> TornFooter:
    """A footer that is cut or damaged."""
    findings = list(_findings_before(extent, 0))
    end = min(start + partial.end, extent.data_end)
    cut = partial.ending is MetadataEnd.CUT
    if not cut and partial.num_row_groups is None:
        partial = replace(partial, num_rows=None)  # what is damaged behind a number may begin within it
    how = "the file was cut inside its footer" if cut else "the footer is damaged"
    rest = "the schema is whole"
    if partial.num_row_groups is not None:
        rest += f", and {len(ordinals):,} of {partial.num_row_groups:,} row groups are named in full"
    # Early parquet-rs wrote 0 rows. A number of row groups that is damaged does not go with the number of rows.
    names_all = partial.names_all_row_groups and partial.num_rows in (0, contents.num_rows)
    if names_all:
        rest = "the schema and all row groups are whole, what follows them is not"
    elif partial.num_rows is not None:
        rest += f": {contents.num_rows:,} of {partial.num_rows:,} rows"
    where = Where(offset=end if cut else start)
    damage = Damage.TORN if cut else Damage.CORRUPT
    findings.append(Finding(damage, f"{how}; {rest}", where, where.offset, extent.size, not names_all))
    findings += _findings_behind(extent, extent.data_end)
    return TornFooter(
        contents, False, start, end, 0, partial.num_rows, partial.num_row_groups, ordinals, tuple(partial.columns),
        tuple(findings),
    )  # fmt: skip


def _findings_before(extent: ObjectExtent, shift: int) -> Iterator[Finding]:
    if shift < 0:
        message = f"{-shift:,} bytes are missing at the beginning of the file, or before its footer"
        yield Finding(Damage.MISSING, message, Where(offset=0), 0, 0)
    elif shift > 0:
        message = f"{shift:,} bytes of something else stand before the beginning of the file"
        yield _finding(message, 0, shift, searched=False)
    elif not extent.has_magic:
        yield _finding("the magic at the beginning is damaged", 0, min(len(MAGIC), extent.size))


def _findings_behind(extent: ObjectExtent, end: int) -> Iterator[Finding]:
    start = max(end, extent.data_end)
    if start < extent.size:
        yield _finding(f"{extent.size - start:,} bytes of padding stand behind the end of the file", start, extent.size)


def _finding(message: str, start: int, end: int, *, searched: bool = True) -> Finding:
    # Of bytes before and behind the file nobody knows what they hold: a second file perhaps.
    said = "nothing is lost with that" if searched else "they are no part of it, and were not searched"
    return Finding(Damage.CORRUPT, f"{message}; {said}", Where(offset=start), start, end, costs_rows=False)
