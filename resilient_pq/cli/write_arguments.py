"""The options of writing functions as options of the command line: `EncoderOptions` and `WriteOptions` declare them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from inspect import Parameter
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from resilient_pq.cli.shared_options import size_option
from resilient_pq.encryption import encryption
from resilient_pq.units import KiB, MiB
from resilient_pq.writer import write_options
from resilient_pq.writer.option_checks import OptionHelp, shown_options
from resilient_pq.writer.write_options import EncoderOptions, WriteOptions

F = TypeVar("F", bound=Callable[..., Any])

#: Values that columns can have of their own, by how the help calls them.
_BY_COLUMN: Final = {"CODEC": str, "LEVEL": int}
#: How each option is shown, by its name.
_SHOWN: Final = {**shown_options(EncoderOptions), **shown_options(WriteOptions)}


def takes_write_options(*names: str, before: str) -> Callable[[F], F]:
    """Add options for writing, all or those named, to a function of the command line before one of its parameters."""

    def add(function: F) -> F:
        types = get_type_hints(function, include_extras=True)
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
        parameters = [each.replace(annotation=types[each.name]) for each in own]
        at = [each.name for each in own].index(before)
        parameters[at:at] = [_parameter(name, help) for name, help in _SHOWN.items() if not names or name in names]
        function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        function.__annotations__ = {each.name: each.annotation for each in parameters}
        return function

    return add


def chosen_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a writing function for what was given on the command line."""
    values = {name: given[_argument(name, help)] for name, help in _SHOWN.items() if _argument(name, help) in given}
    for name in ("checkpoint_every", "max_unstored_seconds"):
        if name in values:
            values[name] = values[name] or None
    common = {name: values.pop(name) for name in shown_options(EncoderOptions) if name in values}
    return {**common, "options": WriteOptions(**values)}


def _argument(name: str, help: OptionHelp) -> str:
    return name if help.flag is None else help.flag.removeprefix("--")


def _parameter(name: str, help: OptionHelp) -> Parameter:
    options = EncoderOptions if name in shown_options(EncoderOptions) else WriteOptions
    kind = get_type_hints(options, vars(write_options), vars(encryption))[name]
    default: Any = next(each.default for each in fields(options) if each.name == name)
    flag = help.flag or f"--{name.replace('_', '-')}"
    if help.metavar == "SIZE":
        shown: Any = size_option(flag, help.text)
        default = None if default is None else _size(default)
    elif help.metavar in _BY_COLUMN:
        kind, parser = str | None, partial(_by_column, _BY_COLUMN[help.metavar])
        shown = typer.Option(flag, metavar=help.metavar, parser=parser, help=help.text)
    elif kind is bool:
        shown = typer.Option(f"{flag}/--no-{flag.removeprefix('--')}" if default else flag, help=help.text)
    else:
        # None is written as 0 where there is a default.
        at_least_0 = default is not None and kind in (int | None, float | None)
        shown = typer.Option(flag, min=0 if at_least_0 else None, metavar=help.metavar, help=help.text)
        text = default is None and help.metavar in ("FILE", "SHARE")
        kind = str | None if text else type(default) if default is not None else kind
    return Parameter(
        _argument(name, help), Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=Annotated[kind, shown]
    )


def _by_column(of: type[str] | type[int], text: Any) -> Any:
    """One value, or a dict for ``COLUMN=VALUE,COLUMN=VALUE``."""
    try:
        if "=" not in str(text):
            return of(text)
        named = (part.rpartition("=") for part in text.split(","))
        return {name.strip(): of(value) for name, _, value in named}
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number, nor COLUMN=NUMBER,...") from None


def _size(num_bytes: int) -> str:
    return f"{num_bytes // MiB}MiB" if num_bytes % MiB == 0 else f"{num_bytes // KiB}KiB"
