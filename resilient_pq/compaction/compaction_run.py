"""A compaction under way: plans are made, kept, carried out and ended, whoever began them. An async shell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from itertools import compress
from typing import Any

from resilient_pq.bulk.bounded_jobs import JobBounds, in_flight
from resilient_pq.bulk.scope import Place, Scope, shown_place
from resilient_pq.compaction.compaction_plan import (
    CompactionPlan,
    Limits,
    Piece,
    PlannedFile,
    SourceVersion,
    bytes_by_store,
    outputs_of,
    pieces_of,
)
from resilient_pq.compaction.output_file import OutputFile
from resilient_pq.compaction.plan_journal import KeptPlan, PlanJournal
from resilient_pq.compaction.prepared_piece import Preparation
from resilient_pq.compaction.source_listing import (
    Agreement,
    SourceFile,
    SourceListing,
    facts_of,
    has_changed,
    identity_of,
    open_sources,
    remove,
)
from resilient_pq.dataset.unfinished_files import side_by_side
from resilient_pq.errors import NotFoundError, RecoveryError, Where
from resilient_pq.io import (
    MultipartStore,
    SinkOptions,
    WriteStore,
)
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.check import check
from resilient_pq.recovery.report import Outcome
from resilient_pq.tables.committer import PublishedFile, commit_rewrite
from resilient_pq.tables.file_table import TableSettings
from resilient_pq.units import MiB

#: Outputs that are written at one time, and bytes of row groups in memory for them.
_OUTPUTS, _OUTPUT_BYTES = 4, 512 * MiB
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a compaction did, or would do.

    Attributes:
        num_files: Files that were read.
        num_rows: Their rows.
        urls: The files that were written, or found complete where a run was interrupted before.
        row_groups_copied: Row groups that were copied as bytes.
        row_groups_merged: Row groups that were decoded and written together.
        bytes_by_store: Bytes that the store copied itself; about, in a plan.
        bytes_copied: Bytes that were copied by way of this process.
        bytes_decoded: Bytes of row groups that were decoded.
        num_removed: Files that were removed.
        is_plan: Whether nothing was written (`dry_run`).
        notes: More for people.
    """

    num_files: int = 0
    num_rows: int = 0
    urls: tuple[str, ...] = ()
    row_groups_copied: int = 0
    row_groups_merged: int = 0
    bytes_by_store: int = 0
    bytes_copied: int = 0
    bytes_decoded: int = 0
    num_removed: int = 0
    is_plan: bool = False
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As a JSON document."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a caller wants; `storage_options` are those of the outputs."""

    limits: Limits
    table: TableSettings | None
    remove_sources: bool
    dry_run: bool
    storage_options: Mapping[str, Any] | None
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class _Opened:
    """The sources of a plan, and the row groups of each of its outputs."""

    sources: list[SourceFile]
    agreed: Agreement
    outputs: list[tuple[Piece, ...]]


