"""`rpq schema`: the columns of files."""

from __future__ import annotations

from contextlib import aclosing

from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import Sources, open_each
from resilient_pq.cli.running import verb

NAME = "schema"
EPILOG = epilog(
    "the schema is printed",
    "the footer of a file is missing or damaged",
    "rpq schema flights.parquet",
    "rpq schema 's3://bucket/flights/**/*.parquet' --json",
    nothing="a file is not a Parquet file",
)


@verb(NAME)
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
