"""Whether a cluster has workers, without which Dask waits for ever and says nothing; and what tasks tell each other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from distributed import Client, get_worker
from distributed.utils import sync

from resilient_pq.errors import SchemaError, StoreError, Where

log = logging.getLogger("resilient_pq.dask")

#: Seconds between two looks.
LOOK_SECONDS = 5.0
#: Seconds without workers after which that is said.
WARN_SECONDS = 30.0


class Workers:
    """The workers of a cluster, looked at from time to time while something is to be done by them."""

    def __init__(self, client: Client, timeout: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise SchemaError(f"workers_timeout is {timeout!r}", hint="it is a number of seconds above 0, or None")
        self._client = client
        self._timeout = timeout
        self._clock = clock
        self._since: float | None = None
        self._has_warned = False

    @property
    def look_seconds(self) -> float:
        """Seconds until the next look."""
        return LOOK_SECONDS if self._timeout is None else min(LOOK_SECONDS, self._timeout / 4)

    def look(self) -> None:
        """Ask the scheduler, and say in the log when there have been no workers for long; blocks."""
        now = self._clock()
        if self._client.nthreads():
            if self._has_warned and self._since is not None:
                log.warning("the cluster has workers again, after %.0f s without", now - self._since)
            self._since, self._has_warned = None, False
            return
        self._since = now if self._since is None else self._since
        seconds = now - self._since
        if self._timeout is not None and seconds >= self._timeout:
            raise StoreError(
                f"the cluster has had no workers for {seconds:,.0f} s",
                where=Where(key=self._client.scheduler.address),
                hint="start workers, or set a larger workers_timeout; what was done is done",
            )
        if seconds >= WARN_SECONDS and not self._has_warned:
            self._has_warned = True
            until = "" if self._timeout is None else f", until {self._timeout:,.0f} s have passed"
            log.warning("the cluster has had no workers for %.0f s; waiting for one%s", seconds, until)


def is_set(name: str) -> bool:
    """Whether an event of the scheduler is set; asked through the worker, as an `Event` makes a client in a task."""
    worker = get_worker()
    return bool(sync(worker.loop, worker.scheduler.event_is_set, name=name))


def set_event(name: str) -> None:
    """Set an event, in a task; it is set for good when this returns."""
    worker = get_worker()
    sync(worker.loop, worker.scheduler.event_set, name=name)
