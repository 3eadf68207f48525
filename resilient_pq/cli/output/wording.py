"""Numbers, names and values as text. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from resilient_pq.units import counted, in_bytes, in_units, printable

__all__ = ["as_options", "counted", "durations", "in_bytes", "in_units", "printable", "shortened", "wrapped_names"]


def shortened(value: Any, *, at_most: int = 32) -> str:
    """A value in a cell of a table; ``?`` where it is not known."""
    text = "?" if value is None else str(value)
    return text if len(text) <= at_most else f"{text[: at_most - 1]}…"


def wrapped_names(names: Sequence[str], *, at_most: int = 8) -> str:
    """Names with commas between them, not too many."""
    shown = ", ".join(names[:at_most])
    return shown if len(names) <= at_most else f"{shown} and {len(names) - at_most:,} more"


def durations(seconds: float) -> str:
    """``0.42 s``."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def as_options(hint: str) -> str:
    """A hint whose arguments of Python, ``overwrite=True`` or ``mode="w"``, are options of the command line."""
    hint = re.sub(r" \((?:create with )?(\w+)=True\)", "", hint) if "--" in hint else hint
    hint = hint.replace("require_complete=False", "--allow-incomplete").replace(
        "anon=True", "--storage-option anon=true"
    )
    hint = re.sub(r"(`rpq \w+`) \((?:rpq\.)?\w+\)", r"\1", hint)  # the verb, and the function

    def option(found: re.Match[str]) -> str:
        value = found[2].strip('"')
        return f"--{found[1].replace('_', '-')}" + ("" if value == "True" else f" {value}")

    return re.sub(r'(?<![\w.(])([a-z]\w+)=(True|"\w+")(?![\w)])', option, hint)
