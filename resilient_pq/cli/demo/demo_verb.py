"""`rpq demo`: write, kill the writer, recover, and compare what is left with what was written."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.cli.demo.demo_rows import DemoRows
from resilient_pq.cli.demo.demo_story import Place, Story, place_in_bucket, place_in_folder
from resilient_pq.cli.exit_codes import ExitCode, epilog
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.output.wording import counted, durations, in_bytes
from resilient_pq.cli.running import run_verb
from resilient_pq.cli.shared_options import AsJson, EndpointUrl, StorageOptions, storage
from resilient_pq.parity.group_shape import BLOCK_BYTES
from resilient_pq.shell_commands import command


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
            place_in_folder(keep)
            if bucket is None
            else place_in_bucket(bucket, options, create=create_bucket, keep=keep_objects)
        )
        async with place as found:
            return await (tell_of_rot(output, source, found) if rot else Story(output, source, found).tell())

    return run_verb("demo", work, as_json=as_json)


demo.epilog = epilog(  # type: ignore[attr-defined]
    "every stored row was recovered",
    "rows are missing, or a value is not what was written",
    "rpq demo",
    "rpq demo --rot",
    "rpq demo --s3 --endpoint-url http://localhost:8333 --bucket test",
    nothing="nothing was left to recover",
)
#: One bit is flipped for so many bytes.
_BYTES_PER_FLIP = 80 * BLOCK_BYTES


async def tell_of_rot(output: Output, source: DemoRows, place: Place) -> int:
    """All of it; gives the exit code."""
    path, draw = Path(place.url), random.Random(source.seed)
    output.line("write", f"{counted(await _write(source, path), 'row')} to {path}")
    protection = await rpq.protect(path)
    rebuilt = f"any {in_bytes(protection.burst_bytes)} in a row can be rebuilt"
    output.line("protect", f"{path.name}.rpqparity, {protection.overhead:.1%}: {rebuilt}")
    original, length = await asyncio.to_thread(path.read_bytes), protection.burst_bytes * 2 // 3
    start = draw.randrange(max(1, len(original) - length))
    flips = max(3, len(original) // _BYTES_PER_FLIP)
    damages: dict[str, tuple[str, Callable[[], bytes]]] = {
        "flip": (counted(flips, "bit"), lambda: _flipped(original, flips, draw)),
        "zero": (in_bytes(length), lambda: original[:start] + bytes(length) + original[start + length :]),
        "cut out": (in_bytes(length), lambda: original[:start] + original[start + length :]),
        "cut off": (f"the last {in_bytes(length)}", lambda: original[: len(original) - length]),
    }
    repaired = list[dict[str, Any]]()
    for label, (words, damaged) in damages.items():
        await asyncio.to_thread(path.write_bytes, damaged())
        began = time.monotonic()
        done = await rpq.repair(path, place.recovered_url, overwrite=True)
        seconds = durations(time.monotonic() - began)
        same = await asyncio.to_thread(Path(place.recovered_url).read_bytes) == original
        verdict = "every byte is as it was" if same else "the file is not as it was"
        rebuilt = f"{done.num_blocks_rebuilt:,} of {counted(done.num_blocks, 'block')} rebuilt"
        output.line(label, f"{words}: {rebuilt}, {verdict}; {seconds}")
        repaired.append({"damage": label, "same": same, **asdict(done)})
    num_same = sum(each["same"] for each in repaired)
    all_same = num_same == len(damages)
    output.line(
        "ok" if all_same else "broken", f"{num_same} of {counted(len(damages), 'damaged file')} came back bit for bit"
    )
    following = [command("check", place.recovered_url)] if place.kept else []
    output.finish("held" if all_same else "broken", following=following, url=place.url, repaired=repaired)
    return ExitCode.SOUND if all_same else ExitCode.DAMAGE


async def _write(source: DemoRows, path: Path) -> int:
    async with source.open() as rows, rpq.create(path, rows.schema) as writer:
        async for piece, _ in rows.pieces:
            await writer.write(piece)
    return writer.num_rows


def _flipped(data: bytes, count: int, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(count):
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)
