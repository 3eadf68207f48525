"""The keys that somebody gives to read an encrypted file, whichever way they are given."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from resilient_pq.errors import KeyMissingError, OptionError, ResilientPQError, Where, located
from resilient_pq.format.crypto.modules import checked_key
from resilient_pq.io import ReadStore

log = logging.getLogger(__name__)
#: What a mapping calls the key of the footer.
FOOTER: Final = "footer"
#: Bytes of key metadata, which the file names, that an error shows.
_SHOWN_METADATA: Final = 80
#: Keys of one file that are asked for at one time.
_AT_ONCE: Final = 8

#: The store and the key of the encrypted file.
FilePlace: TypeAlias = tuple[ReadStore, str]
#: Gives the key that some key metadata name; None, or a `LookupError`, where there is none.
KeyFunction: TypeAlias = Callable[[bytes], bytes | Awaitable[bytes | None] | None]


@runtime_checkable
class KeySource(Protocol):
    """Something that has the keys of many files, such as `KeyTools`."""

    @abstractmethod
    def keys_of(self, place: FilePlace | None) -> KeyFunction:
        """A function that gives the keys of the file at a place."""


#: The ways to give keys: the key of the footer alone, keys by key metadata or column, a function, or `KeyTools`.
KeysArgument: TypeAlias = bytes | Mapping[str, bytes] | Mapping[bytes, bytes] | KeyFunction | KeySource


class DecryptionKeys:
    """The keys of one encrypted file, each asked for once. Its repr shows none of them."""

    def __init__(self, ask: Callable[[bytes, str | None], Awaitable[object]]) -> None:
        self._ask = ask
        self._known: dict[tuple[bytes, str | None], bytes | None] = {}
        self._refusals: dict[tuple[bytes, str | None], BaseException] = {}
        self._turns: defaultdict[tuple[bytes, str | None], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._by_column = True
        self._portable: Mapping[bytes, bytes] = {}

    @classmethod
    def of(cls, keys: KeysArgument, place: FilePlace | None = None) -> DecryptionKeys:
        """Take the argument `keys` of a call; `place` is that of the file, which external key material lies beside."""
        if isinstance(keys, Mapping):
            return cls(_of_mapping(keys))
        if isinstance(keys, bytes | bytearray | memoryview):
            return cls(_of_mapping({FOOTER: keys}))
        function = keys.keys_of(place) if isinstance(keys, KeySource) else keys
        if not callable(function):
            hint = "pass the key of the footer, a mapping of keys, a function of key metadata, or rpq.KeyTools"
            raise OptionError(f"keys= is {type(keys).__name__}, which gives no keys", hint=hint)
        found = cls(lambda key_metadata, _: answer_of(function, key_metadata))
        found._by_column = False
        found._portable = getattr(function, "portable", found._portable)
        return found

    def __repr__(self) -> str:
        """How many keys are known."""
        return f"DecryptionKeys({sum(key is not None for key in self._known.values())} known)"

    async def key_of(self, key_metadata: bytes | None, column: str | None) -> bytes | None:
        """The key of a column, or of the footer (None), that the file names by its key metadata; None without one."""
        wanted = (key_metadata or b"", column if self._by_column else None)
        async with self._turns[wanted], self._few:
            if wanted not in self._known:
                with located(Where(column=column)):
                    self._known[wanted] = await self._asked(*wanted, column)
        return self._known[wanted]

    async def _asked(self, key_metadata: bytes, asked_column: str | None, column: str | None) -> bytes | None:
        whose = f"of {_name_of(column)} (key metadata {_shown(key_metadata)})"
        try:
            key = await self._ask(key_metadata, asked_column)
        except (LookupError, PermissionError, KeyMissingError) as refusal:
            self._refusals[key_metadata, asked_column] = refusal
            log.info("there is no key %s: %s", whose, type(refusal).__name__)
            return None
        except ResilientPQError:
            raise
        except Exception as error:
            message = f"{type(error).__name__} was raised where the key {whose} was asked for"
            raise KeyMissingError(message, hint="the error that caused this one says more") from error
        if key is None:
            return None
        try:
            return checked_key(key)
        except OptionError as error:
            raise OptionError(f"the key {whose} cannot be used: {error.message}") from None

    def portable(self, key_metadata: bytes | None) -> bytes | None:
        """What a file elsewhere says of a key of this file, which was asked for before."""
        return self._portable.get(key_metadata or b"", key_metadata)

    def missing(self, key_metadata: bytes | None, column: str | None) -> KeyMissingError:
        """The error for a key that `key_of` has not: it names the column, and what to pass."""
        name = _shown(key_metadata or b"")
        refusal = self._refusals.get((key_metadata or b"", column if self._by_column else None))
        hint = f"keys= has none for the key metadata {name}"
        if self._by_column:
            hint = f'give it in keys= (rpq: --keys FILE) as "{column or FOOTER}", or by its key metadata, {name}'
        error = KeyMissingError(f"there is no key for {_name_of(column)}", where=Where(column=column), hint=hint)
        error.__cause__ = refusal
        return error


def _name_of(column: str | None) -> str:
    return "the footer" if column is None else f"the column {column}"


def _shown(key_metadata: bytes) -> str:
    """Key metadata, which the file has, as an error shows them."""
    cut = key_metadata[:_SHOWN_METADATA]
    return repr(cut) + ("..." if len(cut) < len(key_metadata) else "")


def _of_mapping(keys: Mapping[str, bytes] | Mapping[bytes, bytes]) -> Callable[[bytes, str | None], Awaitable[object]]:
    """A function that finds keys by key metadata first, then by the column or one that it lies in."""
    named: dict[bytes, bytes] = {}
    for name, key in keys.items():
        if not isinstance(name, str | bytes):
            raise OptionError(f"names of keys are str or bytes, not {type(name).__name__}")
        try:
            named[name.encode() if isinstance(name, str) else name] = checked_key(key)
        except OptionError as error:
            # Where the value is no bytes, names and keys may be exchanged.
            whose = f"the key called {name!r}" if isinstance(name, str) and isinstance(key, bytes) else "a key"
            raise OptionError(f"{whose} in keys= cannot be used: {error.message}") from None

    async def find(key_metadata: bytes, column: str | None) -> bytes | None:
        names = [FOOTER] if column is None else column.split(".")
        paths = (".".join(names[:count]).encode() for count in range(len(names), 0, -1))
        return next((named[name] for name in (key_metadata, *paths) if name in named), None)

    return find


async def answer_of(function: Callable[..., Any], *args: object) -> Any:
    """The answer of a function that may wait: on the loop where it is a coroutine function, else in a thread."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        found = function(*args)
    else:
        found = await asyncio.to_thread(function, *args)
    return await found if inspect.isawaitable(found) else found
