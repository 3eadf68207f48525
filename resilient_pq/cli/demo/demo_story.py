"""The demo, printed step by step."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from importlib import import_module
from typing import Any

import resilient_pq as rpq
from resilient_pq.cli.demo.demo_kill import Job, Killed, Progress, kill_half_way
from resilient_pq.cli.demo.demo_rows import DemoRows, columns_to_compare, compare
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output.verb_output import Output, base_document
from resilient_pq.cli.output.wording import counted, durations, in_bytes
from resilient_pq.errors import RecoveryError
from resilient_pq.io import MultipartStore, resolve
from resilient_pq.io.os_errors import explained
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.shell_commands import command
from resilient_pq.units import MiB

NAME = "demo.parquet"
RECOVERED_NAME = "demo.recovered.parquet"


@dataclass(frozen=True, slots=True)
class Place:
    """The file of the demo and the recovered file, which are the same on S3; `kept` if they stay after the end."""

    url: str
    recovered_url: str
    kept: bool
    storage_options: dict[str, Any]
    part_bytes: int | None = None

    async def leftover(self) -> tuple[str, str]:
        """The remains of the killed writer: a URL that can be checked, and words."""
        if self.part_bytes is None:
            return await asyncio.to_thread(self._partial)
        done = await rpq.complete_upload(self.url, storage_options=self.storage_options)
        words = f"an open upload; completed up to its newest checkpoint, it is {NAME} with {done.size:,} bytes,"
        return self.url, f"{words} of which none was moved"

    def _partial(self) -> tuple[str, str]:
        partial = f"{self.url}.partial"
        visible = "and" if os.path.exists(self.url) else "and no"
        return partial, f"{NAME}.partial with {os.path.getsize(partial):,} bytes, {visible} {NAME}"


@asynccontextmanager
async def place_in_folder(parent: str | None) -> AsyncIterator[Place]:
    """A new folder in `parent`, which stays; a temporary one where that is None."""
    with explained("cannot make a folder", parent or tempfile.gettempdir()):
        if parent is not None:
            os.makedirs(parent, exist_ok=True)
        path = tempfile.mkdtemp(prefix="rpq-demo-", dir=parent)
    try:
        yield Place(os.path.join(path, NAME), os.path.join(path, RECOVERED_NAME), parent is not None, {})
    finally:
        if parent is None:
            shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def place_in_bucket(name: str, options: dict[str, Any], *, create: bool, keep: bool) -> AsyncIterator[Place]:
    """Objects under a new prefix of a bucket; with `create`, a missing bucket is made and removed again."""
    prefix = f"s3://{name}/rpq-demo-{secrets.token_hex(4)}"
    url, made = f"{prefix}/{NAME}", False
    try:
        # Errors of the store should come before anything is written.
        await rpq.list_uploads(url, storage_options=options)
    except rpq.NotFoundError:
        if not create:
            raise
        await _on_bucket("create_bucket", name, options)
        made = True
    try:
        # Parts are the smallest that S3 takes, so that a demo has many.
        yield Place(url, url, keep, options, 5 * MiB)
    finally:
        store, key = resolve(prefix, options)
        async with store:
            assert isinstance(store, MultipartStore)
            for upload in await store.list_uploads(key):
                with suppress(rpq.NotFoundError):
                    await store.abort_upload(upload.key, upload.upload_id)
            if not keep:
                await store.delete(f"{key}/{NAME}")
        if made and not keep:
            await _on_bucket("delete_bucket", name, options)


async def _on_bucket(operation: str, name: str, options: dict[str, Any]) -> None:
    from resilient_pq.io.s3.s3_client import S3Client  # noqa: PLC0415 (s3fs is slow to import)

    client = S3Client(options)
    try:
        await client.call(operation, f"s3://{name}", Bucket=name)
    finally:
        await client.close()


@dataclass(slots=True)
class Story:
    """The demo: its output, its rows, and where they are written."""

    output: Output
    source: DemoRows
    place: Place

    async def tell(self) -> int:
        """All of it; gives the exit code."""
        killed = await self._kill()
        leftover, words = await self.place.leftover()
        self.output.line("left", words)
        report = await self._check(leftover)
        if self.place.part_bytes is None:
            report = await self._recover(leftover)
        missing = max(killed.last.accepted - (report.num_rows or 0), 0)
        self.output.line("lost", f"at least {counted(missing, 'row')}: accepted, but not yet stored")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rpq.IncompleteFileWarning)  # that is what the story is about
            read = await self._read_back()
        witnessed = await self._witness(read["columns_read"])
        return self._judge(killed, report, read, witnessed)

    async def _kill(self) -> Killed:
        source, place = self.source, self.place
        made = f"{counted(source.num_rows, 'flight')}, made by a generator with seed {source.seed}"
        self.output.line("table", made if source.input is None else f"the rows of {source.input}")
        self.output.line("write", f"a separate process streams it to {place.url}")
        with self.output.progress("writing") as meter:

            def watch(pid: int, progress: Progress) -> None:
                meter.update(progress.share, f"{counted(progress.accepted, 'row')}, process {pid}")

            job = Job(place.url, source, place.storage_options, place.part_bytes)
            killed = await kill_half_way(job, watch)
        last = killed.last
        self.output.line("kill -9", f"process {killed.pid} after {durations(killed.seconds)}")
        self.output.line(
            "",
            f"it had accepted {counted(last.accepted, 'row')} and acknowledged {last.stored:,} of them as stored",
        )
        if not last.stored:
            raise RecoveryError(
                "the writer was killed before any row was stored",
                hint="write more rows, such as --rows 3_000_000",
            )
        return killed

    async def _check(self, url: str) -> rpq.Report:
        began = time.monotonic()
        report = await rpq.check(url, storage_options=self.place.storage_options)
        label = "check"
        for finding in report.findings:
            self.output.line(label, f"{finding.damage}: {finding.message}")
            label = ""
        seconds = durations(time.monotonic() - began)
        self.output.line(label, f"sound: {_rows_of(report)}, every checksum verified; {seconds}")
        return report

    async def _recover(self, url: str) -> rpq.Report:
        began = time.monotonic()
        recovered_url, options = self.place.recovered_url, self.place.storage_options
        report = await rpq.recover(url, recovered_url, storage_options=options)
        assert report.kept is not None
        self.output.line("recover", f"{_rows_of(report)}, to {recovered_url}")
        seconds = durations(time.monotonic() - began)
        self.output.line("", f"{in_bytes(report.kept.num_bytes)} copied unchanged; {seconds}")
        return report

    async def _read_back(self) -> dict[str, Any]:
        """Read the recovered file and compare it; the result is for the document."""
        began = time.monotonic()
        async with rpq.open(self.place.recovered_url, storage_options=self.place.storage_options) as file:
            async with self.source.open() as written:
                columns = columns_to_compare(written.schema)
                async with aclosing(file.batches(columns=columns)) as kept:
                    compared = await compare(kept, written.pieces, columns)
            requests, num_bytes = file.counters.requests, file.counters.bytes
            size = counted(file.info.size, "byte")
        asked = f"{counted(num_bytes, 'byte')} in {counted(requests, 'request')}"
        self.output.line("read", f"{' and '.join(columns)}: {asked}, of a file of {size}")
        verdict = compared.difference or "every value equals what was written"
        seconds = durations(time.monotonic() - began)
        self.output.line("compare", f"{counted(compared.num_rows, 'row')}: {verdict}; {seconds}")
        return {
            "rows_compared": compared.num_rows,
            "difference": compared.difference,
            "columns_read": columns,
            "bytes_read": num_bytes,
            "requests": requests,
        }

    async def _witness(self, columns: list[str]) -> int | None:
        """The rows that pyarrow can read of the recovered file; None where it is not installed, or on S3."""
        if self.place.part_bytes is not None:
            return None
        try:
            parquet = import_module("pyarrow.parquet")
        except ImportError:
            return None
        version = import_module("pyarrow").__version__
        try:
            table: Any = await asyncio.to_thread(
                parquet.read_table, self.place.recovered_url, columns=columns, page_checksum_verification=True
            )
        except (OSError, ValueError) as error:
            self.output.line("pyarrow", f"{version} cannot read it: {error}")
            return 0
        self.output.line("pyarrow", f"{version} opens it and reads {counted(table.num_rows, 'row')}")
        return int(table.num_rows)

    def _judge(self, killed: Killed, report: rpq.Report, read: dict[str, Any], witnessed: int | None) -> int:
        """Whether every stored row was recovered, with the values that were written."""
        kept = report.num_rows or 0
        held = (
            kept >= killed.last.stored
            and read["difference"] is None
            and read["rows_compared"] == kept
            and witnessed in (None, kept)
        )
        if held:
            self.output.line("ok", f"every stored row was recovered: {_rows_of(report)}")
        else:
            self.output.line(
                "broken", f"{counted(killed.last.stored, 'row')} were stored, but only {kept:,} were recovered"
            )
        following = [command("inspect", self.place.recovered_url)] if self.place.kept else []
        self.output.next(*following)
        self.output.document(
            report.to_json()
            | base_document("demo", "held" if held else "broken", rows=kept)
            | read
            | {
                "findings": [finding.to_json() for finding in report.findings],
                "next": following,
                "output": self.place.recovered_url if self.place.kept else None,
                "rows_accepted": killed.last.accepted,
                "rows_stored": killed.last.stored,
                "pyarrow_rows": witnessed,
                "seconds_to_kill": round(killed.seconds, 3),
            }
        )
        return ExitCode.SOUND if held else ExitCode.DAMAGE


def _rows_of(report: rpq.Report) -> str:
    return f"{counted(report.num_rows or 0, 'row')} in {counted(report.num_row_groups, 'row group')}"
