"""Writes docs/cli.md from what ``rpq VERB --help`` prints: ``python scripts/cli_docs.py``."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

from resilient_pq.cli.main import VERBS, run

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# The command line

`rpq` writes results to stdout, progress and hints to stderr. It never asks a question, and never changes the file it
reads, but for `rpq repair --in-place` and `rpq scrub --heal`; `rpq check --quarantine` moves files.
Every verb takes `--json` and then prints one document, described in [json.md](json.md).

Where `check`, `recover` and `inspect` are given many files (a folder, a prefix that ends with a slash, a pattern),
there is a document for each as a line and one of all as the last, and the exit status is the highest of any file. See
[many-files.md](guides/many-files.md).

| exit status | meaning |
|---|---|
| 0 | sound, or everything was recovered |
| 1 | damage was found, or something was lost |
| 2 | wrong command line, or the request is not possible |
| 3 | nothing can be recovered |
| 4 | a store failed, refused, or has no such object |
| 130, 143, 129 | interrupted, by Ctrl-C (SIGINT), SIGTERM, SIGHUP; a second one ends at once |

What is wrong whatever a store holds is 2: options, their values, names that lead nowhere. What a store or a file system
answered is 4, that there is no such object included.

Any other exit status must be taken for a failure. This page is made by `scripts/cli_docs.py`.
"""


def help_of(*verb: str) -> str:
    """What ``--help`` prints, 100 columns wide."""
    printed = io.StringIO()
    plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    with patch.dict(os.environ, plain), redirect_stdout(printed):
        status = run([*verb, "--help"])
    assert status == 0, f"rpq {' '.join(verb)} --help ends with {status}"
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


def page() -> str:
    """The whole page."""
    # A group of verbs stands before its first verb.
    verbs = dict.fromkeys(name for verb in VERBS for name in (*verb.split()[:-1], verb))
    names = ["rpq", *(f"rpq {verb}" for verb in verbs)]
    texts = [help_of(*name.split()[1:]) for name in names]
    sections = [f"\n## {name}\n\n```text\n{text}\n```\n" for name, text in zip(names, texts, strict=True)]
    return "".join([HEAD, *sections])


if __name__ == "__main__":
    PAGE.write_text(page())
