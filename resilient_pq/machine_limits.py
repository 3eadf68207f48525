"""What this process may use of the machine: memory and processors, by its control groups too, as in containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from resilient_pq.units import MiB

#: Where control groups are mounted, and the file that names those of this process.
_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")
#: Files of a control group with its limits of memory.
_MEMORY_FILES: Final = ("memory.max", "memory.high", "memory.limit_in_bytes")
#: Taken for the memory of a machine that does not say.
_UNKNOWN: Final = 4096 * MiB
#: The least that a share of the memory comes to.
_LEAST_SHARE: Final = 2 * MiB


@cache
def memory_limit() -> int | None:
    """Bytes that this process may use: of the machine, of its control groups, or of its address space."""
    found = [limit for path in _limit_files("memory", *_MEMORY_FILES) if (limit := _limit_in(path)) is not None]
    with suppress(AttributeError, OSError, ValueError):  # a system that does not say
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ImportError, OSError):  # Windows
        import resource  # noqa: PLC0415

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        found += [soft] if soft != resource.RLIM_INFINITY else []
    return min(found, default=None)


@cache
def processors() -> int:
    """Processors that this process may keep busy: those it may run on, and those its control groups give it time of."""
    try:
        found = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # no Linux
        found = os.cpu_count() or 1
    quotas = [_quota_in(path) for path in _limit_files("cpu", "cpu.max", "cpu.cfs_quota_us")]
    return max(1, min([found, *(quota for quota in quotas if quota is not None)]))


def _quota_in(path: Path) -> int | None:
    """Whole processors, rounded up, that a file of a control group gives; None where it sets no limit."""
    try:
        words = path.read_text().split()
        if path.name != "cpu.max":
            words.append(path.with_name("cpu.cfs_period_us").read_text())
        quota, period = int(words[0]), int(words[1])
    except (OSError, ValueError, IndexError):  # "max", or no such file
        return None
    return -(-quota // period) if quota > 0 and period > 0 else None


def _limit_files(controller: str, *names: str) -> Iterator[Path]:
    """The files with the limits of the control groups of this process, and of all groups around them."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except (OSError, ValueError):  # no Linux
        return
    for number, controllers, group in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if number == "0" and not controllers:
            root, wanted = _GROUPS, names[:-1]
        elif controller in controllers.split(","):
            root, wanted = _GROUPS / controller, names[-1:]
        else:
            continue
        # In a container the path may be that of the host: then the root is the container's own group.
        inner = root / group.strip("/")
        for folder in (inner, *inner.parents[: len(inner.parts) - len(root.parts)]):
            yield from (folder / name for name in wanted)


def _limit_in(path: Path) -> int | None:
    """The limit that a file of a control group has; None where there is none."""
    try:
        text = path.read_text().strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


def share_of_memory(share: int, most: int) -> int:
    """One in `share` of the bytes that this process may use, at most so many."""
    limit = memory_limit()
    return min(most, max((_UNKNOWN if limit is None else limit) // share, _LEAST_SHARE))
