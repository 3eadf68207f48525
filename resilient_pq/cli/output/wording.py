"""Numbers, names and values as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2,400,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_bytes(number: int) -> str:
    """``7,512,345 bytes (7.2 MiB)``."""
    exact = counted(number, "byte")
    return exact if number < 1024 else f"{exact} ({in_units(number)})"


def in_units(number: int) -> str:
    """``7.2 MiB``, ``812 bytes``."""
    if number < 1024:
        return counted(number, "byte")
    size, unit = float(number), ""
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}"


def shortened(value: Any, *, at_most: int = 32) -> str:
    """A value in a cell of a table; ``?`` where it is not known."""
    text = "?" if value is None else str(value)
    return text if len(text) <= at_most else f"{text[: at_most - 1]}…"


def printable(text: str) -> str:
    """The text with everything escaped that could move a terminal's cursor: names in files may hold anything."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def wrapped_names(names: Sequence[str], *, at_most: int = 8) -> str:
    """Names with commas between them, not too many."""
    shown = ", ".join(names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most:,} more"


def durations(seconds: float) -> str:
    """``0.42 s``."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
