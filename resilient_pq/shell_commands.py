"""Commands of `rpq` to run next, quoted for a shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

#: Names that hold for one process only, or once.
_PASSING = ("/dev/", "/proc/")


def command(verb: str, *operands: str) -> tuple[str, ...]:
    """The arguments that call a verb of `rpq`; operands that look like options are written as paths."""
    return ("rpq", *verb.split(), *(f"./{each}" if each.startswith("-") else each for each in operands))


def in_shell(verb: str, *operands: str) -> str:
    """The same as a line for a shell."""
    return shell_line(command(verb, *operands))


def shell_line(arguments: Iterable[str]) -> str:
    """Arguments as a line for a shell, with ``$'...'`` around those with control characters."""
    return " ".join(map(_quoted, arguments))


def _quoted(argument: str) -> str:
    if argument.isprintable():
        return shlex.quote(argument)
    return "$'" + "".join(map(_escaped, argument)) + "'"


def _escaped(char: str) -> str:
    if char.isprintable():
        return f"\\{char}" if char in "\\'" else char
    # What stands for a byte that is no UTF-8 becomes that byte again.
    errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", errors))


def lasts(name: str) -> bool:
    """Whether a path or a URL leads to the same bytes in another process."""
    return not name.startswith(_PASSING)
