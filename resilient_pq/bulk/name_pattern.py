"""Names of data files below a folder, and names that match a pattern as in shells. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from resilient_pq.errors import SchemaError

SUFFIX = ".parquet"
#: Of a file whose local writer has not finished it, or died.
PARTIAL_SUFFIX = ".partial"

_SPECIAL = re.compile(r"[*?\[]")


def is_data_file(name: str) -> bool:
    """Whether a name ends with ``.parquet`` and has no hidden part, as ``.a`` or ``_a``; ``_day=1/`` is not hidden."""
    *folders, last = name.split("/")
    hidden = [part for part in folders if part.startswith("_") and "=" not in part]
    hidden += [part for part in (*folders, last) if part.startswith(".")]
    return last.endswith(SUFFIX) and not last.startswith("_") and not hidden


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern."""
    return _SPECIAL.search(name) is not None


def split_pattern(name: str) -> tuple[str, str]:
    """The folder before the first part of a name that is a pattern, with its slash, and what is behind it."""
    special = _SPECIAL.search(name)
    end = len(name) if special is None else name.rfind("/", 0, special.start()) + 1
    return name[:end], name[end:]


@lru_cache
def matcher(pattern: str) -> re.Pattern[str]:
    """A regular expression that matches the whole of the names that a pattern stands for.

    ``*`` and ``?`` stand for characters within a part of a name, ``[abc]``, ``[a-z]`` and ``[!a]`` for one of some or
    of all others, and ``**`` as a whole part for any number of parts, none included. Parts that begin with a dot, or
    with an underscore and have no ``=``, are matched only by a part of the pattern that begins so.
    """
    pieces: list[str] = []
    parts = pattern.split("/")
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            # On S3 a part may be empty, as in "a//b".
            pieces.append(f"(?:{_NOT_HIDDEN}[^/]*/)*" + (f"{_NOT_HIDDEN}[^/]+" if last else ""))
            continue
        hidden = part.startswith((".", "_"))
        pieces.append(("" if hidden else _NOT_HIDDEN) + _part(part) + ("" if last else "/"))
    try:
        return re.compile("".join(pieces) + r"\Z", re.DOTALL)
    except re.error as error:
        raise SchemaError(f"{pattern!r} is no pattern: {error}") from error


def may_match_below(pattern: str, folder: str) -> bool:
    """Whether names below a folder, a name with a slash at its end, may match a pattern."""
    wanted = pattern.split("/")
    for position, part in enumerate(folder.rstrip("/").split("/")):
        if wanted[position] == "**":
            return any(each.startswith((".", "_")) for each in wanted) or is_data_file(f"{folder}x{SUFFIX}")
        if position == len(wanted) - 1 or not matcher(wanted[position]).match(part):
            return False
    return True


#: A folder such as ``_day=1`` stands for values of a column, and is not hidden.
_NOT_HIDDEN = r"(?!\.|_[^/=]*(?:/|\Z))"


def _part(part: str) -> str:
    """One part of a pattern, without slashes."""
    found: list[str] = []
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            found.append("[^/]*")
        elif char == "?":
            found.append("[^/]")
        elif char == "[" and (end := part.find("]", at + 1 + part.startswith("!", at))) > 0:
            inside = part[at:end]
            at = end + 1
            negated = inside.startswith("!")
            chosen = re.escape(inside[negated:]).replace(r"\-", "-")
            found.append(f"(?!/)[{'^' if negated else ''}{chosen}]")
        else:
            found.append(re.escape(char))
    return "".join(found)
