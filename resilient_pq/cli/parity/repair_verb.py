"""`rpq repair`: a protected file rebuilt bit for bit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

import resilient_pq as rpq
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output import wording
from resilient_pq.cli.output.progress_bar import progress_in_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.running import verb
from resilient_pq.shell_commands import command


@verb(
    "repair",
    "the file is as it was when its parity was made",
    "more is damaged than the parity can rebuild; nothing was written",
    "rpq repair day.parquet day.repaired.parquet",
    "rpq repair day.parquet --in-place",
    "rpq repair s3://bucket/day.parquet s3://bucket/new/day.parquet --sidecar parity/day.parquet.rpqparity",
)
async def repair(
    output: Output,
    src: Annotated[str, typer.Argument(metavar="SRC", help="The damaged file: a path or a URL. It may be missing.")],
    dst: Annotated[str | None, typer.Argument(metavar="DST", help="The new file: a path or a URL.")] = None,
    sidecar: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Use this sidecar, and no other parity; otherwise SRC.rpqparity, _folder.rpqparity in the folder of"
            " SRC, or the parity inside SRC.",
        ),
    ] = None,
    in_place: Annotated[
        bool,
        typer.Option(
            "--in-place",
            help="Write the rebuilt blocks into SRC, a local file. When that is interrupted, run the command again.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is at DST.")] = False,
) -> int:
    """Rebuild a file from its parity, bit for bit.

    `rpq protect` writes parity beside a file, `rpq write --parity` inside it. Nothing is written unless every byte is
    proven by the checksums in it.
    """
    try:
        with output.progress("repairing") as meter:
            done = await rpq.repair(
                src,
                dst,
                sidecar=sidecar,
                in_place=in_place,
                overwrite=overwrite,
                storage_options=output.reached.options,
                progress=progress_in_bytes(meter),
            )
    except rpq.RepairError as error:
        output.failed(error)
        return ExitCode.DAMAGE
    if done.num_blocks:
        damaged = f"{done.num_blocks_damaged:,} of {wording.counted(done.num_blocks, 'block')}"
        moved = done.num_blocks_damaged - done.num_blocks_rebuilt
        elsewhere = f", {moved:,} found in other places of the file" if moved else ""
        output.line("damaged", f"{damaged}; {done.num_blocks_rebuilt:,} rebuilt from parity{elsewhere}")
    else:
        output.line("copied", "all bytes, from the copy in the sidecar")
    output.line("written", f"{done.output}, {wording.in_bytes(done.size)}, as it was when it was protected")
    output.finish("repaired", following=[output.reached.command(command("check", done.output))], **asdict(done))
    return ExitCode.SOUND
