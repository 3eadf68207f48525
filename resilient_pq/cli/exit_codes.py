"""The exit codes of `rpq`."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb; any other number means that `rpq` itself failed."""

    SOUND = 0
    DAMAGE = 1
    USAGE = 2
    NOTHING = 3
    STORE = 4
    INTERNAL = 70
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


def epilog(sound: str, damage: str | None, *examples: str, nothing: str | None = None) -> str:
    r"""The end of a verb's ``--help``: exit status, then examples. ``\b`` keeps its lines as they are."""
    meanings = [
        ("0", sound),
        ("1", damage),
        ("2", "wrong command line, or the request is not possible"),
        ("3", nothing),
        ("4", "a store failed, refused, or has no such object"),
        ("130", "interrupted; 143 by SIGTERM, 129 by SIGHUP"),
    ]
    status = [f"  {code:<4} {meaning}" for code, meaning in meanings if meaning is not None]
    return "\n".join(["\b", "Exit status:", *status, "", "\b", "Examples:", *(f"  {example}" for example in examples)])
