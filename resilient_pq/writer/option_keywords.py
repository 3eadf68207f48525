"""The keyword arguments of functions that write: declared in `EncoderOptions`, shown in signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from resilient_pq.writer.write_options import EncoderOptions, WriteOptions

if TYPE_CHECKING:
    from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound="EncodingKeywords")

#: An argument in a docstring, and what is said of it.
_ARGUMENT = re.compile(r"^    (\*{0,2}\w+): .*(?:\n {8}.*)*\n?", re.MULTILINE)
#: The argument of a function that stands for the options.
_OPTIONS = "**options_given"


class EncodingKeywords(TypedDict, total=False):
    """The keyword arguments that all functions take that write files: types for type checkers, see `EncoderOptions`."""

    compression: str | Mapping[str, str | None] | None
    compression_level: int | Mapping[str, int | None] | None
    row_group_rows: int | None
    row_group_bytes: int
    checkpoint_every: int | None
    checkpoint_overhead: float
    parity: float | str | None
    options: WriteOptions | None


class StreamKeywords(EncodingKeywords, total=False):
    """Those of functions whose rows come over time."""

    encryption: Encryption | EncryptionOfEach | None
    max_unstored_seconds: float | None


class PageKeywords(EncodingKeywords, total=False):
    """Those of functions that leave the pages to the caller, too."""

    encodings: str | Mapping[str, str]
    page_bytes: int


class PartitionKeywords(PageKeywords, total=False):
    """Those of functions that write many files at once."""

    metadata: Mapping[str, str] | None


class ResumeKeywords(StreamKeywords, PageKeywords, total=False):
    """Those of functions that go on with a file."""

    on_error: Literal["keep", "abort"]
    fencing: Literal["lease", "none"]


class CreateKeywords(ResumeKeywords, PartitionKeywords, total=False):
    """Those of functions that begin a file."""


def takes_options(keywords: type) -> Callable[[F], F]:
    """Show each option that a `TypedDict` names in the signature and in the docstring of a function.

    What the docstring of the function says of an option itself stays.
    """

    def show(function: F) -> F:
        names = keywords.__optional_keys__  # type: ignore[attr-defined]
        declared = [option for option in fields(EncoderOptions) if option.name in names]
        own = [each for each in inspect.signature(function).parameters.values() if each.kind is not each.VAR_KEYWORD]
        before = [each.name for each in own].index("storage_options")
        own[before:before] = [
            Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
            for option in declared
        ]
        function.__signature__ = inspect.signature(function).replace(parameters=own)  # type: ignore[attr-defined]
        if function.__doc__ is not None:
            text = inspect.cleandoc(function.__doc__) + "\n"
            described = {found[1] for found in _ARGUMENT.finditer(text)}
            added = "".join(_texts()[option.name] for option in declared if option.name not in described)
            function.__doc__ = _ARGUMENT.sub(lambda found: added if found[1] == _OPTIONS else found[0], text)
        return function

    return show


@cache
def _texts() -> dict[str, str]:
    """What is said of each option; nothing where Python runs without docstrings."""
    text = inspect.cleandoc(EncoderOptions.__doc__ or "") + "\n"
    return {found[1]: found[0] for found in _ARGUMENT.finditer(text)}


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def known_options(function: Callable[..., Any], given: K) -> K:
    """The keywords that a function was given, where its signature has all of them."""
    for name in given.keys() - _parameters(function):
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")
    return given
