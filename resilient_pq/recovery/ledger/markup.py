"""Pieces of HTML of words that may hold anything. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from resilient_pq.shell_commands import shell_line
from resilient_pq.units import printable

MAX_CHARACTERS = 300  # Characters of a name or a reason; a hostile file's may be of any length
MAX_LINES = 100  # Lines of a table; --json has all


def text(words: str) -> str:
    """Words for an element or an attribute: what is no visible character is spelled out, and long ones are cut."""
    short = words if len(words) <= MAX_CHARACTERS else f"{words[: MAX_CHARACTERS - 1]}…"
    return html.escape(printable(short))


def lines(words: str) -> str:
    """Words of several lines, whole."""
    return "\n".join(html.escape(printable(line)) for line in words.split("\n"))


def command(arguments: Sequence[str]) -> str:
    """A command as one would type it, whole: half of one does something else."""
    return html.escape(shell_line(arguments))


def table(
    header: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], *, total: int | None = None, kind: str = "stack"
) -> Iterator[str]:
    """A table of HTML cells under (name, class) headers; on a phone the cells of a "stack" are below one another."""
    names = "".join(f'<th scope="col" class="{of}">{name}</th>' for name, of in header)
    yield f'<table class="list {kind}"><thead><tr>{names}</tr></thead><tbody>'
    for row in rows:
        cells = zip(header, row, strict=True)
        told = "".join(f'<td class="{of}" data-label="{name}">{cell}</td>' for (name, of), cell in cells)
        yield f"<tr>{told}</tr>"
    yield "</tbody></table>"
    if total is not None and total > len(rows):
        yield f"<p>And {total - len(rows):,} more, which <code>--json</code> lists.</p>"
