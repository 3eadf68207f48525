"""The documentation site: it is complete, fits a phone, and loads nothing from other hosts."""

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


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The pages, but for the reference, which takes most of the time and is built by .ci/run."""
    pytest.importorskip("mkdocs")
    settings = (ROOT / "mkdocs.yml").read_text().replace("docs_dir: docs", f"docs_dir: {ROOT / 'docs'}")
    settings = settings.replace("hooks: [", f"hooks: [{ROOT}/").replace("strict: true", "strict: false")
    before, _, after = settings.partition("  - mkdocstrings:")
    config = tmp_path / "mkdocs.yml"
    config.write_text(before + after[after.index("\nmarkdown_extensions:") :])
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(config), "-d", str(tmp_path / "site")]
    subprocess.run(command, check=True, timeout=100)
    return tmp_path / "site"


async def test_pages_fit_a_phone_and_ask_no_other_host(browser_page: Any, site: Path) -> None:
    for name in ("index", "guides/recover-a-file", "errors/parquet-magic-bytes-not-found", "cli"):
        await browser_page.open(site / f"{name}.html", width=390)
        assert await browser_page.evaluate("document.documentElement.scrollWidth") == 390, name
    assert [url for url in browser_page.requests if not url.startswith(("file:", "data:", "about:", "blob:"))] == []
