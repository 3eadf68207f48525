"""`rpq inspect` of a folder: its files counted by what their footers say."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import resilient_pq as rpq
from resilient_pq.bulk.file_result import FileError
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.bulk.many_files import each_of_many
from resilient_pq.cli import many_verbs
from resilient_pq.cli.inspect.file_json import Sections, document_of, pages_of_column
from resilient_pq.cli.many_verbs import ManyOptions
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.report_lines import MAX_LISTED
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.errors import SchemaError, Where, located

#: Kinds that are counted, at most; a folder of a million files may have as many schemas.
_MOST_KINDS = 1_000


class _Kinds:
    """Files counted by something that they say of themselves, with the first of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self.others = 0

    def add(self, kind: str, url: str) -> None:
        """Count a file."""
        if kind not in self._first and len(self._first) == _MOST_KINDS:
            self.others += 1
            return
        self._first.setdefault(kind, url)
        self._counts[kind] += 1

    def to_json(self) -> list[dict[str, Any]]:
        """The same as JSON."""
        return [{"value": kind, "files": count, "first": first} for kind, count, first in self.rows()]

    def rows(self) -> list[tuple[str, int, str]]:
        """The kinds, the most frequent first: what, how many, and the first file."""
        return [(kind, count, self._first[kind]) for kind, count in self._counts.most_common()]


async def inspect_many(output: Output, urls: Sequence[str], sections: Sections, max_files: int) -> int:
    """Count the files by schema, writer and state; sections are printed as JSON only."""
    if not (sections.nothing or output.as_json):
        raise SchemaError("sections are shown of one file", hint="name one file, or use --json")
    schemas, writers, states = _Kinds(), _Kinds(), _Kinds()

    async def run(task: FileTask) -> rpq.FileResult:
        try:
            return await _facts(task, sections, output.reached.keys.reading)
        except Exception as error:
            return rpq.FileResult("inspect", task.name, error=FileError.of(error))

    def count(result: rpq.FileResult) -> None:
        if result.facts is not None:
            schemas.add(result.facts["schema"], result.url)
            writers.add(result.facts["created_by"] or "not told", result.url)
            states.add(result.facts["state"] or "no resilient file", result.url)

    with warnings.catch_warnings(), output.progress("reading") as meter:
        # The states have the number of incomplete files; each file would warn.
        warnings.simplefilter("ignore", rpq.IncompleteFileWarning)
        results = each_of_many(
            "inspect",
            urls[0] if len(urls) == 1 else urls,
            run,
            max_files=max_files,
            storage_options=output.reached.options,
            progress=many_verbs.update_meter(meter),
        )
        summary = await many_verbs.report_results(output, results, ManyOptions(max_files=max_files), each=count)
    _show_kinds(output, "schemas", [(f"as {url}", number) for _, number, url in schemas.rows()], schemas.others)
    _show_kinds(output, "written by", [(kind, number) for kind, number, _ in writers.rows()], writers.others)
    _show_kinds(output, "state", [(kind, number) for kind, number, _ in states.rows()], states.others)
    more = {"schemas": schemas.to_json(), "writers": writers.to_json(), "states": states.to_json()}
    return many_verbs.finish_run(output, summary, urls, more=more)


async def _facts(task: FileTask, sections: Sections, how: Mapping[str, Any]) -> rpq.FileResult:
    async with rpq.open(task.source, **how) as file:
        pages = None
        if sections.pages is not None:
            pages = [page async for page in pages_of_column(file, sections.pages)]
        with located(Where(key=file.url)):
            return rpq.FileResult("inspect", task.name, facts=document_of(file, sections, pages))


def _show_kinds(output: Output, label: str, rows: Sequence[tuple[str, int]], others: int) -> None:
    for position, (kind, number) in enumerate(rows[:MAX_LISTED]):
        output.line("" if position else label, f"{kind}: {wording.counted(number, 'file')}")
    if len(rows) > MAX_LISTED or others:
        output.line("", f"and {len(rows) - MAX_LISTED + others:,} more, which --json lists")
