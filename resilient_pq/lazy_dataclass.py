"""`dataclass` for classes with slots, whose methods are made when the first of them is asked for.

Making them takes half a millisecond a class, and most classes that a program imports it never uses.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

#: Held while methods are made: a class is made complete once.
_lock = threading.RLock()


def _renew_lock() -> None:
    """Replace the lock in a process that was forked: a thread that held it is not there to let it go."""
    global _lock  # noqa: PLW0603
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class _Pending:
    """A member of a class that makes all of them, and stands there until then."""

    __slots__ = ("_complete", "_name", "_owner")

    def __init__(self, complete: Callable[[], None], owner: type, name: str) -> None:
        self._complete, self._owner, self._name = complete, owner, name

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        """What stands in its place from now on, bound as that would be."""
        self._complete()
        member = vars(self._owner)[self._name]
        bind = getattr(type(member), "__get__", None)
        return member if bind is None else bind(member, instance, owner)


def _lazily(cls: type, options: dict[str, bool]) -> type:
    """A class with the slots of a class of fields, and with members that wait."""
    members = dict(vars(cls))
    own = [
        name for name, kind in members.get("__annotations__", {}).items() if not kind.startswith(("ClassVar", "KW_"))
    ]
    taken = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    waiting = [name for name in _made_by(options) if members.get(name) is None]
    kept = members.keys() - waiting
    for name in (*own, "__dict__", "__weakref__"):
        members.pop(name, None)
    members |= {"__slots__": tuple(name for name in own if name not in taken), "__qualname__": cls.__qualname__}
    made: type = type(cls)(cls.__name__, cls.__bases__, members)

    def complete() -> None:
        with _lock:
            if isinstance(vars(made)["__dataclass_fields__"], _Pending):
                full = vars(dataclasses.dataclass(**options)(cls))
                for name in sorted(full.keys() - kept, reverse=True):  # that which is asked for is last
                    setattr(made, name, full[name])

    for name in waiting:
        setattr(made, name, _Pending(complete, made, name))
    if options.get("frozen") and "__setstate__" not in members:
        for name, member in (("__getstate__", _state), ("__setstate__", _set_state)):
            setattr(made, name, member)
    return made


def _made_by(options: dict[str, bool]) -> Iterator[str]:
    """The members that `dataclasses.dataclass` makes."""
    yield from ("__dataclass_fields__", "__dataclass_params__", "__match_args__", "__init__")
    if options.get("repr", True):
        yield "__repr__"
    if options.get("eq", True):
        yield from ("__eq__", "__hash__")
    if options.get("order"):
        yield from ("__lt__", "__le__", "__gt__", "__ge__")
    if options.get("frozen"):
        yield from ("__setattr__", "__delattr__")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 (exported)
else:

    def dataclass(*, slots: bool = False, **options: bool) -> Callable[[type], type]:
        """As `dataclasses.dataclass`, where ``from __future__ import annotations`` leaves annotations as text."""
        return (lambda cls: _lazily(cls, options)) if slots else dataclasses.dataclass(**options)
