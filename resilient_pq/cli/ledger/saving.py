"""Where the page of a ledger goes: a file of its own, and never one of those that it tells of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from resilient_pq.cli.ledger.html_page import ledger_page
from resilient_pq.io.os_errors import explained
from resilient_pq.recovery.report import Report

Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write the file as a map, and what was lost, as a page of HTML."),
]


def check_html(path: str | None, others: Iterable[str]) -> None:
    """Refuse a path of the page that is one of the `others`, the inputs and outputs, or in no folder."""
    if path is None:
        return
    if any(_same(path, other) for other in others):
        raise typer.BadParameter(f"{path} is one of the files to be recovered or written", param_hint="--html")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise typer.BadParameter(f"there is no folder for {path}", param_hint="--html")


async def save_html(path: str, report: Report, *, made: datetime | None = None) -> bool:
    """Write the page of a recovery's ledger; False where there is no ledger."""
    ledger = None if report.kept is None else report.kept.ledger
    if ledger is None:
        return False
    page = ledger_page(ledger, report, made=made)
    with explained("cannot write the page", path):
        await asyncio.to_thread(Path(path).write_text, page, encoding="utf-8", newline="\n")
    return True


def _same(one: str, other: str) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.abspath(one) == os.path.abspath(other.removeprefix("file://"))
