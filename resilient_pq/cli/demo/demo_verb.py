"""`rpq demo`: write, kill the writer, recover, and compare what is left with what was written."""

from __future__ import annotations

from typing import Annotated

import typer

from resilient_pq.cli.demo import demo_places
from resilient_pq.cli.demo.demo_rot import tell_of_rot
from resilient_pq.cli.demo.demo_rows import DemoRows
from resilient_pq.cli.demo.demo_story import Story
from resilient_pq.cli.exit_codes import epilog
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import run_verb
from resilient_pq.cli.shared_options import AsJson, EndpointUrl, StorageOptions, storage

NAME = "demo"
EPILOG = epilog(
    "every stored row was recovered",
    "rows are missing, or a value is not what was written",
    "rpq demo",
    "rpq demo --rot",
    "rpq demo --s3 --endpoint-url http://localhost:8333 --bucket test",
    nothing="nothing was left to recover",
)


def demo(
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Rows of the table.")] = 3_000_000,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed makes the same rows.")] = 2013,
    input_path: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="Take the rows of a .csv, .jsonl, .parquet or .arrow file instead.",
        ),
    ] = None,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Keep the files, in a new folder in DIR.")] = None,
    rot: Annotated[
        bool, typer.Option("--rot", help="Damage a protected file instead, repair it from its parity, and compare.")
    ] = False,
    s3: Annotated[bool, typer.Option("--s3", help="Write to S3 instead of a temporary folder.")] = False,
    bucket: Annotated[str | None, typer.Option(metavar="NAME", help="The bucket; with --s3.")] = None,
    create_bucket: Annotated[
        bool,
        typer.Option("--create-bucket", help="Create the bucket if it does not exist, and remove it at the end."),
    ] = False,
    keep_objects: Annotated[
        bool, typer.Option("--keep-objects", help="Keep the objects in the bucket; with --s3.")
    ] = False,
    endpoint_url: EndpointUrl = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> int:
    """Write, kill the writer half-way, recover, compare.

    A separate process streams a table of flights into a file and is killed with SIGKILL about half-way. The partial
    file is checked and recovered to a new file, two columns are read back, and every value is compared with what was
    written. Without --s3 no server is needed. The demo removes its files at the end.
    """
    if s3 != (bucket is not None):
        raise typer.BadParameter("--s3 and --bucket go together", param_hint="--bucket" if s3 else "--s3")
    if rot and s3:
        raise typer.BadParameter("--rot is for local files", param_hint="--rot")
    if input_path == STDIN:
        raise typer.BadParameter("stdin cannot be read twice, name a file", param_hint="--input")
    options = storage(endpoint_url, storage_option).options
    source = DemoRows(rows, seed, input_path)

    async def work(output: Output) -> int:
        place = (
            demo_places.folder(keep)
            if bucket is None
            else demo_places.bucket(bucket, options, create=create_bucket, keep=keep_objects)
        )
        async with place as found:
            return await (tell_of_rot(output, source, found) if rot else Story(output, source, found).tell())

    return run_verb(NAME, work, as_json=as_json)
