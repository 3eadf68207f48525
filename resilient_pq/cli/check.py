"""`rpq check`: what is wrong with a file, and what to do about it."""

from __future__ import annotations

import resilient_pq as rpq
from resilient_pq.cli import render, words
from resilient_pq.cli.exit_codes import epilog
from resilient_pq.cli.options import AsJson, EndpointUrl, Storage, StorageOptions, Url, storage
from resilient_pq.cli.render import Output
from resilient_pq.cli.running import run_verb

NAME = "check"
EPILOG = epilog(
    "sound: no byte is damaged",
    "damaged, or its writer never finished it",
    "rpq check day.parquet",
    "rpq check s3://bucket/day.parquet --endpoint-url http://localhost:8333",
    nothing="damaged, and no row can be recovered",
)


def check(
    url: Url, endpoint_url: EndpointUrl = None, storage_option: StorageOptions = None, as_json: AsJson = False
) -> int:
    """Find damage, and print what to run next.

    Every byte is read, every checksum compared, nothing written. Pages without a checksum are decoded instead.
    """
    reached = storage(endpoint_url, storage_option)
    return run_verb(NAME, lambda output: _check(output, url, reached), as_json=as_json)


async def _check(output: Output, url: str, reached: Storage) -> int:
    with output.progress("checking") as meter:
        report = await rpq.check(
            url,
            storage_options=reached.options,
            progress=lambda done, size: meter.update(done / size, words.in_bytes(done)),
        )
    render.checked(output, reached.lead_to(report))
    return report.exit_code
