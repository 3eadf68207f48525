"""The files that a verb is given: one or many, of any store, or the one that comes on stdin. An async shell."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.run_listing import is_folder, names_many
from resilient_pq.bulk.scope import Place
from resilient_pq.cli.input.input_stream import STDIN
from resilient_pq.cli.input.stdin_copy import stdin_as_file
from resilient_pq.cli.output.output_streams import is_terminal, write_bytes
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.dataset.file_listing import find_files
from resilient_pq.errors import OptionError
from resilient_pq.io import Stores
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.io.location import is_web
from resilient_pq.units import MiB

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="URL...",
        help="Parquet files: paths or URLs, folders, patterns in quotes such as 's3://bucket/events/**/*.parquet', or"
        " - for a file on stdin.",
    ),
]
#: Footers that are read at one time.
_AT_ONCE = 16
_PIECE = 1 * MiB
#: Names that end so are those of files, and are not asked for as folders.
_OF_FILES = (".parquet", ".pq", ".partial")


def _pieces(path: str) -> Iterator[bytes]:
    """What is in a file; nothing where there is none, as nothing was to be written."""
    with suppress(FileNotFoundError), open(path, "rb") as made:
        while piece := made.read(_PIECE):
            yield piece


@asynccontextmanager
async def stdout_as_file(output: Output, dst: str) -> AsyncIterator[str]:
    """A destination by its name; for ``-`` a temporary file, which is copied to stdout when it is complete."""
    if dst != STDIN:
        yield dst
        return
    if output.as_json:
        raise OptionError("--json and - both write to stdout", hint="name a file instead of -")
    if is_terminal(sys.stdout):
        raise OptionError("stdout is a terminal, and a Parquet file is binary", hint="redirect it: > day.parquet")
    with tempfile.TemporaryDirectory(prefix="rpq-") as folder:
        path = os.path.join(folder, "stdout.parquet")
        with output.off_stdout(path):
            yield path
        for piece in _pieces(path):
            write_bytes(piece)
            await asyncio.sleep(0)  # an interrupt ends this, too


@asynccontextmanager
async def find_places(output: Output, urls: Sequence[str]) -> AsyncIterator[list[Place]]:
    """The files that all URLs name, in their order."""
    if urls.count(STDIN) > 1:
        raise OptionError("there is one stdin, and - is given twice")
    stores = Stores(output.reached.options)
    try:
        async with stdin_as_file(STDIN if STDIN in urls else "") as spooled:
            places: list[Place] = []
            for url in urls:
                if url == STDIN:
                    places.append(spooled)
                    continue
                places += await find_files(url if names_many(url) else [url], stores)
                if not names_many(url) and (below := await _below(url, places[-1], stores)):
                    places[-1:] = below
            yield places
    finally:
        await stores.close()


async def _below(url: str, place: Place, stores: Stores) -> list[Place]:
    """The files below a name that is a prefix of objects, and none itself."""
    if "://" not in url or is_web(url) or url.endswith(_OF_FILES):
        return []
    try:
        await place[0].head(place[1])
    except rpq.NotFoundError:
        return await find_files(f"{url}/", stores) if await is_folder(url, stores) else []
    return []


@asynccontextmanager
async def open_rows(output: Output, urls: Sequence[str], **how: Any) -> AsyncIterator[rpq.Dataset]:
    """The rows of all files, open as one."""
    how = {**output.reached.keys.reading, **how}
    async with find_places(output, urls) as places, rpq.open_many(places, **how) as dataset:
        yield dataset


async def open_each(output: Output, urls: Sequence[str]) -> AsyncGenerator[rpq.File, None]:
    """Every file, open, in order; some footers are read ahead."""
    how = output.reached.keys.reading
    async with find_places(output, urls) as places:
        with output.progress("reading") as meter:
            for first in range(0, len(places), _AT_ONCE):
                files = await all_or_none(_opened(place, how) for place in places[first : first + _AT_ONCE])
                for number, file in enumerate(files, first + 1):
                    async with file:
                        yield file
                    meter.update(number / len(places), f"{number:,} files")


async def _opened(place: Place, how: Mapping[str, Any]) -> rpq.File:
    return await rpq.open(place, **how)
