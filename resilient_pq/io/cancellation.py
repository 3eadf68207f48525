"""Work that must come to its end even though the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

#: Seconds that a request under way may go on for, and that one which tidies up may take, when its caller has ended.
GRACE_SECONDS: Final = 10.0


async def all_or_none(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """What each gives, side by side and in order; when one fails, or the caller is cancelled, the others are ended."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _LoopWanted:
    """What a coroutine gives to whoever drives it without an event loop, where it cannot go on without one."""

    cancelled = False

    def __await__(self) -> Generator[_LoopWanted, None, None]:
        yield self
        if self.cancelled:
            raise asyncio.CancelledError


async def in_loop() -> None:
    """Go on in an event loop: at once where one runs, else when whoever drives the caller has handed it to one."""
    if asyncio._get_running_loop() is None:
        await _LoopWanted()


class _Rest:
    """The rest of a coroutine that was begun without an event loop, which it waits for."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], wanted: _LoopWanted) -> None:
        self._coroutine = coroutine
        self.wanted = wanted

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self._coroutine.__await__())


def begun(coroutine: Coroutine[Any, Any, Result]) -> tuple[bool, Any]:
    """Begin a coroutine in this thread, which has no event loop: whether it ended, and its result or what is left."""
    # Whatever blocks is done in this thread, as `finish_in_thread` and `finish_first` see to. Where the coroutine asks
    # for a loop with `in_loop`, what is left is to be awaited in one.
    try:
        wanted = coroutine.send(None)
    except StopIteration as ended:
        return True, ended.value
    assert isinstance(wanted, _LoopWanted), "what needs an event loop asks for it"
    return False, _Rest(coroutine, wanted)


async def _end_rest(left: tuple[bool, Any]) -> None:
    """Cancel what is left of a coroutine of which nobody waits for the end any more."""
    ended, rest = left
    if not ended:
        rest.wanted.cancelled = True
        with suppress(asyncio.CancelledError):
            await rest


async def in_one_hop(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine all of which is done in one thread, to its end or to where it needs the event loop."""
    # For a few steps that take little time each, where handing every one to a thread would take longer than they do.
    if asyncio._get_running_loop() is None:
        return await coroutine
    ended, found = await finish_first(_in_thread(begun, coroutine), undo=_end_rest)
    result: Result = found if ended else await found
    return result


async def finish_in_thread(call: Callable[..., Result], *args: Any) -> Result:
    """The result of a blocking call, waited for even when cancelled; made in a thread, or here without a loop."""
    if asyncio._get_running_loop() is None:
        return call(*args)
    return await finish_first(_in_thread(call, *args))


def _in_thread(call: Callable[..., Result], *args: Any) -> asyncio.Future[Result]:
    in_context = partial(contextvars.copy_context().run, call, *args)
    return asyncio.get_running_loop().run_in_executor(None, in_context)


async def finish_first(
    work: Awaitable[Result],
    *,
    undo: Callable[[Result], Coroutine[Any, Any, Any]] | None = None,
    patience: float | None = None,
) -> Result:
    """The result of `work`, which runs to its end, or for `patience` seconds after a cancellation, raised after it."""
    # For what must not stay half done: a write in a thread whose file would be closed under it, the request that
    # publishes an object, cleaning up. After a cancellation nobody receives the result: `undo` is given it.
    if (loop := asyncio._get_running_loop()) is None:
        return await work  # which nobody can cancel
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    impatient: asyncio.TimerHandle | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            if patience is not None and impatient is None:
                impatient = loop.call_later(patience, task.cancel)
    if impatient is not None:
        impatient.cancel()
    if cancelled is None:
        return task.result()
    if _succeeded(task) and undo is not None:
        await finish_first(undo(task.result()))
    raise cancelled


def _succeeded(task: asyncio.Future[Any]) -> bool:
    """Asking for the exception marks it as seen: the cancellation is what the caller is told."""
    return not task.cancelled() and task.exception() is None
