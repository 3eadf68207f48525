"""`rpq protect`: sidecars with parity beside files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.file_result import FileError
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.bulk.many_files import each_of_many
from resilient_pq.bulk.proof import protected_digest
from resilient_pq.cli import many_verbs
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.many_verbs import ManyOptions, Urls
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output, base_document
from resilient_pq.cli.running import verb
from resilient_pq.io.location import shown
from resilient_pq.parity.pinned_object import PinnedObject

NAME = "protect"
#: Files that are read at one time: each takes the memory of its parity, at most 128 MiB.
_MAX_FILES = 4


@verb(
    NAME,
    "the sidecars are written",
    None,
    "rpq protect day.parquet",
    "rpq protect s3://bucket/events/ --parity 10% --endpoint-url http://localhost:8333",
    "rpq protect flights/ --across",
)
async def protect(
    output: Output,
    urls: Urls,
    parity: Annotated[
        str,
        typer.Option(metavar="SHARE", help="Bytes of parity for each byte of data: 5% or 0.05. Small files get more."),
    ] = "5%",
    across: Annotated[
        bool,
        typer.Option(
            "--across",
            help="Write one sidecar, _folder.rpqparity, for all files of each folder: a file that is missing is"
            " rebuilt as well, from it and from the others, unless it is too large.",
        ),
    ] = False,
    checksums_only: Annotated[
        bool, typer.Option("--checksums-only", help="Write checksums without parity: damage is found, not repaired.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace sidecars that are there.")] = False,
) -> int:
    """Write parity beside files, for `rpq repair`.

    The sidecar of NAME.parquet is NAME.parquet.rpqparity. The file itself is only read, whoever wrote it. It rebuilds
    as many damaged or missing bytes in a row as there are bytes of parity, and damage in many places if each is
    small.
    """
    options = {"parity": parity, "checksums_only": checksums_only, "overwrite": overwrite}
    if across:
        return await _protect_across(output, urls, options)
    return await many_verbs.run_one_or_many(
        urls,
        output.reached,
        one=lambda: _protect(output, urls[0], options),
        many=lambda: _protect_many(output, urls, options),
    )


async def _protect(output: Output, src: str | list[str], options: dict[str, Any]) -> int:
    with output.progress("protecting") as meter:
        protection = await rpq.protect(
            src,  # type: ignore[arg-type]  # a list of paths is a list of locations
            storage_options=output.reached.options,
            progress=progress_in_bytes(meter),
            **options,
        )
    files, size = wording.counted(protection.num_files, "file"), wording.in_bytes(protection.num_bytes)
    output.line("protected", f"{files}, {size}")
    output.line("written", f"{protection.url}, {wording.in_bytes(protection.size)}, {protection.overhead:.1%}")
    if protection.burst_bytes:
        output.line("rebuilds", f"any {wording.in_bytes(protection.burst_bytes)} in a row that are damaged or missing")
    output.finish("protected", **asdict(protection))
    return ExitCode.SOUND


async def _protect_many(output: Output, urls: Sequence[str], options: dict[str, Any]) -> int:
    async def run(task: FileTask) -> rpq.FileResult:
        try:
            facts = base_document(NAME, "protected", **asdict(await rpq.protect(task.source, **options)))
            return rpq.FileResult(NAME, task.name, facts=facts)
        except Exception as error:
            if isinstance(error, rpq.AlreadyExistsError):
                if await _is_protected(task):
                    return rpq.FileResult(NAME, task.name, facts=base_document(NAME, "kept", url=task.name))
                error = rpq.AlreadyExistsError("its sidecar is of another version: --overwrite replaces it")
            return rpq.FileResult(NAME, task.name, error=FileError.of(error))

    sizes, kept = list[int](), list[str]()

    def report(result: rpq.FileResult) -> None:
        if result.facts is not None and result.facts["outcome"] == "kept":
            kept.append(result.url)
        elif result.facts is not None:
            sizes.append(result.facts["size"])
        elif result.error is not None:
            output.line("error", f"{result.url}: {result.error.message}")

    with output.progress("protecting") as meter:
        results = each_of_many(
            NAME,
            urls[0] if len(urls) == 1 else list(urls),
            run,
            max_files=_MAX_FILES,
            storage_options=output.reached.options,
            progress=many_verbs.update_meter(meter),
        )
        summary = await many_verbs.report_results(output, results, ManyOptions(), each=report)
    before = f"; {len(kept):,} more have one of their present version" if kept else ""
    output.line(
        "protected", f"{wording.counted(len(sizes), 'file')}; sidecars of {wording.in_bytes(sum(sizes))}{before}"
    )
    facts = {"files": summary.num_files, "files_protected": len(sizes), "files_kept": len(kept), "size": sum(sizes)}
    outcome = "protected" if len(sizes) + len(kept) == summary.num_files else "error"
    output.document(base_document(NAME, outcome, url=" ".join(map(shown, urls)), **facts))
    return summary.exit_code


async def _is_protected(task: FileTask) -> bool:
    """Whether the sidecar that is there was made of the version of the file that is there."""
    try:
        return await protected_digest(await PinnedObject.find(*task.source)) is not None
    except rpq.StoreError:
        return False


async def _protect_across(output: Output, urls: Sequence[str], options: dict[str, Any]) -> int:
    """One sidecar for all files of each folder."""
    folders: dict[str, list[str]] = {}

    async def run(task: FileTask) -> rpq.FileResult:
        folders.setdefault(task.source[0].beside(task.url, ""), []).append(task.url)
        return rpq.FileResult(NAME, task.name, facts={})

    named = urls[0] if len(urls) == 1 else list(urls)
    await each_of_many(NAME, named, run, storage_options=output.reached.options).finish()
    output.as_lines = len(folders) > 1
    return max([await _protect(output, sorted(files), options) for _, files in sorted(folders.items())])
