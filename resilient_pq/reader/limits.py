"""How much may go on at one time, for one file or for many that are read together."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Self

from resilient_pq.io import ObjectTail
from resilient_pq.reader.options import ReadOptions


class Tails:
    """What opening files has brought, kept as far as there is room for it: what lies in it costs no request."""

    def __init__(self, most_bytes: int) -> None:
        """Keep at most so many bytes, of all files together; of one file that is alone, in any case."""
        self._left = most_bytes
        self._first = True

    def kept(self, tail: ObjectTail) -> ObjectTail:
        """The tail, without its bytes where there is no more room for them."""
        if len(tail.data) > self._left and not self._first:
            return ObjectTail(tail.info, tail.info.size, b"")
        self._left -= len(tail.data)
        self._first = False
        return tail


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What all reads have a share in, whichever file they are of.

    Attributes:
        requests: Requests under way.
        threads: Threads at work.
        max_threads: How many those are.
        tails: What is kept of what opening brought.
    """

    requests: asyncio.Semaphore
    threads: asyncio.Semaphore
    max_threads: int
    tails: Tails

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """The limits that options set."""
        threads = options.max_threads or os.cpu_count() or 1
        requests = asyncio.Semaphore(options.max_requests)
        return cls(requests, asyncio.Semaphore(threads), threads, Tails(options.memory_budget))
