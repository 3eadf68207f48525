"""`rpq schema`, `rpq count`, `rpq stats`: what the footers of files say."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.inspect.footer_facts import Facts, columns_of
from resilient_pq.cli.output import text_rows, wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import Sources, open_each
from resilient_pq.cli.running import verb
from resilient_pq.errors import Where, located
from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics


@verb(
    "schema",
    "the schema is printed",
    "the footer of a file is missing or damaged",
    "rpq schema flights.parquet",
    "rpq schema 's3://bucket/flights/**/*.parquet' --json",
    nothing="a file is not a Parquet file",
)
async def schema(output: Output, urls: Sources) -> int:
    """Print the schema, as Parquet writes it.

    For several files, every different schema is printed with the number of files that have it. Options named --schema
    of other verbs take this text.
    """
    found: dict[str, list[str]] = {}
    async with aclosing(open_each(output, urls)) as files:
        async for file in files:
            found.setdefault(str(file.schema), []).append(file.url)
    for text, names in found.items():
        if len(found) > 1:
            output.line("schema", f"of {wording.counted(len(names), 'file')}, such as {names[0]}")
        output.block(text)
    schemas = [{"schema": text, "files": len(names), "first": names[0]} for text, names in found.items()]
    output.finish("read", url=output.url, schemas=schemas)
    return ExitCode.SOUND


@verb(
    "count",
    "the numbers are printed",
    "the footer of a file is missing or damaged",
    "rpq count flights.parquet",
    "rpq count s3://bucket/flights/",
    nothing="a file is not a Parquet file",
)
async def count(output: Output, urls: Sources) -> int:
    """Print the number of rows.

    Only footers are read. For several files there is a line for each, and a total.
    """
    found: list[tuple[str, int]] = []
    async with aclosing(open_each(output, urls)) as files:
        async for file in files:
            found.append((file.url, file.num_rows))
    total = sum(rows for _, rows in found)
    width = len(str(total))
    if len(found) == 1:
        output.block(str(total))
    else:
        for url, rows in [*found, ("total", total)]:
            output.block(f"{rows:>{width}}  {url}")
    output.finish("read", rows=total, url=output.url, files=[{"url": url, "rows": rows} for url, rows in found])
    return ExitCode.SOUND


@dataclass
class _Column:
    """One column of all files; `bounds` is None where a part of it has none."""

    facts: list[Facts] = field(default_factory=list)
    bounds: list[ColumnStatistics] | None = field(default_factory=list)

    def add(self, file: rpq.File, facts: Facts) -> None:
        """Count the column of a file."""
        self.facts.append(facts)
        for row_group in range(file.num_row_groups):
            known = file.statistics(row_group, facts["name"])
            if self.bounds is None or known.all_null or not file.metadata.row_groups[row_group].num_rows:
                continue
            unknown = known.low is None or known.high is None
            self.bounds = None if unknown else [*self.bounds, known]

    def _sum(self, name: str) -> int:
        return sum(each[name] for each in self.facts)

    def _names(self, name: str) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(each[name] for each in self.facts)))

    def to_json(self) -> dict[str, Any]:
        """As the document has it."""
        first, nulls = self.facts[0], [each["nulls"] for each in self.facts]
        size, uncompressed = self._sum("num_bytes"), self._sum("uncompressed")
        # Python's values may be of two types, which do not compare: a time with nanoseconds is NumPy's.
        low = min(self.bounds or (), key=attrgetter("low"), default=None)
        high = max(self.bounds or (), key=attrgetter("high"), default=None)
        return {
            "name": first["name"],
            "type": first["type"],
            "nulls": None if None in nulls else self._sum("nulls"),
            "min": None if low is None else text_rows.plain(low.min),
            "max": None if high is None else text_rows.plain(high.max),
            "encodings": self._names("encodings"),
            "codecs": self._names("codecs"),
            "num_bytes": size,
            "uncompressed": uncompressed,
            "ratio": round(uncompressed / size, 2) if size else None,
        }


@verb(
    "stats",
    "the table is printed",
    "the footer of a file is missing or damaged",
    "rpq stats flights.parquet",
    "rpq stats s3://bucket/flights/ --json",
    nothing="a file is not a Parquet file",
)
async def stats(output: Output, urls: Sources) -> int:
    """Show type, nulls, bounds, encodings and size of each column.

    Only footers are read: bounds are those that the writers stored; ? stands for bounds that they did not store.
    Several files are shown as one.
    """
    columns: dict[tuple[str, str], _Column] = {}
    num_files = num_rows = 0
    async with aclosing(open_each(output, urls)) as files:
        async for file in files:
            num_files, num_rows = num_files + 1, num_rows + file.num_rows
            with located(Where(key=file.url)):
                for facts in columns_of(file.contents):
                    columns.setdefault((facts["name"], facts["type"]), _Column()).add(file, facts)
    found = [column.to_json() for column in columns.values()]
    output.line("rows", f"{num_rows:,} in {wording.counted(num_files, 'file')}")
    output.table(
        ("column", "type", "nulls", "min", "max"),
        [[each["name"], each["type"], *_short(each, "nulls", "min", "max")] for each in found],
        left=2,
    )
    output.block("")
    output.table(
        ("column", "size", "ratio", "codec", "encodings"),
        [[each["name"], wording.in_bytes(each["num_bytes"]), *_short(each, "ratio"), *_names(each)] for each in found],
        last_left=True,
    )
    output.finish("read", rows=num_rows, url=output.url, files=num_files, columns=found)
    return ExitCode.SOUND


def _short(column: dict[str, Any], *names: str) -> list[str]:
    return [wording.shortened(column[name], at_most=20) for name in names]


def _names(column: dict[str, Any]) -> list[str]:
    return [", ".join(column[name]) for name in ("codecs", "encodings")]
