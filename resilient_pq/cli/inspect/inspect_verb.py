"""`rpq inspect`: the contents of files by their footers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.file_result import FileError
from resilient_pq.bulk.file_task import FileTask
from resilient_pq.bulk.many_files import DEFAULT_MAX_FILES, each_of_many
from resilient_pq.cli import many_verbs
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.inspect.footer_facts import Facts, Sections, document_of
from resilient_pq.cli.many_verbs import ManyOptions, MaxFiles, Urls
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.report_lines import MAX_LISTED
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.errors import FormatError, SchemaError
from resilient_pq.io import resolve
from resilient_pq.io.location import shown
from resilient_pq.shell_commands import command, shell_line


@verb(
    "inspect",
    "the footer is whole and was read",
    "the footer is missing or damaged: `rpq check` says what can be recovered",
    "rpq inspect flights.parquet --row-groups",
    "rpq inspect s3://bucket/flights.parquet --pages dep_delay --json",
    "rpq inspect s3://bucket/flights/",
    nothing="a file is not a Parquet file",
)
async def inspect(
    output: Output,
    urls: Urls,
    schema: Annotated[bool, typer.Option("--schema", help="Show the Parquet schema.")] = False,
    row_groups: Annotated[bool, typer.Option("--row-groups", help="List the row groups.")] = False,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="List the column chunks, with their statistics and indexes.")
    ] = False,
    pages: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="List the pages of a column; its chunks are read for that."),
    ] = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="List the checkpoints.")] = False,
    parity: Annotated[
        bool, typer.Option("--parity", help="List the parity groups inside the file, and what they rebuild.")
    ] = False,
    max_files: MaxFiles = DEFAULT_MAX_FILES,
) -> int:
    """Show what a file is made of.

    Only the end of the file is read, except for --pages and --parity. With --schema, --row-groups, --chunks, --pages,
    --checkpoints or --parity these are shown instead of the summary. A leaf of a nested column is named by its path
    with dots.

    For a folder, the files are counted by schema and by writer; --json prints a document for each file as a
    line, and one of all as the last.
    """
    sections = Sections(schema, row_groups, chunks, pages, checkpoints, parity)
    return await many_verbs.run_one_or_many(
        urls,
        output.reached,
        one=lambda: _inspect(output, urls[0], sections),
        many=lambda: inspect_many(output, urls, sections, max_files),
    )


async def _inspect(output: Output, url: str, sections: Sections) -> int:
    store, key = resolve(url, output.reached.options)
    try:
        async with rpq.open((store, key), **output.reached.keys.reading) as file:
            document = await document_of(file, sections, groups=sections.parity)
            _show(output, file, sections, document)
            output.document(document)
    except FormatError as error:
        error.hint = error.hint or shell_line(output.reached.command(command("check", shown(url))))
        raise
    finally:
        await store.close()
    return ExitCode.SOUND


# -- as text -------------------------------------------------------------------------------------


def _show(output: Output, file: rpq.File, sections: Sections, document: Facts) -> None:
    if sections.nothing:
        _show_summary(output, file, document)
        _show_columns(output, document["columns"])
    if sections.schema:
        output.block(document["schema"])
    if sections.row_groups:
        _show_row_groups(output, document["row_group_list"])
    if sections.chunks:
        _show_chunks(output, document["chunks"])
    if sections.pages is not None:
        _show_pages(output, document["pages"])
    if sections.checkpoints:
        _show_checkpoints(output, document)
    if sections.parity:
        _show_parity(output, document["parity"])


def _show_summary(output: Output, file: rpq.File, document: Facts) -> None:
    groups = wording.counted(file.num_row_groups, "row group")
    output.line("file", file.url)
    output.line("size", wording.in_bytes(file.info.size))
    output.line("rows", f"{file.num_rows:,} in {groups}")
    if file.data_files:
        output.line("summary of", wording.counted(len(file.data_files), "file"))
    output.line("state", document["state"] or "not told: no resilient file")
    if document["file_id"]:
        output.line("file id", document["file_id"])
    output.line("written by", document["created_by"] or "not told")
    output.line("checksums", _checksums(document))
    if document["state"]:
        output.line("checkpoints", f"{len(file.checkpoints):,}")
    if file.contents.parity:
        groups = wording.counted(len(file.contents.parity), "group")
        parity = sum(place.size for place in file.contents.parity)
        output.line("parity", f"{wording.in_bytes(parity)} in {groups}")
    if file.sorting_columns:
        output.line("sorted by", ", ".join(_order(column) for column in file.sorting_columns))
    keys = [key for key in document["key_value_metadata"] if not key.startswith(("rpq.", "ARROW:"))]
    if keys:
        output.line("metadata", wording.wrapped_names(keys))
    output.line("", "")


def _order(column: rpq.SortingColumn) -> str:
    return f"{column.column}{' descending' * column.descending}{' nulls first' * column.nulls_first}"


def _checksums(summary: dict[str, Any]) -> str:
    if summary["chunks_checksummed"]:
        return "of the footer (compared), of every column chunk, index and page"
    if summary["footer_verified"]:
        return "of the footer (compared)"
    return "none of the footer; pages may have their own, see --pages"


def _show_facts(output: Output, columns: Mapping[str, str], facts: Sequence[Facts], *, left: int) -> None:
    """Print a table of facts; `columns` have the key of their values."""
    output.table(tuple(columns), [[_cell(each[key]) for key in columns.values()] for each in facts], left=left)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "?"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case list():
            return " ".join(value)
    return str(value)


def _show_columns(output: Output, columns: Sequence[Facts]) -> None:
    shown = {"column": "name", "type": "type", "codec": "codecs", "encodings": "encodings", "bytes": "num_bytes"}
    _show_facts(output, shown | {"uncompressed": "uncompressed", "nulls": "nulls"}, columns, left=4)


def _show_row_groups(output: Output, groups: Sequence[Facts]) -> None:
    named = any(group["files"] for group in groups)
    shown = {"file": "file"} if named else {}
    shown |= {"row group": "ordinal", "rows": "rows", "offset": "offset", "bytes": "num_bytes"}
    rows = [{**group, "file": ", ".join(group["files"])} for group in groups]
    _show_facts(output, shown | {"uncompressed": "uncompressed"}, rows, left=1 if named else 0)


def _show_chunks(output: Output, chunks: Sequence[Facts]) -> None:
    rows = [
        {
            **chunk,
            "min": wording.shortened(chunk["min"]),
            "max": wording.shortened(chunk["max"]),
            "index": chunk["column_index"] or ("offsets" if chunk["offset_index"] else False),
        }
        for chunk in chunks
    ]
    shown = {"column": "column", "min": "min", "max": "max", "page index": "index", "bloom": "bloom_filter"}
    shown |= {"row group": "row_group", "values": "values", "nulls": "nulls", "bytes": "num_bytes"}
    _show_facts(output, shown | {"uncompressed": "uncompressed"}, rows, left=5)


def _show_pages(output: Output, pages: Sequence[Facts]) -> None:
    shown = {"kind": "kind", "encoding": "encoding", "crc32": "crc32", "row group": "row_group", "page": "page"}
    shown |= {"values": "values", "offset": "offset", "bytes": "num_bytes", "uncompressed": "uncompressed"}
    _show_facts(output, shown, pages, left=3)


def _show_checkpoints(output: Output, document: Facts) -> None:
    if not document["checkpoints"]:
        output.line("checkpoints", "none" if document["state"] else "none: this is no resilient file")
        return
    shown = {"checkpoint": "ordinal", "rows before it": "num_rows", "offset": "offset"}
    _show_facts(output, shown, [{**each, "ordinal": str(each["ordinal"])} for each in document["checkpoints"]], left=0)


def _show_parity(output: Output, groups: Sequence[Facts]) -> None:
    if not groups:
        output.line("parity", "none in the file")
        return
    shown = {"group": "group", "bytes": "num_bytes", "parity": "parity_bytes", "rebuilds in a row": "burst_bytes"}
    _show_facts(output, shown, [{**each, "group": str(each["group"])} for each in groups], left=0)


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
        return rpq.FileResult("inspect", task.name, facts=await document_of(file, sections, groups=False))


def _show_kinds(output: Output, label: str, rows: Sequence[tuple[str, int]], others: int) -> None:
    for position, (kind, number) in enumerate(rows[:MAX_LISTED]):
        output.line("" if position else label, f"{kind}: {wording.counted(number, 'file')}")
    if len(rows) > MAX_LISTED or others:
        output.line("", f"and {len(rows) - MAX_LISTED + others:,} more, which --json lists")
