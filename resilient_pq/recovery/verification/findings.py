"""What is wrong with the bytes of a file: its chunks, its records, its indexes. An async shell."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TypeAlias

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.damage.stated_values import Stated, stated_of
from resilient_pq.errors import FormatError, KeyMissingError, NotFoundError, ObjectChangedError, Where
from resilient_pq.format.footer import ChunkSums
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.physical_values import LeafData
from resilient_pq.io import ObjectRange
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.machine_limits import processors
from resilient_pq.off_event_loop import Turns, off_loop
from resilient_pq.reader.chunk_objects import ChunkObjects
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.filter import index_ranges
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.reader.row_shapes import digest, neighbours
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.encrypted.ciphertext import survey_ciphertext
from resilient_pq.recovery.evidence.footers.footer_evidence import other_names
from resilient_pq.recovery.report import Damage, Finding
from resilient_pq.recovery.verification.checksum_checks import (
    Expected,
    PagesSeen,
    examine_chunk,
    examine_expected,
    expected_metadata,
    pages_seen,
)
from resilient_pq.units import MiB

#: Subjects that share a wave of requests: many, since requests are fetched ahead within it, and not so many that their
#: list is large by itself.
_WAVE = 4096
#: Examined side by side, since decoding what has no checksum keeps a core busy; each is held in memory meanwhile,
#: besides what is fetched ahead (`FetchOptions.memory_budget`).
_SIDE_BY_SIDE = min(4, processors())
#: Less than this is examined at once where it is quick: handing it to a thread would take longer.
_QUICK_BYTES = 64 * 1024


_Examination: TypeAlias = asyncio.Future[list[Finding]]


@dataclass(frozen=True, slots=True)
class Subject:
    """Bytes that may be damaged; `examine` finds out, which is `quick` where it decodes no values."""

    place: ObjectRange
    examine: Callable[[memoryview], list[Finding]]
    quick: bool = False


async def examine_ahead(
    objects: ChunkObjects, steps: AsyncGenerator[Subject | Finding, None]
) -> AsyncGenerator[tuple[Subject | None, list[Finding]], None]:
    """What is wrong with each subject, in order, while the next ones are fetched already."""
    wave: list[Subject | Finding] = []
    async with aclosing(steps):
        async for step in steps:
            wave.append(step)
            if len(wave) == _WAVE:
                async with aclosing(_examine_wave(objects, wave)) as found:
                    async for each in found:
                        yield each
                wave = []
    async with aclosing(_examine_wave(objects, wave)) as found:
        async for each in found:
            yield each


async def _examine_wave(
    objects: ChunkObjects, wave: Sequence[Subject | Finding]
) -> AsyncGenerator[tuple[Subject | None, list[Finding]], None]:
    places = [step.place for step in wave if isinstance(step, Subject)]
    turns = Turns()
    working: deque[tuple[Subject | None, _Examination]] = deque()
    try:
        async with aclosing(objects.fetch_places(places, in_order=True)) as arriving:
            for step in wave:
                await turns.give_way()
                if isinstance(step, Finding):
                    working.append((None, _begin(objects, None, memoryview(b""), [step])))
                else:
                    _, data = await anext(arriving)
                    working.append((step, _begin(objects, step, data, [])))
                    del data
                while len(working) >= _SIDE_BY_SIDE:
                    subject, task = working[0]
                    yield subject, await task
                    working.popleft()
            while working:
                subject, task = working[0]
                yield subject, await task
                working.popleft()
    finally:
        for _, task in working:
            task.cancel()
        await asyncio.gather(*(task for _, task in working), return_exceptions=True)


def _begin(objects: ChunkObjects, subject: Subject | None, data: memoryview, findings: list[Finding]) -> _Examination:
    """What is wrong with the bytes of a subject: known at once where that is quick, and nothing is, or before."""
    if subject is not None:
        if not subject.quick or data.nbytes >= _QUICK_BYTES:
            return asyncio.ensure_future(_examine_twice(objects, subject, data))
        if subject.examine(data):
            return asyncio.ensure_future(_examine_again(objects, subject))
    done: _Examination = asyncio.get_running_loop().create_future()
    done.set_result(findings)
    return done


async def _examine_twice(objects: ChunkObjects, subject: Subject, data: memoryview) -> list[Finding]:
    findings = await asyncio.to_thread(subject.examine, data)
    del data
    return await _examine_again(objects, subject) if findings else findings


async def _examine_again(objects: ChunkObjects, subject: Subject) -> list[Finding]:
    return await asyncio.to_thread(subject.examine, await objects.read_place(subject.place))


Progress = Callable[[int, int], None]  # Called with the bytes examined so far and the bytes there are
Place = tuple[int, int]  # A column chunk: the position of its row group in the footer, and the ordinal of its leaf
Seen = dict[Place, PagesSeen]  # The pages of each column chunk that is sound


async def examine_row_groups(
    source: DamagedObject, contents: Contents, progress: Progress | None, seen: Seen
) -> AsyncGenerator[Finding, None]:
    """What is wrong with the column chunks of a file, chunk by chunk, while the next ones are fetched already."""
    objects = source.objects(contents)
    done, total = 0, source.info.size
    if contents.data_files:
        chunks = [chunk.meta_data for row_group in contents.metadata.row_groups for chunk in row_group.columns]
        total = max(1, sum(chunk.total_compressed_size for chunk in chunks if chunk is not None))
    shapes = _Shapes(contents)
    async with aclosing(examine_ahead(objects, _chunks(objects, contents, seen, shapes))) as found:
        async for subject, findings in found:
            for finding in findings:
                yield finding
            if subject is not None:
                done += subject.place.range.size
                if progress is not None:
                    progress(done, total)
    for finding in chain(shapes.findings(), _contradicted_names(contents)):
        yield finding


def _contradicted_names(contents: Contents) -> Iterator[Finding]:
    """Columns that row groups name otherwise than the schema does, in a footer that has no checksum."""
    if contents.footer.record is not None:
        return
    for leaf, names in other_names(contents):
        name, count = names.most_common(1)[0]
        num_row_groups = len(contents.metadata.row_groups)
        called = f"{leaf.column_path!r} in the schema and {name!r} in {count} of {num_row_groups} row groups"
        message = f"a column is called {called}: one of the names was changed"
        yield Finding(Damage.CORRUPT, message, Where(column=leaf.column_path), costs_rows=False)


async def _chunks(
    objects: ChunkObjects, contents: Contents, seen: Seen, shapes: _Shapes
) -> AsyncGenerator[Subject | Finding, None]:
    """The column chunks, and what stands against reading some of them."""
    files: dict[str, Finding | None] = {}
    turns = Turns()
    for ordinal in range(len(contents.metadata.row_groups)):
        reported: set[str | None] = set()
        stated = await _stated(objects, contents, ordinal)
        for leaf in contents.schema.leaves:
            await turns.give_way()
            try:
                chunk = chunk_read(contents, ordinal, leaf)
                unusable = await _unusable(objects, chunk.file, files)
                if unusable is None:
                    said = stated.get(leaf.ordinal) or stated_of(contents.metadata, chunk)
                    yield Subject(objects.place_of(chunk), partial(_examine_chunk, objects, chunk, said, seen, shapes))
            except KeyMissingError:
                continue  # without keys only columns in the clear can be examined
            except FormatError as error:
                yield Finding(Damage.CORRUPT, error.message, error.where)
                continue
            if unusable is not None:
                if chunk.file not in reported:
                    yield replace(unusable, where=unusable.where.merged_with(Where(row_group=ordinal)))
                reported.add(chunk.file)


class _Shapes:
    """What the leaves of nested columns say of the rows above them, as far as they were decoded."""

    def __init__(self, contents: Contents) -> None:
        self._pairs = [pair for column in contents.schema.columns for pair in neighbours(column)]
        self._digests: dict[tuple[int, int, int], int] = {}

    def concern(self, chunk: ChunkRead) -> bool:
        """Whether another leaf has to agree with that of a chunk."""
        return any(chunk.leaf in leaves for *leaves, _ in self._pairs)

    def look(self, chunk: ChunkRead, data: LeafData) -> None:
        """Take in a chunk; called in threads."""
        for number, (*leaves, depth) in enumerate(self._pairs):
            if chunk.leaf in leaves:
                self._digests[chunk.row_group, number, chunk.leaf.ordinal] = digest(data, depth)

    def findings(self) -> Iterator[Finding]:
        """The columns whose leaves do not agree."""
        for row_group in sorted({place[0] for place in self._digests}):
            for number, (one, other, _) in enumerate(self._pairs):
                both = [self._digests.get((row_group, number, leaf.ordinal)) for leaf in (one, other)]
                if None not in both and both[0] != both[1]:
                    message = f"{one.column_path} and {other.column_path} contradict each other on what is above both"
                    yield Finding(Damage.CORRUPT, message, Where(row_group=row_group, column=other.column_path))


async def _stated(objects: ChunkObjects, contents: Contents, ordinal: int) -> dict[int, Stated]:
    """What page indexes say of the chunks of a row group that have no checksum of their own, by their leaves."""
    num_leaves = len(contents.schema.leaves)
    chunks, places = await off_loop(num_leaves, _without_sums, contents, ordinal)
    if not chunks:
        return {}
    data: list[memoryview] = [memoryview(b"")] * len(places)
    wanted = [objects.place_in(None, place) for place in places]
    async with aclosing(objects.fetch_places(wanted, in_order=True)) as arriving:
        async for i, arrived in arriving:
            data[i] = arrived

    def stated() -> dict[int, Stated]:
        said = zip(chunks, data[::2], data[1::2], strict=True)
        return {chunk.leaf.ordinal: stated_of(contents.metadata, chunk, one, two) for chunk, one, two in said}

    return await off_loop(num_leaves, stated)


def _without_sums(contents: Contents, ordinal: int) -> tuple[list[ChunkRead], list[ByteRange]]:
    """The chunks of a row group that have page indexes and no checksum, and where the two indexes of each lie."""
    chunks: list[ChunkRead] = []
    places: list[ByteRange] = []
    for leaf in contents.schema.leaves:
        try:
            chunk = chunk_read(contents, ordinal, leaf)
            of = index_ranges.IndexedChunk(contents, ordinal, leaf)
            both = [index_ranges.column_index_place(of), index_ranges.offset_index_place(of)]
            if chunk.file is not None or ChunkSums.of(chunk.metadata) is not None:
                continue
        except (FormatError, KeyMissingError):
            continue  # what is wrong is found where the chunk is examined; readers do without an index
        ranges = [place.range for place in both if place is not None]
        if len(ranges) == len(both):
            chunks.append(chunk)
            places += ranges
    return chunks, places


def _examine_chunk(
    objects: ChunkObjects, chunk: ChunkRead, stated: Stated, seen: Seen, shapes: _Shapes, data: memoryview
) -> list[Finding]:
    look = partial(shapes.look, chunk) if shapes.concern(chunk) else None
    findings = [_in_file(finding, objects, chunk.file) for finding in examine_chunk(chunk, data, stated, look)]
    if not findings:
        seen[chunk.row_group, chunk.leaf.ordinal] = pages_seen(chunk, data)
    return findings


async def _unusable(objects: ChunkObjects, file: str | None, known: dict[str, Finding | None]) -> Finding | None:
    """What stands against reading a data file that a summary names; None where nothing does."""
    if file is None:
        return None
    if file not in known:
        known[file] = None
        try:
            await objects.pin([file])
        except (NotFoundError, ObjectChangedError) as error:
            known[file] = Finding(Damage.MISSING, error.message, error.where)
    return known[file]


async def _examine_ciphertext(source: DamagedObject) -> list[Finding]:
    """What is wrong with the second copies and the indexes of an encrypted file: its records vouch for them."""
    message = "a page is damaged in its place; a record, or the place of another page, has it whole"
    stored, mended = source.stored, source.opened.mended
    findings = [Finding(Damage.CORRUPT, message, where, where.offset, costs_rows=False) for where in mended]
    found = await stored.drive(survey_ciphertext(stored.info.size, stored.file_id))
    for one in found.damaged if found.file_id is not None else ():
        if not one.is_chunk:
            where, place = Where(offset=one.place.start), one.place
            findings.append(Finding(Damage.CORRUPT, one.message, where, place.start, place.end, costs_rows=False))
    return findings


async def examine_metadata(source: DamagedObject, contents: Contents) -> AsyncGenerator[Finding, None]:
    """What is wrong with the records and indexes of a resilient file whose footer is whole."""
    if source.decrypt is not None:
        for one in await _examine_ciphertext(source):
            yield one
        return
    places: list[Expected] = await off_loop(contents.num_chunks, list, expected_metadata(contents))
    async with aclosing(examine_places(source, contents, places)) as findings:
        async for finding in findings:
            yield finding


async def examine_places(
    source: DamagedObject, contents: Contents, places: Iterable[Expected]
) -> AsyncGenerator[Finding, None]:
    """What is wrong with metadata at some places of a resilient file."""
    record = contents.footer.record
    if record is None:
        return
    objects = source.objects(contents)
    async with aclosing(examine_ahead(objects, _metadata(objects, places, record.file_id))) as found:
        async for _, findings in found:
            for finding in findings:
                yield finding


async def _metadata(
    objects: ChunkObjects, places: Iterable[Expected], file_id: bytes
) -> AsyncGenerator[Subject | Finding, None]:
    """Metadata at some places, and what stands against reading some of them."""
    files: dict[str, Finding | None] = {}
    turns = Turns()
    for expected in places:
        await turns.give_way()
        if await _unusable(objects, expected.file, files) is not None:
            continue  # reported with its chunks already
        try:
            place = objects.place_in(expected.file, expected.range)
        except FormatError as error:
            where = error.where.merged_with(expected.where)
            finding = Finding(Damage.CORRUPT, error.message, where, costs_rows=False)
            yield _in_file(finding, objects, expected.file)
        else:
            yield Subject(place, partial(_examine_expected, objects, expected, file_id), quick=place.range.size < MiB)


def _examine_expected(objects: ChunkObjects, expected: Expected, file_id: bytes, data: memoryview) -> list[Finding]:
    finding = examine_expected(expected, data, file_id)
    return [] if finding is None else [_in_file(finding, objects, expected.file)]


def _in_file(finding: Finding, objects: ChunkObjects, file: str | None) -> Finding:
    """A finding of a data file names it."""
    if file is None:
        return finding
    return replace(finding, where=finding.where.merged_with(Where(key=objects.url_of(file))))
