"""Clients of remote stores, shared by all stores that are made of the same options in one event loop."""

# A client has connections and credentials, which take tens of milliseconds to make: so it stays when the last store
# that uses it is closed, and is closed when its event loop ends. Of those that no store uses, a loop keeps a few.

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from resilient_pq.errors import StoreError

_MOST_IDLE: Final = 8  # Clients without a store that an event loop keeps
_CLOSING_SECONDS: Final = 2.0  # Seconds that closing may take when the interpreter ends


class SharedClient(Protocol):
    """What stores share."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def abandon(self) -> None:
        """Let go of the connections of an event loop that is closed, or that is another process's."""


Client = TypeVar("Client", bound=SharedClient)


class _Same:
    """A value that cannot be hashed, as part of a key: equal to itself alone."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


class ClientKey:
    """What clients differ by, compared by value; it has secrets, and shows none."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: object) -> None:
        self._parts = tuple(_frozen(part) for part in parts)
        self._hash = hash(self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientKey) and other._parts == self._parts

    def __hash__(self) -> int:
        return self._hash


def _frozen(value: object) -> Hashable:
    """A value that is hashable and equal where the given ones are; True is not 1."""
    if isinstance(value, Mapping):
        return "mapping", frozenset((_frozen(name), _frozen(each)) for name, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        items = [_frozen(each) for each in value]
        return type(value), frozenset(items) if isinstance(value, set | frozenset) else tuple(items)
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return type(value), value


#: Clients that are used for a while in place of those that are shared, by who borrowed these.
_apart: ContextVar[dict[object, SharedClient] | None] = ContextVar("resilient_pq_clients_apart", default=None)


@asynccontextmanager
async def new_connections() -> AsyncIterator[None]:
    """Within the block, stores use clients and connections that were not used before, and are closed at its end."""
    made: dict[object, SharedClient] = {}
    token = _apart.set(made)
    try:
        yield
    finally:
        _apart.reset(token)
        await asyncio.gather(*(client.close() for client in made.values()))


class _Loan:
    """A client, and how many stores use it."""

    __slots__ = ("client", "users")

    def __init__(self, client: Any) -> None:
        self.client = client
        self.users = 0


class Borrowed(Generic[Client]):
    """The client that a store uses, borrowed when it is first needed, in the event loop of the store from then on."""

    def __init__(self, key: Callable[[], ClientKey], make: Callable[[], Client]) -> None:
        self._key = key
        self._make = make
        self._clients: _ClientsOfLoop | None = None
        self._loan: _Loan | None = None
        self._closed = False

    @property
    def client(self) -> Client:
        """What is shared; a StoreError where it was given back, and in another event loop."""
        if self._closed:
            raise StoreError("the store is closed")
        if (apart := _apart.get()) is not None:
            if self not in apart:
                apart[self] = self._make()
            return cast("Client", apart[self])
        if self._clients is None or self._loan is None:
            self._clients = _loops.of_running()
            self._loan = self._clients.lend(self._key(), self._make)
        elif self._clients.loop is not asyncio.get_running_loop():
            raise StoreError("the store belongs to another event loop; make one in each")
        client: Client = self._loan.client
        return client

    def give_back(self) -> None:
        """Use it no more; a second call does nothing."""
        self._closed = True
        loan, self._loan = self._loan, None
        if loan is not None and self._clients is not None:
            self._clients.take_back(loan)


class _ClientsOfLoop:
    """The clients of one event loop, only ever touched by it while it runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.lent: dict[ClientKey, _Loan] = {}  # those that were borrowed last come last
        self._closing: set[asyncio.Task[None]] = set()  # tasks need a reference
        # A loop that ends closes its asynchronous generators: so this one begins, and ends with the loop.
        self._guard = self._until_the_loop_ends()
        with suppress(StopIteration):
            self._guard.asend(None).send(None)

    async def _until_the_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            _loops.forget(self.loop)
            await asyncio.sleep(0)  # other generators that end with the loop begin to do so
            if last := [task for task in _last_work if task.get_loop() is self.loop]:
                await asyncio.wait(last)
            await self.close()

    def lend(self, key: ClientKey, make: Callable[[], Any]) -> _Loan:
        loan = self.lent.pop(key, None) or _Loan(make())
        self.lent[key] = loan
        loan.users += 1
        return loan

    def take_back(self, loan: _Loan) -> None:
        """Close those that nobody has used for longest, but for a few."""
        loan.users -= 1
        if self.loop is not asyncio.get_running_loop():
            return
        idle = [key for key, each in self.lent.items() if not each.users]
        for key in idle[: max(0, len(idle) - _MOST_IDLE)]:
            closing = asyncio.get_running_loop().create_task(self.lent.pop(key).client.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        lent, self.lent = self.lent, {}
        await asyncio.gather(*(one.client.close() for one in lent.values()), *self._closing, return_exceptions=True)

    def abandon(self) -> None:
        for one in self.lent.values():
            one.client.abandon()
        self.lent.clear()


_last_work: set[asyncio.Task[Any]] = set()  # Tasks that need the clients of their loop before it ends


@contextmanager
def clients_needed() -> Iterator[None]:
    """Have the clients stay open for what the current task does at the end of its event loop."""
    task = asyncio.current_task()
    assert task is not None
    _last_work.add(task)
    try:
        yield
    finally:
        _last_work.discard(task)


class _Loops:
    """The clients of all event loops of a process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.found: dict[asyncio.AbstractEventLoop, _ClientsOfLoop] = {}
        self.inherited: object = None  # of the process that this one was forked from

    def of_running(self) -> _ClientsOfLoop:
        """Those of the running loop; those of loops that were closed meanwhile are let go of."""
        loop = asyncio.get_running_loop()
        with self.lock:
            found = self.found.get(loop)
            if found is not None:
                return found
            ended = [self.found.pop(each) for each in list(self.found) if each.is_closed()]
            found = self.found[loop] = _ClientsOfLoop(loop)
        for each in ended:
            each.abandon()
        return found

    def forget(self, loop: asyncio.AbstractEventLoop) -> None:
        """A loop is about to end."""
        with self.lock:
            self.found.pop(loop, None)


_loops = _Loops()


def _begin_anew() -> None:
    """Begin without clients in a forked process: their connections and loops are those of the parent process."""
    global _loops
    before, _loops = _loops, _Loops()
    for clients in before.found.values():
        clients.abandon()
    _loops.inherited = before  # what ends a loop's objects would reach into the parent's selectors


def _close_all() -> None:
    """Close the clients of the loops that were not ended when the interpreter ends."""
    with _loops.lock:
        found = dict(_loops.found)
        _loops.found.clear()
    for loop, clients in found.items():
        with suppress(Exception):  # there is nobody left to tell, and the system closes what is left
            if loop.is_closed():
                clients.abandon()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(clients.close(), loop).result(_CLOSING_SECONDS)
            else:
                loop.run_until_complete(clients.close())


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def let_go(sessions: Iterable[Any]) -> None:
    """Mark sessions of aiohttp as closed whose event loop cannot close their connections any more."""
    for session in sessions:
        connector = session.connector
        session.detach()
        if connector is not None:
            connector._closed = True  # it would go on to use the loop when it is collected
