"""Units of bytes, and numbers and names as people read them. Pure."""

from __future__ import annotations

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


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


def printable(text: str) -> str:
    """The text with everything escaped that could move a terminal's cursor: names in files may hold anything."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
