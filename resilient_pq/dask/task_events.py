"""What tasks tell each other by way of the scheduler, which survives them all.

Asked through the worker: an `Event` would make a client in it, and that one the default of the whole process.
"""

from __future__ import annotations

from distributed import get_worker
from distributed.utils import sync


def is_set(name: str) -> bool:
    """Whether an event is set; in a task."""
    worker = get_worker()
    return bool(sync(worker.loop, worker.scheduler.event_is_set, name=name))


def set_event(name: str) -> None:
    """Set an event, in a task; it is set for good when this returns."""
    worker = get_worker()
    sync(worker.loop, worker.scheduler.event_set, name=name)
