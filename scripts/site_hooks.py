"""Changes pages for `mkdocs build`: ``no-run`` on a fence is a mark for tests/test_docs.py."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    return re.sub(r"^(\s*```\w+) no-run.*$", r"\1", markdown, flags=re.MULTILINE)
