"""What is asked of a store and what came of it: a line at DEBUG for every request.

The logger is ``resilient_pq.io.requests``, and its lines are::

    GET s3://bucket/day.parquet bytes=0-99 206 100 bytes 31.4 ms attempt 1

the method (of S3 the operation as its API calls it, of fsspec the method, but for GETs of objects), the object or
folder, the range, the status, the bytes of the body that were sent or received, the milliseconds until the last of
them, and which attempt of the operation it was. ``-`` stands where there is no range, or where no status came; then, or
where the body broke off, the reason ends the line. A second request beside one that stalls says ``hedge`` instead.
Credentials stand in no line: URLs are in their display form (`io.location`). The values are the arguments of the log
record.
"""

from __future__ import annotations

import logging
import time
from contextvars import ContextVar
from typing import Final, Self

from resilient_pq.errors import ResilientPQError
from resilient_pq.io.location import scrubbed

log = logging.getLogger("resilient_pq.io.requests")

#: Which attempt the requests of this task are.
attempt: Final[ContextVar[str]] = ContextVar("resilient_pq_attempt", default="attempt 1")


class RequestLine:
    """One request under way; its line is written when it has ended."""

    __slots__ = ("_attempt", "_begun", "_byte_range", "_method", "_num_bytes", "_open", "_url")

    def __init__(self, method: str, url: str, byte_range: str = "", *, num_bytes: int = 0) -> None:
        self._num_bytes = num_bytes
        self._open = log.isEnabledFor(logging.DEBUG)
        if self._open:
            self._method, self._url, self._byte_range = method, url, byte_range or "-"
            self._attempt = attempt.get()  # now: a hedge's answer is taken over by the task of the other one
            self._begun = time.perf_counter()

    def __enter__(self) -> Self:
        """The line itself; what is raised within the block ends it."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.end(None, self._num_bytes, error)

    def end(self, status: int | None, num_bytes: int, error: BaseException | None = None) -> None:
        """Write the line, once."""
        if not self._open:
            return
        self._open = False
        if status is None:
            status = _status_of(error)
        milliseconds = 1000 * (time.perf_counter() - self._begun)
        values = (self._method, self._url, self._byte_range, "-" if status is None else status, num_bytes)
        log.debug("%s %s %s %s %d bytes %.1f ms %s%s", *values, milliseconds, self._attempt, _reason(error))


def _status_of(error: BaseException | None) -> int | None:
    """What the nearest of the errors that led to this one was answered with."""
    while error is not None:
        status = getattr(error, "status", None)
        if isinstance(status, int):
            return status
        error = error.__cause__
    return None


def _reason(error: BaseException | None) -> str:
    """The message of an error of ours; of any other, which may name anything, its type."""
    if error is None:
        return ""
    return f" {scrubbed(error.message) if isinstance(error, ResilientPQError) else type(error).__name__}"
