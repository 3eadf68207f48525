"""Every function that writes takes options as keywords, which are declared once."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

import resilient_pq as rpq
from resilient_pq.cli import write_verb
from resilient_pq.cli.write_arguments import _parameter, chosen_options
from resilient_pq.errors import SchemaError
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.writer import write_options
from resilient_pq.writer.option_checks import OptionHelp, shown_options
from resilient_pq.writer.option_keywords import CreateKeywords
from resilient_pq.writer.write_options import EncoderOptions

PACKAGE = Path(rpq.__file__).parent
FUNCTIONS: list[Callable[..., Any]] = [
    rpq.create, rpq.resume, rpq.append, rpq.create_or_resume, rpq.create_dataset, rpq.resume_dataset, rpq.convert,
]  # fmt: skip
FUNCTION = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
#: Types of which the modules are imported only where they are needed.
LAZY = vars(import_module("resilient_pq.encryption.encryption"))
ARGUMENT = re.compile(r"^    (\w+): ", re.MULTILINE)


def keywords_of(function: Callable[..., Any]) -> type:
    (kind,) = typing.get_args(typing.get_type_hints(function)["options_given"])
    assert isinstance(kind, type)
    return kind


@FUNCTION
def test_each_argument_is_described_once_in_the_order_of_the_signature(function: Callable[..., Any]) -> None:
    arguments = inspect.getdoc(function).split("Args:\n")[1].split("\n\n")[0]  # type: ignore[union-attr]
    assert sorted(ARGUMENT.findall(arguments)) == sorted(inspect.signature(function).parameters)


@FUNCTION
def test_keywords_are_shown_as_they_are_declared(function: Callable[..., Any]) -> None:
    shown, defaults = inspect.signature(function).parameters, EncoderOptions()
    names = typing.get_type_hints(keywords_of(function), localns=LAZY).keys()
    assert names <= shown.keys()
    for name in names:
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].default == getattr(defaults, name)
        assert shown[name].annotation == EncoderOptions.__annotations__[name]


def test_type_checkers_see_the_declared_types() -> None:
    declared = typing.get_type_hints(EncoderOptions, vars(write_options), LAZY)
    del declared["own_metadata"], declared["known_choices"]  # which users do not give
    assert typing.get_type_hints(CreateKeywords, localns=LAZY) == declared


@FUNCTION
@pytest.mark.parametrize("name", ["own_metadata", "known_choices", "row_group_byte", "options_given"])
def test_an_unknown_keyword_is_an_error_of_the_call(function: Callable[..., Any], name: str) -> None:
    given = inspect.signature(function).parameters
    required = [MemoryStore() for each in given.values() if each.default is each.empty]
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\) got an unexpected keyword argument '{name}'"):
        _called(function, *required, **{name: None})


def test_a_keyword_of_another_function_is_unknown() -> None:
    with pytest.raises(TypeError, match=r"resume\(\) got an unexpected keyword argument 'metadata'"):
        rpq.resume("x.parquet", metadata={})  # type: ignore[call-arg]


@FUNCTION
def test_every_function_checks_all_options(function: Callable[..., Any]) -> None:
    given = inspect.signature(function).parameters
    required = [MemoryStore() for each in given.values() if each.default is each.empty]
    for wrong in ({"row_group_rows": 0}, {"options": rpq.WriteOptions(page_rows=0)}, {"options": rpq.ReadOptions()}):
        with pytest.raises(SchemaError, match=r"row_group_rows is 0|page_rows is 0|takes WriteOptions"):
            _called(function, *required, **wrong)


def test_no_function_repeats_an_option() -> None:
    """A new option is declared once, and used: functions between these hand all of them on."""
    names = {option.name for kind in (EncoderOptions, rpq.WriteOptions) for option in fields(kind)}
    names -= {
        "options",
        "metadata",
        "statistics",
        "sorting_columns",
        "permissions",
        "checkpoint_log",
        "parity",
        "encryption",
        "row_group_bytes",
    }  # which others have, too
    repeated = [
        f"{path.relative_to(PACKAGE)}:{node.name}({argument.arg})"
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.parts and path.name != "parquet_writer.py"  # which has the words of pyarrow
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if argument.arg in names and default is not None
    ]
    assert repeated == []


def test_the_command_line_hands_on_what_is_declared_for_it() -> None:
    shown = {**shown_options(EncoderOptions), **shown_options(rpq.WriteOptions)}
    arguments = {help.flag.removeprefix("--") if help.flag else name: name for name, help in shown.items()}
    chosen = chosen_options({argument: f"value of {name}" for argument, name in arguments.items()})
    write = chosen.pop("options")
    for name in shown:
        assert (chosen[name] if name in chosen else getattr(write, name)) == f"value of {name}"
    assert arguments.keys() <= inspect.signature(write_verb.write).parameters.keys()


@pytest.mark.parametrize(("given", "expected"), [([], True), (["--no-statistics"], False), (["--statistics"], True)])
def test_the_command_line_can_turn_off_what_is_on(given: list[str], expected: bool) -> None:
    seen, app = [], typer.Typer()

    def show(statistics: bool) -> None:
        seen.append(statistics)

    parameter = _parameter("statistics", OptionHelp("", "Write bounds."))
    show.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    show.__annotations__ = {"statistics": parameter.annotation}
    app.command()(show)
    app(given, standalone_mode=False)
    assert seen == [expected]


def _called(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> None:
    found = function(*arguments, **keywords)
    if inspect.iscoroutine(found):
        asyncio.run(found)
