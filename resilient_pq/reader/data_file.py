"""Which file a column chunk lies in: the one whose footer names it, or a data file beside a summary. Pure.

A summary, ``_metadata`` in the folder of a data set, has the row groups of many files in its footer; each chunk
names its file in `file_path`, relative to the summary's folder (parquet.thrift, ColumnChunk). What it names comes
from outside, so nothing but a name below that folder is taken.
"""

from __future__ import annotations

import re

from resilient_pq.errors import FormatError
from resilient_pq.io.location import without_query
from resilient_pq.shell_commands import command, in_shell, lasts, shell_line

#: What the summary of a folder is called, and the one that has its schema only.
METADATA_NAME = "_metadata"
COMMON_METADATA_NAME = "_common_metadata"

# A drive of Windows is one letter. A colon further back is part of a name, as in ``at=12:30:00``.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


def data_file(file_path: str | None) -> str | None:
    """The checked data file of a `file_path`, relative to the summary's folder; None for the file itself."""
    if file_path is None:
        return None
    segments = file_path.split("/")
    reason = None
    if not file_path:
        reason = "is empty"
    elif file_path.startswith("/"):
        reason = "is an absolute path"
    elif _SCHEME.match(file_path):
        reason = "is a URL or an absolute path"
    elif "\\" in file_path or "\0" in file_path:
        reason = "has a backslash or a null character"
    elif ".." in segments:
        reason = "leads out of the folder"
    elif not set(segments).isdisjoint({"", "."}):
        reason = "is not in its plain form"
    if reason is not None:
        raise FormatError(f"the file_path of a column chunk {reason}: {file_path!r}")
    return file_path


def is_summary_name(url: str) -> bool:
    """Whether a URL has the name of a summary."""
    return without_query(url).rpartition("/")[2] in (METADATA_NAME, COMMON_METADATA_NAME)


def writing_again(url: str) -> tuple[str, ...]:
    """The command that writes a summary again."""
    return (*command("metadata", url.rpartition("/")[0] or "."), "--overwrite")


def remedy(url: str) -> str:
    """The command for a file whose footer is damaged: a summary is written again, anything else is recovered."""
    if is_summary_name(url):
        return shell_line(writing_again(url))
    return in_shell("recover", url, "RECOVERED") if lasts(url) else "save it to a file, and recover that"
