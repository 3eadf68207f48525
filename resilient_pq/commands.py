"""Commands that people are told to run next: as they are typed, they do what is said of them."""

from __future__ import annotations

import shlex

#: What is in here has its name for one process only, or is given once: a command could not find it again.
_PASSING = ("/dev/", "/proc/")


def command(verb: str, *operands: str) -> tuple[str, ...]:
    """The arguments that call a verb of `rpq`.

    Args:
        verb: The verb, with its group.
        operands: Paths and URLs; what could be taken for an option is written as the path that it is.
    """
    return ("rpq", *verb.split(), *(f"./{each}" if each.startswith("-") else each for each in operands))


def in_shell(verb: str, *operands: str) -> str:
    """The same as a line for a shell."""
    return shlex.join(command(verb, *operands))


def lasts(name: str) -> bool:
    """Whether a path or a URL still leads to the same bytes when another command is given it."""
    return not name.startswith(_PASSING)
