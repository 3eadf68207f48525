"""What kind of value each storage option takes, by its place: ``config_kwargs.read_timeout``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from resilient_pq.errors import UnsupportedError

Kind = tuple[Callable[[Any], bool], str]  # Says whether a value is of a kind, and what that is called


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


TEXT: Final[Kind] = (lambda value: isinstance(value, str), "text")
NUMBER: Final[Kind] = (_is_number, "a number from 0 on")
WHOLE: Final[Kind] = (lambda value: isinstance(value, int) and _is_number(value), "a whole number from 0 on")
OPTIONS: Final[Kind] = (lambda value: isinstance(value, Mapping), "a dict of options")
ENDPOINT: Final[Kind] = (
    lambda value: isinstance(value, str) and "@" not in value.rpartition("://")[2].partition("/")[0],
    "a URL without a user and a password",
)


def check_kinds(options: Mapping[str, Any], kinds: Mapping[str, Kind]) -> None:
    """Refuse options of another kind; those that are not there, or None, are left alone."""
    for place, (is_kind, words) in kinds.items():
        found = option_at(options, place)
        if found is not None and not is_kind(found):
            hint = f'as JSON: {place}={{"name": "value"}}' if words == OPTIONS[1] and "." not in place else None
            raise UnsupportedError(f"storage_options: {place!r} is not {words}", hint=hint)


def option_at(options: Mapping[str, Any], place: str) -> Any:
    """The value at a place; None where none is."""
    found: Any = options
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def close_name(name: str, known: Collection[str]) -> str | None:
    """The known name that may be meant by another one; None where none is like it."""
    import difflib  # noqa: PLC0415 (for a message alone)

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.7)), None)


def check_names(options: Mapping[str, Any], place: str, known: Collection[str]) -> None:
    """Refuse unknown names in an option that is a dict."""
    for name in options.get(place) or ():
        if name not in known:
            close = close_name(str(name), known)
            hint = f"{place} has {', '.join(sorted(known))}" if close is None else f"did you mean {close!r}?"
            raise UnsupportedError(f"storage_options: there is no {name!r} in {place!r}", hint=hint)