class CompactionRun:
    """A compaction under way."""

    def __init__(self, sources: SourceListing, output: Scope, options: RunOptions) -> None:
        assert isinstance(output.store, WriteStore)
        self._sources = sources
        self._store, self._folder = output.store, output.folder
        self._options = options
        self._journal = PlanJournal(output.store, output.folder)
        self._opened: dict[str, _Opened] = {}
        self._verified: set[str] = set()
        self._result = Compaction(is_plan=options.dry_run)

    async def run(self) -> Compaction:
        """Carry out what was begun, then what has come since."""
        while True:
            listed = await self._sources.listed()
            try:
                if await self._turn(listed):
                    return self._result
            except NotFoundError:
                if (await self._sources.listed()).keys() == listed.keys():
                    raise  # else another process has removed the sources of a plan that it completed

    async def _turn(self, listed: Mapping[str, tuple[Place, str]]) -> bool:
        """Carry out the plans that there are, or make one; whether nothing is left to do."""
        plans = await self._journal.plans()
        for kept in plans:
            if kept.plan.scope == self._sources.id:
                await self._carry_out(kept, listed)
            elif not kept.is_done and any(source.key in listed for source in kept.plan.sources):
                raise RecoveryError(
                    "a compaction of these files and others is not complete",
                    where=Where(key=kept.plan.sources[0].url),
                    hint="complete it first: name the folder, the pattern or the list that it was begun with",
                )
        fresh = await self._fresh(listed, plans)
        if not fresh:
            if not listed and self._journal.is_new:
                raise self._sources.nothing_found()
            return True
        plan = await self._new_plan(fresh)
        if self._result.is_plan:
            self._count(plan, range(len(plan.outputs)))
            return True
        await self._journal.begin(plan)  # or that of another process: the next turn carries it out
        return False

    # -- what is there ---------------------------------------------------------------------------

    async def _fresh(
        self, listed: Mapping[str, tuple[Place, str]], plans: Iterable[KeptPlan]
    ) -> list[tuple[Place, str]]:
        """The sources that no plan has."""
        taken = {source.key: source for kept in plans for source in kept.plan.sources}
        again = [(listed[key][0], taken[key]) for key in listed if key in taken]
        changed = await side_by_side(again, lambda pair: has_changed(*pair))
        for place, _ in compress(again, changed):
            raise RecoveryError(
                "the file was changed after its rows were taken, so that some may be in the outputs already",
                where=Where(key=shown_place(place)),
                hint="compact into another folder",
            )
        return [found for key, found in listed.items() if key not in taken]

    # -- plans -----------------------------------------------------------------------------------

    async def _new_plan(self, found: Sequence[tuple[Place, str]]) -> CompactionPlan:
        sources, agreed = await open_sources([place for place, _ in found], [name for _, name in found])
        opened, planned = _laid_out(sources, agreed, self._options.limits)
        versions = [
            SourceVersion(source.file.url, identity_of(source.file.place), source.file.info.size, source.file.info.etag)
            for source in sources
        ]
        plan = CompactionPlan(self._sources.id, self._options.limits, tuple(versions), tuple(planned))
        self._opened[plan.id] = opened
        return plan

    async def _open(self, plan: CompactionPlan, listed: Mapping[str, tuple[Place, str]]) -> _Opened:
        """The sources of a plan, as they were when it was made."""
        for source in plan.sources:
            if source.key not in listed:
                raise NotFoundError(
                    "a file that is to be compacted is gone",
                    where=Where(key=source.url),
                    hint="bring it back, or name another folder for the outputs",
                )
        if plan.id not in self._opened:
            found = [listed[source.key] for source in plan.sources]
            sources, agreed = await open_sources([place for place, _ in found], [name for _, name in found])
            for opened_file, known in zip(sources, plan.sources, strict=True):
                if opened_file.file.info.etag != known.etag:
                    raise RecoveryError("the file was changed after its compaction began", where=Where(key=known.url))
            opened, planned = _laid_out(sources, agreed, plan.limits)
            if tuple(planned) != plan.outputs:
                raise RecoveryError(
                    "another version of resilient_pq has begun this compaction, and would go on otherwise",
                    where=Where(key=self._store.url_of(self._folder)),
                    hint="complete it with that version, or name another folder for the outputs",
                )
            self._opened[plan.id] = opened
        return self._opened[plan.id]

    # -- carrying out ----------------------------------------------------------------------------

    async def _carry_out(self, kept: KeptPlan, listed: Mapping[str, tuple[Place, str]]) -> None:
        plan = kept.plan
        outputs = [OutputFile(self._store, self._key_of(plan, at), plan, at) for at in range(len(plan.outputs))]
        if not kept.is_done:
            await self._complete(plan, outputs, listed)
        if self._result.is_plan:
            return
        sources = [(listed[source.key][0], source) for source in plan.sources if source.key in listed]
        if self._options.table is not None and not kept.is_replaced:
            await self._replace_in(self._options.table, plan, [key for (_, key), _ in sources], outputs)
            await self._journal.note(kept, "replaced")
        if not kept.is_done:
            await self._journal.note(kept, "done")
        if self._options.remove_sources:
            await self._remove(sources, plan, outputs)
            await self._journal.note(kept, "removed")

    async def _remove(
        self, sources: Sequence[tuple[Place, SourceVersion]], plan: CompactionPlan, outputs: Sequence[OutputFile]
    ) -> None:
        """Remove what is left of the sources, when all outputs are sound."""
        if sources:
            await self._verify(plan, outputs)
        self._add(num_removed=sum(await side_by_side(sources, lambda pair: remove(*pair))))

    async def _replace_in(
        self, table: TableSettings, plan: CompactionPlan, removed: Sequence[str], outputs: Sequence[OutputFile]
    ) -> None:
        """Have a table name the outputs in the place of the sources, unless it does already."""
        await self._verify(plan, outputs)
        added = [
            PublishedFile(output.key, planned.partition) for output, planned in zip(outputs, plan.outputs, strict=True)
        ]
        reached = self._options.storage_options
        await commit_rewrite(table, self._store, removed, added, plan.id, folder=self._folder, storage_options=reached)

    async def _complete(
        self, plan: CompactionPlan, outputs: Sequence[OutputFile], listed: Mapping[str, tuple[Place, str]]
    ) -> None:
        """Write the outputs that are missing."""
        sizes = await side_by_side(outputs, OutputFile.size)
        missing = [position for position, size in enumerate(sizes) if size is None]
        if missing:
            await self._open(plan, listed)
        if not self._result.is_plan:
            await self._write(plan, outputs, missing)
            await side_by_side(outputs, lambda output: output.store.discard_unfinished(output.key))
            self._add(urls=tuple(output.url for output in outputs))
        self._count(plan, missing)

    def _key_of(self, plan: CompactionPlan, position: int) -> str:
        return self._store.beside(f"{self._folder}_", plan.name_of(position))

    def _count(self, plan: CompactionPlan, positions: Iterable[int]) -> None:
        """Add what a plan says of its sources, and of the outputs that are to be written."""
        self._add(num_files=len(plan.sources), num_rows=sum(output.num_rows for output in plan.outputs))
        for position in positions:
            opened = self._opened[plan.id]
            pieces = opened.outputs[position]
            merged = [len(piece.groups) for piece in pieces if not piece.is_copy]
            self._add(row_groups_copied=len(pieces) - len(merged), row_groups_merged=sum(merged))
            if self._result.is_plan:
                by_store = self._by_store(opened.sources[0], pieces)
                copied = sum(piece.num_bytes for piece in pieces if piece.is_copy)
                decoded = sum(piece.num_bytes for piece in pieces) - copied
                url = self._store.url_of(self._key_of(plan, position))
                self._add(bytes_by_store=by_store, bytes_copied=copied - by_store, bytes_decoded=decoded, urls=(url,))

    def _by_store(self, source: SourceFile, pieces: Sequence[Piece]) -> int:
        store = self._store
        if not (isinstance(store, MultipartStore) and store.capabilities.server_side_copy):
            return 0
        options = store.upload_options(SinkOptions())
        return bytes_by_store(pieces, options.part_bytes) if store.copies_from(source.file.place[0]) else 0

    def _add(self, **more: Any) -> None:
        """Add numbers and names to the result."""
        self._result = replace(self._result, **{name: getattr(self._result, name) + more[name] for name in more})

    async def _write(self, plan: CompactionPlan, outputs: Sequence[OutputFile], missing: Sequence[int]) -> None:
        if not missing:
            return
        opened = self._opened[plan.id]
        preparation = Preparation(opened.sources, opened.agreed, decode_unsummed=self._options.remove_sources)
        total = sum(piece.num_bytes for position in missing for piece in opened.outputs[position])
        done = 0

        def written(size: int) -> None:
            nonlocal done
            done += size
            if self._options.progress is not None:
                self._options.progress(done, total)

        async def positions() -> AsyncGenerator[int, None]:
            for position in missing:
                yield position

        async def write(position: int) -> dict[str, int]:
            return await outputs[position].write(opened.outputs[position], preparation, written)

        def weigh(position: int) -> int:
            sizes = [
                max(piece.num_bytes, *(g.decoded_bytes for g in piece.groups)) for piece in opened.outputs[position]
            ]
            return 3 * max(sizes, default=0)

        bounds: JobBounds[int] = JobBounds(_OUTPUTS, _OUTPUT_BYTES, weigh)
        async with aclosing(in_flight(positions(), write, bounds)) as ended:
            async for moved in ended:
                self._add(**moved)

    async def _verify(self, plan: CompactionPlan, outputs: Sequence[OutputFile]) -> None:
        """Read all outputs back; raises where one is not there, or not as it was written."""
        if plan.id in self._verified:
            return
        for output, planned in zip(outputs, plan.outputs, strict=True):
            report = await check((output.store, output.key))
            if report.outcome is not Outcome.SOUND or report.num_rows != planned.num_rows:
                raise RecoveryError(
                    f"the output is {report.outcome} when it is read back; no source was removed",
                    where=Where(key=output.url),
                    hint="remove this output, and compact again",
                )
        self._verified.add(plan.id)


def _laid_out(sources: list[SourceFile], agreed: Agreement, limits: Limits) -> tuple[_Opened, list[PlannedFile]]:
    """The row groups of all outputs, partition by partition."""
    by_partition: dict[str, list[int]] = defaultdict(list)
    for position, source in enumerate(sources):
        by_partition[source.partition].append(position)
    outputs: list[tuple[Piece, ...]] = []
    planned: list[PlannedFile] = []
    for partition, positions in by_partition.items():
        found = outputs_of(pieces_of(facts_of(sources, positions), limits), limits.target_bytes)
        outputs += found
        planned += [PlannedFile(partition, sum(piece.num_rows for piece in pieces)) for pieces in found]
    return _Opened(sources, agreed, outputs), planned
