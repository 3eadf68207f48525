"""What the value of an option may be. Pure."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from resilient_pq.errors import OptionError
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.group_shape import MOST_INLINE, ParityShare

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Raises where the value of the option of that name is none that it can have.
Check = Callable[[str, Any], None]
T = TypeVar("T")

_CHECK: Final = "check"
_HELP: Final = "help"


@dataclass(frozen=True, slots=True)
class OptionHelp:
    """How the command line shows an option: the name of its value, a text, and its flag where that has another name."""

    metavar: str
    text: str
    flag: str | None = None


def option(default: T, check: Check | None = None, help: OptionHelp | None = None) -> T:
    """A field of a dataclass of options: its default, its check, which None passes, and its command-line help."""
    return field(default=default, metadata={_CHECK: check, _HELP: help})


def check_options(options: DataclassInstance) -> None:
    """Refuse values that an option cannot have."""
    for name, check, may_be_none in _checks(type(options)):
        value = getattr(options, name)
        if not (value is None and may_be_none):
            check(name, value)


@cache
def _checks(options: type[DataclassInstance]) -> list[tuple[str, Check, bool]]:
    """The checks of the options that have one, and whether None passes."""
    found = ((each.name, each.metadata.get(_CHECK), "None" in str(each.type)) for each in fields(options))
    return [(name, check, may_be_none) for name, check, may_be_none in found if check is not None]


def shown_options(options: type[DataclassInstance]) -> dict[str, OptionHelp]:
    """The options that the command line shows, by their names."""
    found = ((each.name, each.metadata.get(_HELP)) for each in fields(options))
    return {name: help for name, help in found if help is not None}


def whole_number(name: str, value: object, *, least: int = 1) -> None:
    """A count that is at least `least`."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise OptionError(f"{name} is {value!r}; it is a whole number") from None
    if count < least:
        raise OptionError(f"{name} is {count}; it must be at least {least}")


def seconds(name: str, value: object, *, or_0: bool = False) -> None:
    """A time that ends, above 0; with `or_0` one that may be 0, or without end."""
    number = value if isinstance(value, int | float) else math.nan  # which no comparison lets pass
    if not (number >= 0 if or_0 else 0 < number < math.inf):
        raise OptionError(f"{name} is {value!r}; it is a number of seconds{', not below' if or_0 else ' above'} 0")


def share(name: str, value: Any) -> None:
    """A part of a whole."""
    if not value >= 0:  # NaN is not either
        raise OptionError(f"{name} is {value}; it is a share, 0.02 for 2 %")


def parity_share(_: str, value: Any) -> None:
    """Bytes of parity inside a file for each byte: at most half, as parity lies in the groups behind it."""
    if ParityShare.parse(value).share > MOST_INLINE:
        raise OptionError(
            f"parity is {value!r}; inside a file it is at most 50%", hint="rpq protect writes up to 100% beside a file"
        )


def encryption_keys(name: str, value: object) -> None:
    """How a file is encrypted; an error does not show what was given, as that may be a key."""
    from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach  # noqa: PLC0415 (few are encrypted)

    if not isinstance(value, Encryption | EncryptionOfEach):
        hint = "pass rpq.Encryption, or what rpq.KeyTools.encryption gives"
        raise OptionError(f"{name} is of type {type(value).__name__}; it takes rpq.Encryption", hint=hint)


def file_path(name: str, value: object) -> None:
    """A path of the local file system."""
    if not isinstance(value, str | os.PathLike):
        raise OptionError(f"{name} is {value!r}; it is the path of a file")


def of_column(setting: Mapping[str, T] | T, names: Sequence[str], otherwise: T) -> T:
    """What a setting, one value or a dict by column, says of the column that goes by these names."""
    if not isinstance(setting, Mapping):
        return setting
    return next((setting[name] for name in names if name in setting), otherwise)


def check_key_values(setting: str, key_values: Mapping[Any, Any]) -> None:
    """Refuse key-value metadata that is no text, or that only the writer itself writes."""
    for key, value in key_values.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OptionError(f"{setting} {key!r} is not text")
        if key.startswith("rpq.") or key == "ARROW:schema":
            raise OptionError(f"the {setting} key {key!r} is the writer's own")


def one_of(*values: str) -> Check:
    """One of these texts."""
    return partial(_one_of, values)


def _one_of(values: tuple[str, ...], name: str, value: object) -> None:
    if value not in values:
        raise OptionError(f"{name} is {value!r}; it is {' or '.join(map(repr, values))}")
