"""What rows are partitioned by, and the values in the name of a partition's folder. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

#: What stands for null (Hive's ``hive.exec.default.partition.name``).
NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def partition_values(folder: str) -> dict[str, str | None]:
    """The text of each value in the name of a folder, ``day=2026-08-01/country=FR``; None for null."""
    pairs = (segment.partition("=") for segment in re.split(r"[/\\]", folder))
    return {name: None if text == NULL else unquote(text) for name, equals, text in pairs if name and equals}
