"""How much may go on at one time, for one file or for many that are read together."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Self

from resilient_pq.reader.options import ReadOptions


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What all reads have a share in, whichever file they are of.

    Attributes:
        requests: Requests under way.
        threads: Threads at work.
        max_threads: How many those are.
    """

    requests: asyncio.Semaphore
    threads: asyncio.Semaphore
    max_threads: int

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """The limits that options set."""
        threads = options.max_threads or os.cpu_count() or 1
        return cls(asyncio.Semaphore(options.fetch.max_requests), asyncio.Semaphore(threads), threads)
