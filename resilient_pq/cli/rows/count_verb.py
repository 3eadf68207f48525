"""`rpq count`: how many rows files have."""

from __future__ import annotations

from contextlib import aclosing

from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import Sources, open_each
from resilient_pq.cli.running import verb

NAME = "count"
EPILOG = epilog(
    "the numbers are printed",
    "the footer of a file is missing or damaged",
    "rpq count flights.parquet",
    "rpq count s3://bucket/flights/",
    nothing="a file is not a Parquet file",
)


@verb(NAME)
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
