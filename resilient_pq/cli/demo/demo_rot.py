"""`rpq demo --rot`: a protected file is damaged in several ways, repaired, and compared with what it was."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import resilient_pq as rpq
from resilient_pq.cli.demo.demo_places import Place
from resilient_pq.cli.demo.demo_rows import DemoRows
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.output.wording import counted, durations, in_bytes
from resilient_pq.parity.group_shape import BLOCK_BYTES
from resilient_pq.shell_commands import command

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
