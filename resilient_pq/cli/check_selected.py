"""`rpq check --quick`, `--list` and `--quarantine`: which files are not sound, and where these go."""

from __future__ import annotations

import asyncio
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count

import resilient_pq as rpq
from resilient_pq.bulk.file_result import FileError
from resilient_pq.bulk.file_task import FileTask, run_here
from resilient_pq.bulk.many_files import DEFAULT_MAX_FILES, each_of_many
from resilient_pq.cli import many_verbs as many
from resilient_pq.cli.inspect.footer_facts import row_groups_of
from resilient_pq.cli.many_verbs import ManyOptions
from resilient_pq.cli.output.output_streams import write_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.errors import OptionError
from resilient_pq.io.os_errors import explained
from resilient_pq.io.partial_file import SUFFIX as PARTIAL_SUFFIX
from resilient_pq.parity.sidecar_index import SUFFIX as SIDECAR_SUFFIX


@dataclass(frozen=True, slots=True)
class CheckSelection:
    """What of a check is wanted: a quick one, names that end with `ending`, and a folder for damaged files."""

    quick: bool
    list_names: bool
    ending: str
    quarantine: str | None
    require_checksums: bool
    deep: bool

    @property
    def is_any(self) -> bool:
        """Whether it is another check than usual."""
        return self.quick or self.list_names or self.ending == "\0" or self.quarantine is not None

    def check(self, output: Output, options: ManyOptions) -> None:
        """Refuse options that mean nothing together."""
        if self.ending == "\0" and not self.list_names:
            raise OptionError("-0 says how --list prints names", hint="give --list, too")
        if self.list_names and output.as_json:
            raise OptionError("--list and --json both write to stdout", hint="leave one of them out")
        if options.scheduler is not None or options.resume is not None:
            hint = "a journal does not name again what it has as damaged"
            raise OptionError("--quick, --list and --quarantine take neither --scheduler nor --resume", hint=hint)
        if self.quick and (self.require_checksums or self.deep):
            raise OptionError("--quick reads no pages: it goes with neither --require-checksums nor --deep")


async def check_selected(output: Output, urls: Sequence[str], selection: CheckSelection, options: ManyOptions) -> int:
    """Check all files, and print or move those that are not sound."""
    selection.check(output, options)
    output.reached.keys.refuse_many()
    damaged: list[str] = []

    def look(result: rpq.FileResult) -> None:
        if result.is_sound and result.exit_code == 0:
            return
        if selection.list_names:
            write_bytes(f"{result.url}{selection.ending}".encode("utf-8", "surrogateescape"))
        if result.exit_code in (1, 3):
            damaged.append(result.url)

    to_stderr = output.off_stdout() if selection.list_names else nullcontext()
    with to_stderr, warnings.catch_warnings(), output.progress("checking") as meter:
        warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
        if selection.quick:
            results = each_of_many(
                "check",
                urls[0] if len(urls) == 1 else urls,
                _is_whole,
                max_files=options.max_files or DEFAULT_MAX_FILES,
                storage_options=output.reached.options,
                progress=many.update_meter(meter),
            )
        else:
            results = rpq.check_many(
                urls[0] if len(urls) == 1 else urls,
                require_checksums=selection.require_checksums,
                deep=selection.deep,
                max_files=options.max_files or DEFAULT_MAX_FILES,
                storage_options=output.reached.options,
                progress=many.update_meter(meter),
                run=run_here,
            )
        summary = await many.report_results(output, results, options, each=look)
        moved = [] if selection.quarantine is None else await _moved(output, damaged, selection.quarantine)
        more = {"quick": selection.quick, "quarantined": [{"from": one, "to": two} for one, two in moved]}
        return many.finish_run(output, summary, urls, more=more)


async def _is_whole(task: FileTask) -> rpq.FileResult:
    """Whether a file opens, and its writer finished it: an error where not."""
    try:
        async with rpq.open(task.source) as file:
            if file.state not in (None, rpq.FileState.COMPLETE):
                raise rpq.TornFileError(f"its writer did not finish it: {file.num_rows:,} rows can be read")
            for _ in row_groups_of(file.contents):  # a FormatError where one lies outside of the file
                pass
            facts = {"rows": file.num_rows, "size": file.info.size}
            return rpq.FileResult("check", task.name, facts=facts)
    except Exception as error:
        return rpq.FileResult("check", task.name, error=FileError.of(error))


async def _moved(output: Output, names: Sequence[str], folder: str) -> list[tuple[str, str]]:
    """Move files to a folder, and return where each went."""
    found = []
    for name in names:
        if name.endswith(PARTIAL_SUFFIX):
            output.note(f"{name} stays: `rpq resume` or `rpq recover` has its rows")
        elif not await asyncio.to_thread(os.path.isfile, name):
            output.note(f"{name} stays: only local files are moved")
        elif await asyncio.to_thread(_lies_in, name, folder):
            output.note(f"{name} stays: it was moved before")
        else:
            moved = await asyncio.to_thread(_move, name, folder)
            output.line("moved", f"{name} -> {moved}")
            found.append((name, moved))
    return found


def _lies_in(path: str, folder: str) -> bool:
    return os.path.dirname(os.path.realpath(path)) == os.path.realpath(folder)


def _move(path: str, folder: str) -> str:
    """Move a file and its sidecar under the first names that are free, and return that of the file."""
    with explained("cannot move", path):
        os.makedirs(folder, exist_ok=True)
        for target in _names(os.path.join(folder, os.path.basename(path))):
            if os.path.lexists(target + SIDECAR_SUFFIX) or not _claim(path, target):
                continue
            if os.path.isfile(path + SIDECAR_SUFFIX):
                _claim(path + SIDECAR_SUFFIX, target + SIDECAR_SUFFIX)
            return target
    raise AssertionError("there is always a free name")


def _names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}.{number}" for number in count(2))


def _claim(path: str, target: str) -> bool:
    """Move a file to a name; False where that is taken."""
    try:
        os.link(path, target, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError:  # another file system, or one without links
        try:
            with open(path, "rb") as source, open(target, "xb") as copy:
                shutil.copyfileobj(source, copy)
                copy.flush()
                os.fsync(copy.fileno())
        except FileExistsError:
            return False
        shutil.copystat(path, target)
    os.unlink(path)
    return True
