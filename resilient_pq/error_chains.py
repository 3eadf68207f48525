"""Errors with their causes and contexts, as they are pickled for another process.

Python pickles an error without its cause. tblib, which Dask uses, pickles causes, but fails for an error in a group
that is its own context, and for a cause that cannot be pickled: then only a text arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from resilient_pq.lazy_dataclass import dataclass

#: Class, arguments and attributes of an error that is restored without a call of its constructor.
Parts = tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Link:
    """An error of a chain, its content pickled if its class is another library's; cause and context are positions."""

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
    """An error, then its causes and contexts, without cycles; `parts` gives None for errors of other libraries."""
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
    """The first error of a chain, with its causes and contexts."""
    chain = [link.restored() for link in links]
    for error, link in zip(chain, links, strict=True):
        error.__cause__ = None if link.cause is None else chain[link.cause]
        error.__context__ = None if link.context is None else chain[link.context]
        error.__suppress_context__ = link.suppresses
    return chain[0]


def _pickled(error: BaseException) -> bytes:
    """An error of another library; as text if it cannot be pickled, or is a group, which may hold the chain."""
    import pickle  # noqa: PLC0415 (few errors are)

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
    import pickle  # noqa: PLC0415 (as above)

    make, args, *attributes = pickle.loads(content)
    error: BaseException = make(*args)
    if attributes and attributes[0]:
        error.__setstate__(attributes[0])
    return error
