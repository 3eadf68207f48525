"""What people see in a notebook and a Python prompt: awaits and blocking calls in one kernel, HTML, short names."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pyarrow as pa
import pytest

from resilient_pq import sync as rpq

HOSTILE = "<script>alert(1)</script>"
CELLS = (
    "import resilient_pq as rpq\nfrom resilient_pq import sync",
    "async with rpq.create('day.parquet', row_group_rows=100) as writer:\n"
    "    await writer.write({'n': list(range(1000)), 's': ['<b>bold</b>'] * 1000})",
    "file = await rpq.open('day.parquet')\nfile",
    "await file.read()",
    "with sync.open('day.parquet') as whole:\n    table = whole.read(['n'])\nwhole",
    "file.schema",
    "await file.plan(['n'], filters=[('n', '<', 5)])",
    "data = bytearray(open('day.parquet', 'rb').read())\ndata[2000] ^= 255\n"
    "_ = open('bad.parquet', 'wb').write(data)\nawait rpq.check('bad.parquet')",
    "sync.recover('bad.parquet', 'good.parquet')",
    "print(table)\nprint(sync.check('bad.parquet'))",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The outputs of the cells."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in notebook.cells]


class Tags(HTMLParser):
    """The tags of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


def test_a_notebook_shows_html(shown: list[Any]) -> None:
    assert [cell for cell in shown if any(output.output_type == "error" for output in cell)] == []
    html = [cell[0].data["text/html"] for cell in shown[2:9]]
    file, table, blocking, schema, plan, checked, recovered = html
    assert "day.parquet, 1,000 rows in 10 row groups, 2 columns" in file and file == blocking
    assert "1,000 rows, 2 columns" in table and Tags(table).found.count("td") == 10
    assert "&lt;b&gt;bold" in table and "b" not in Tags(table).found
    assert "optional int64 n;" in schema and "left out by statistics" in plan
    assert Tags(checked).found.count("rect") > 1 and "damaged" in checked
    assert "iframe" in Tags(recovered).found and "The file as a map" in recovered
    printed = shown[9][0].text
    assert "n: int64\n(0)\n(1)" in printed and "check of bad.parquet: damaged\nrows: " in printed
    assert "next: rpq recover bad.parquet bad.recovered.parquet" in printed


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Any]:
    table = pa.table({HOSTILE: [HOSTILE, "\x1b[31m"], "blob": [b"\0" * 500, None]})
    with rpq.create(tmp_path / "a&b.parquet") as writer:
        writer.write(table)
    with rpq.open(tmp_path / "a&b.parquet") as file:
        yield file


def test_nothing_of_a_file_becomes_a_tag(hostile: Any, tmp_path: Path) -> None:
    shown = [hostile, hostile.read(), hostile.schema, hostile.plan(), rpq.check(tmp_path / "a&b.parquet")]
    for each in shown:
        html = each._repr_html_()
        assert set(Tags(html).found) <= {"pre", "div", "table", "tr", "th", "td", "br"}
        assert "\x1b" not in html + repr(each) + str(each)
    assert "a&amp;b.parquet" in shown[0]._repr_html_()


def test_names_are_short(hostile: Any) -> None:
    assert repr(hostile) == f"<resilient_pq.File: {hostile.url}, 2 rows in 1 row group, 2 columns>"
    assert max(map(len, repr(hostile.read()).splitlines())) < 125
    assert "Group(" not in repr(hostile.schema) and repr(hostile.arrow_schema).startswith("<Schema>")


def test_a_report_in_a_line_and_in_words(tmp_path: Path) -> None:
    with rpq.create(tmp_path / "x.parquet", row_group_rows=10) as writer:
        writer.write({"n": list(range(100))})
    torn = tmp_path / "torn.parquet"
    torn.write_bytes((tmp_path / "x.parquet").read_bytes()[:3000])
    report = rpq.check(torn)
    assert repr(report).startswith(f"<resilient_pq.Report: check of {torn}: damaged, ")
    assert str(report).splitlines()[0] == f"check of {torn}: damaged"
    assert str(report).splitlines()[-1].startswith("next: rpq recover ")
