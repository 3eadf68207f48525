"""An error, and what it names as causes and contexts, on the way to another process.

Python pickles an error without what caused it. tblib, which Dask uses, pickles that too, but fails of an error that is
in a group which is its own context, and of a cause that cannot be pickled: then all that arrives is a text.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Class, arguments and attributes of an error that is restored without being made anew.
Parts = tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Link:
    """An error of a chain, without those that it names.

    Attributes:
        content: What it is made of; of another library's, as that pickles it.
        cause: Which of the chain is its `__cause__`.
        context: Which one is its `__context__`.
        suppresses: Its `__suppress_context__`.
    """

    content: Parts | bytes
    cause: int | None
    context: int | None
    suppresses: bool

    def restored(self) -> BaseException:
        """The error."""
        if isinstance(self.content, bytes):
            return _remade(self.content)
        kind, args, attributes = self.content
        base = kind.__base__  # of several bases that which has the memory of the error, as MemoryError has not
        assert base is not None
        error: BaseException = base.__new__(kind, *args)
        error.args = args
        error.__dict__.update(attributes)
        return error


def links_of(error: BaseException, parts: Callable[[BaseException], Parts | None]) -> list[Link]:
    """An error and all that it names, itself first; what leads back to one of them is left out.

    Args:
        error: The error.
        parts: What an error of ours is made of; None of another library's.
    """
    chain: list[BaseException] = [error]
    known = {id(error)}

    def number_of(named: BaseException | None) -> int | None:
        if named is None or id(named) in known:
            return None
        known.add(id(named))
        chain.append(named)
        return len(chain) - 1

    links: list[Link] = []
    while len(links) < len(chain):
        one = chain[len(links)]
        cause = number_of(one.__cause__)
        context = cause if one.__context__ is one.__cause__ else number_of(one.__context__)
        links.append(Link(parts(one) or _pickled(one), cause, context, one.__suppress_context__))
    return links


def restored(links: Sequence[Link]) -> Any:
    """The first error of a chain, which names the others as it did."""
    chain = [link.restored() for link in links]
    for error, link in zip(chain, links, strict=True):
        error.__cause__ = None if link.cause is None else chain[link.cause]
        error.__context__ = None if link.context is None else chain[link.context]
        error.__suppress_context__ = link.suppresses
    return chain[0]


def _pickled(error: BaseException) -> bytes:
    """An error of another library; in its words where it cannot be pickled, or is a group, which may hold the chain."""
    try:
        if isinstance(error, BaseExceptionGroup):
            raise pickle.PicklingError
        content = pickle.dumps(error.__reduce__())
        _remade(content)
    except Exception:  # whatever an error of others raises when it is pickled, or made anew
        kind = type(error)
        words = Exception(f"{kind.__module__}.{kind.__qualname__}: {error}")
        words.__dict__.update(__notes__=list(getattr(error, "__notes__", ())))
        content = pickle.dumps(words.__reduce__())
    return content


def _remade(content: bytes) -> BaseException:
    make, args, *attributes = pickle.loads(content)
    error: BaseException = make(*args)
    if attributes and attributes[0]:
        error.__setstate__(attributes[0])
    return error
