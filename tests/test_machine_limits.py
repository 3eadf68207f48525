"""What a process may use of the machine, by its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from resilient_pq import machine_limits
from resilient_pq.units import MiB

NOWHERE = 9223372036854771712  # what the first version of control groups has where there is no limit
MEMORY = 8 << 30
LIMITS = {
    "no groups": (None, {}, MEMORY),
    "a machine that does not say": (None, {}, None),
    "the second version": ("0::/a/b", {"a/b/memory.max": 5 << 20, "a/memory.max": "max"}, 5 << 20),
    "a group around it": ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": 6 << 20}, 6 << 20),
    "a softer limit": ("0::/a", {"a/memory.max": 6 << 20, "a/memory.high": 4 << 20}, 4 << 20),
    "a container's root": ("0::/of/the/host", {"memory.max": 7 << 20}, 7 << 20),
    "the first version": (
        "9:cpu:/x\n4:memory,x:/a/b", {"memory/a/b/memory.limit_in_bytes": 8 << 20, "cpu/x/memory.max": 1}, 8 << 20,
    ),
    "a group around it in the first": (
        "4:memory:/a/b", {"memory/a/b/memory.limit_in_bytes": NOWHERE, "memory/memory.limit_in_bytes": 9 << 20}, 9 << 20,
    ),
    "no limit": ("4:memory:/", {"memory/memory.limit_in_bytes": NOWHERE}, MEMORY),
    "what means nothing": ("no\n0::/a\n4:memory", {"a/memory.max": "-3", "memory.max": "\xb2"}, MEMORY),
}  # fmt: skip


@contextmanager
def limited(
    monkeypatch: pytest.MonkeyPatch, folder: Path, groups: str | None, files: dict[str, object]
) -> Iterator[None]:
    """A process in these control groups, whose files are below a folder."""
    monkeypatch.setattr(machine_limits, "_GROUPS", folder / "groups")
    monkeypatch.setattr(machine_limits, "_OWN_GROUPS", folder / "own")
    if groups is not None:
        (folder / "own").write_text(groups)
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    known = (machine_limits.memory_limit, machine_limits.processors)
    for each in known:
        each.cache_clear()
    try:
        yield
    finally:
        monkeypatch.undo()
        for each in known:
            each.cache_clear()


@pytest.mark.parametrize("case", LIMITS)
def test_the_memory_that_a_process_may_use(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, files, expected = LIMITS[case]

    def sysconf(name: str) -> int:
        if expected is None:
            raise ValueError("unrecognized configuration name")
        return {"SC_PHYS_PAGES": MEMORY // 4096, "SC_PAGE_SIZE": 4096}[name]

    monkeypatch.setattr(os, "sysconf", sysconf, raising=False)
    with limited(monkeypatch, tmp_path, groups, files):
        assert machine_limits.memory_limit() == expected
        assert machine_limits.share_of_memory(8, 2048 * MiB) == max((expected or 4096 * MiB) // 8, 2 * MiB)


QUOTAS = {
    "no groups": (None, {}, 8),
    "no limit": ("0::/a", {"a/cpu.max": "max 100000"}, 8),
    "two and a half": ("0::/a", {"a/cpu.max": "250000 100000"}, 3),
    "less than one": ("0::/a", {"a/cpu.max": "5000 100000"}, 1),
    "a group around it": ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "400000 100000"}, 4),
    "more than there are": ("0::/a", {"a/cpu.max": "1600000 100000"}, 8),
    "the first version": ("2:cpu:/a", {"cpu/a/cpu.cfs_quota_us": 200000, "cpu/a/cpu.cfs_period_us": 100000}, 2),
    "the first version without limit": ("2:cpu:/a", {"cpu/a/cpu.cfs_quota_us": -1, "cpu/a/cpu.cfs_period_us": 1}, 8),
    "what means nothing": ("0::/a", {"a/cpu.max": "many 0"}, 8),
}


@pytest.mark.parametrize("case", QUOTAS)
def test_the_processors_that_a_process_may_use(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, files, expected = QUOTAS[case]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    with limited(monkeypatch, tmp_path, groups, files):
        assert machine_limits.processors() == expected
