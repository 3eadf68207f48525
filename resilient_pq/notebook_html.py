"""What notebooks show of our objects, as HTML: names and values may hold anything, and are escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from resilient_pq.units import printable


def preformatted(text: str) -> str:
    """Text of several lines as it is."""
    return f"<pre>{_escaped(text)}</pre>"


def rows_table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A table under a line of text."""
    lines = [_cells("th", header), *(_cells("td", row) for row in rows)]
    return f"<div>{_escaped(caption)}</div><table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def page_frame(page: str) -> str:
    """A page of HTML within another, where its styles and its script reach nothing else."""
    style = "width:100%;height:36em;border:0"
    return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{_quoted(page)}"></iframe>'


def damage_strip(size: int, places: Iterable[tuple[int, int]]) -> str:
    """The bytes of a file from left to right, with damaged places in red."""
    part = 100 / max(size, 1)
    bars = "".join(
        f'<rect x="{start * part:.3f}" width="{max((end - start) * part, 0.4):.3f}" height="4" fill="#c62828">'
        f"<title>bytes {start:,} to {end:,}</title></rect>"
        for start, end in places
    )
    words = f'role="img" aria-label="Damaged bytes, of {size:,}" style="width:100%;height:2em"'
    whole = '<rect width="100" height="4" fill="#43a047"/>'
    return f'<svg viewBox="0 0 100 4" preserveAspectRatio="none" {words}>{whole}{bars}</svg>'


def _cells(tag: str, texts: Sequence[str]) -> str:
    return "".join(f"<{tag}>{_escaped(text).replace(chr(10), '<br>')}</{tag}>" for text in texts)


def _escaped(text: str) -> str:
    return "\n".join(_quoted(printable(line)) for line in text.split("\n"))


def _quoted(text: str) -> str:
    import html  # noqa: PLC0415 (for notebooks alone)

    return html.escape(text)
