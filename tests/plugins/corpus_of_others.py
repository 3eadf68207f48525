"""Where the files that others collected are, for tests that read them.

They lie beside the checkout, in ``../shared/corpus``, or where RPQ_CORPUS says. A test that finds none is skipped, or
fails where RPQ_REQUIRE_CORPUS is set, as in CI on a machine that has them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

CORPUS = Path(os.environ.get("RPQ_CORPUS") or Path(__file__).resolve().parents[3] / "shared" / "corpus")


def absent(what: object = CORPUS) -> NoReturn:
    """Skip the test, or fail it where the corpus has to be there."""
    reason = f"there is no {what}: set RPQ_CORPUS to the folder of the corpora"
    if os.environ.get("RPQ_REQUIRE_CORPUS"):
        pytest.fail(reason)
    pytest.skip(reason)


def of_corpus(name: str) -> Path:
    """A file or a folder of the corpus by its path in it."""
    path = CORPUS / name
    if not path.exists():
        absent(path)
    return path
