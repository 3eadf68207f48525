"""Watches asynchronous generators: whoever opens one closes it, and does not leave that to the garbage collector.

One that is left open is closed some time later by the event loop, in the middle of something else: at the same time as
those that it reads from, which fails with "asynchronous generator is already running" and a traceback on stderr.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType
from typing import Any

import pytest

import resilient_pq
from resilient_pq.writer.lifecycle import WriterLifecycle

#: What the event loop is to close, where nobody closed a writer.
_GUARD = WriterLifecycle._keep_when_left.__name__
_PACKAGE = str(Path(resilient_pq.__file__).parent)
#: What the event loop is to close: the clients of stores end with it.
_OF_THE_LOOP = str(Path(resilient_pq.__file__).parent / "io" / "shared_clients.py")


@pytest.fixture(scope="session", autouse=True)
def _left_open() -> Iterator[list[str]]:
    """The generators of the package that an event loop had to close."""
    found: list[str] = []
    by_garbage_collection = asyncio.BaseEventLoop._asyncgen_finalizer_hook  # type: ignore[attr-defined]
    at_the_end = asyncio.BaseEventLoop.shutdown_asyncgens

    def note(generator: AsyncGeneratorType[Any, Any]) -> None:
        file, left = generator.ag_code.co_filename, generator.ag_frame is not None
        if left and file.startswith(_PACKAGE) and file != _OF_THE_LOOP and generator.__name__ != _GUARD:
            found.append(f"{generator.__qualname__}, line {generator.ag_frame.f_lineno} of {file}")

    def finalize(loop: asyncio.BaseEventLoop, generator: AsyncGeneratorType[Any, Any]) -> None:
        note(generator)
        by_garbage_collection(loop, generator)

    async def shut_down(loop: asyncio.BaseEventLoop) -> None:
        for generator in list(loop._asyncgens):  # type: ignore[attr-defined]
            note(generator)
        await at_the_end(loop)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.BaseEventLoop, "_asyncgen_finalizer_hook", finalize)
        patch.setattr(asyncio.BaseEventLoop, "shutdown_asyncgens", shut_down)
        yield found


@pytest.fixture(autouse=True)
def left_open(_left_open: list[str]) -> Iterator[list[str]]:
    """Fails the test in which one was left open, or the next one where it was found late.

    A test that forgets one itself, as a caller may, takes it from the list that this is.
    """
    _left_open.clear()
    yield _left_open
    assert not _left_open, "nobody closed " + "; ".join(_left_open)
