"""Work that must come to its end even though the task that waits for it is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Iterable
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


async def finish_in_thread(call: Callable[..., Result], *args: Any) -> Result:
    """The result of a blocking call, made in a thread, and waited for to its end even when cancelled."""
    in_context = partial(contextvars.copy_context().run, call, *args)
    return await finish_first(asyncio.get_running_loop().run_in_executor(None, in_context))


async def finish_first(
    work: Awaitable[Result],
    *,
    undo: Callable[[Result], Coroutine[Any, Any, Any]] | None = None,
    patience: float | None = None,
) -> Result:
    """The result of `work`, which runs to its end, or for `patience` seconds after a cancellation, raised after it."""
    # For what must not stay half done: a write in a thread whose file would be closed under it, the request that
    # publishes an object, cleaning up. After a cancellation nobody receives the result: `undo` is given it.
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    loop = asyncio.get_running_loop()
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
    # Asking for the exception marks it as seen: the cancellation is what the caller is told.
    if not task.cancelled() and task.exception() is None and undo is not None:
        await finish_first(undo(task.result()))
    raise cancelled
