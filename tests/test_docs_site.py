"""The documentation site: it is complete, fits a phone, can be read and searched, and loads nothing from other hosts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import resilient_pq as rpq

ROOT = Path(__file__).resolve().parent.parent


def test_every_public_name_is_in_the_reference() -> None:
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    lines = sorted(line for line in pages.splitlines() if line.startswith("::: "))
    assert lines == sorted(f"::: resilient_pq.{name}" for name in rpq.__all__ if name != "__version__")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, but for the reference, which takes most of the time and is built by .ci/run."""
    pytest.importorskip("mkdocs")
    settings = (ROOT / "mkdocs.yml").read_text().replace("docs_dir: docs", f"docs_dir: {ROOT / 'docs'}")
    settings = settings.replace("hooks: [", f"hooks: [{ROOT}/").replace("strict: true", "strict: false")
    before, _, after = settings.partition("  - mkdocstrings:")
    tmp_path = tmp_path_factory.mktemp("documentation")
    config = tmp_path / "mkdocs.yml"
    config.write_text(before + after[after.index("\nmarkdown_extensions:") :])
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(config), "-d", str(tmp_path / "site")]
    subprocess.run(command, check=True, timeout=100)
    return tmp_path / "site"


async def test_pages_fit_a_phone_and_ask_no_other_host(browser_page: Any, site: Path) -> None:
    for name in ("index", "guides/recover-a-file", "errors/parquet-magic-bytes-not-found", "cli"):
        await browser_page.open(site / f"{name}.html", width=390)
        assert await browser_page.evaluate("document.documentElement.scrollWidth") == 390, name
    assert browser_page.logged == []
    assert [url for url in browser_page.requests if not url.startswith(("file:", "data:", "about:", "blob:"))] == []


async def test_the_search_finds_an_error_message_without_a_server(browser_page: Any, site: Path) -> None:
    await browser_page.open(site / "index.html")
    await browser_page.evaluate("document.querySelector('.md-search__input').focus()")
    await browser_page.call("Input.insertText", text="corrupt snappy")
    await browser_page.press("End")
    found = await browser_page.evaluate(
        "new Promise((done) => { const look = () => { const link = document.querySelector('.md-search-result__link');"
        " if (link) done(link.href); else setTimeout(look, 20); }; look(); })"
    )
    assert found.partition("?")[0] == (site / "errors" / "corrupt-snappy-compressed-data.html").as_uri()


#: The contrast of each text against what is behind it, as WCAG 2 counts it.
CONTRAST = """
(() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const over = (front, back) => {
    const alpha = front[3] ?? 1;
    return [0, 1, 2].map((i) => front[i] * alpha + back[i] * (1 - alpha));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    if (!element) return [255, 255, 255];
    return over(channels(getComputedStyle(element).backgroundColor), ground(element.parentElement));
  };
  const ratio = (selector) => {
    const element = document.querySelector(selector), back = ground(element);
    const [low, high] = [light(over(channels(getComputedStyle(element).color), back)), light(back)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const selectors = ['h1', 'article p', 'article li a', 'p code', '.md-tabs__link', '.highlight .k', '.highlight .s2',
    '.highlight .c1', '.highlight .mi', '.highlight .go', '.highlight .o', '.md-nav__link', 'td'];
  return Object.fromEntries(selectors.map((selector) => [selector, ratio(selector)]));
})()
"""


@pytest.mark.parametrize("dark", [False, True])
async def test_text_can_be_read(browser_page: Any, site: Path, dark: bool) -> None:
    for _ in range(2):  # what an earlier page chose is stored
        await browser_page.open(site / "index.html", dark=dark)
        await browser_page.evaluate("localStorage.clear()")
    assert await browser_page.evaluate("document.body.dataset.mdColorScheme") == ("slate" if dark else "default")
    contrasts = await browser_page.evaluate(CONTRAST)
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}
