"""What a measured process is told, and by whom it is done."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Work = Literal["write", "read", "read-view", "read-2", "read-2-view", "open-wide"]


class SkippedError(Exception):
    """A contestant cannot do this here; the text says why."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way of doing some of the works.

    Attributes:
        name: As tables have it.
        module: Of this package.
        works: What it can do.
        peer: Whether it is one that ours is compared to; others are there to be known.
    """

    name: str
    module: str
    works: tuple[Work, ...]
    peer: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement.

    Attributes:
        contestant: Its name.
        work: What is done.
        path: The file that is written or read.
        codec: "none", "snappy" or "zstd".
        level: Of the codec.
        threads: How many may work; None is each library's default.
        columns: What is read; None for all.
        row_group_rows: Rows of a row group that is written; None is each library's default.
    """

    contestant: str
    work: Work
    path: Path
    codec: str = "none"
    level: int | None = None
    threads: int | None = None
    columns: tuple[str, ...] | None = None
    row_group_rows: int | None = None
