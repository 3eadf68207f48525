"""The files of a run, listed page by page, so that a bucket of millions is never in memory. An async shell.

A folder means its ``*.parquet`` files, and the ``*.parquet.partial`` of local writers that died; a pattern means the
names that match it. Names that begin with ``.`` or ``_`` are hidden from both.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias, TypeGuard

from resilient_pq.bulk.file_result import FileError
from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, SUFFIX, is_data_file, may_match_below
from resilient_pq.bulk.scope import Place, Scope, is_bucket, names_pattern, shown_place
from resilient_pq.errors import SchemaError, StoreError
from resilient_pq.io import GrowingStore, ListedObject, LocalStore, ReadStore, Stores
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.io.location import scrubbed, shown, without_query
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass

#: Files listed around one that may have its schema, at most.
_MOST_NEAR = 8
#: Objects of a list that are requested at one time.
_ASKED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A listed file, or a folder that could not be listed."""

    scope: Scope
    name: str
    place: Place
    size: int | None = None
    version: str | None = None
    near: tuple[Place, ...] = ()  # Data files of its own folder, then of the nearest parent
    error: FileError | None = None

    @property
    def url(self) -> str:
        """Its name for people."""
        return shown_place(self.place)

    @property
    def address(self) -> str:
        """Its name that no other file has; not to be shown."""
        return self.place[0].address_of(self.place[1])


def scopes_of(urls: Location | Sequence[Location], stores: Stores) -> list[Scope]:
    """The scopes of a folder, a prefix, a pattern or a file, or of a list of these."""
    scope = scope_of(urls, stores)
    return [_scope_in_list(each, stores) for each in each_of_list(urls)] if scope is None else [scope]


def scope_of(source: object, stores: Stores) -> Scope | None:
    """The folder, pattern or file that one source names; None for a list."""
    if isinstance(source, str | os.PathLike):
        return Scope.named(source, stores)
    return Scope.below(source[0], str(source[1])) if _is_place(source) else None


def each_of_list(sources: object) -> Sequence[object]:
    """The sources of a list, which is not empty."""
    if not isinstance(sources, Sequence) or isinstance(sources, bytes | bytearray):
        hint = "it is a folder, a pattern such as data/**/*.parquet, or a list of files"
        raise SchemaError(f"urls is {scrubbed(repr(sources))}", hint=hint)
    if not sources:
        raise SchemaError("urls is an empty list: there is nothing to open")
    return sources


def place_in_list(source: object, stores: Stores) -> Place:
    """One file of a list."""
    if isinstance(source, str | os.PathLike):
        return stores.resolve(source)
    if _is_place(source):
        return source[0], str(source[1])
    hint = "it is a URL, a path, or a pair of a store and a key in it"
    raise SchemaError(f"{scrubbed(repr(source))} in urls names no file", hint=hint)


def _is_place(source: object) -> TypeGuard[tuple[ReadStore, object]]:
    return isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], ReadStore)


def _scope_in_list(source: object, stores: Stores) -> Scope:
    # A URL that does not look like a folder is taken for a file: asking costs a request for each
    if isinstance(source, str | os.PathLike) and names_many(source):
        return Scope.named(source, stores)
    return Scope.of_file(*place_in_list(source, stores))


def names_many(url: str | os.PathLike[str]) -> bool:
    """Whether a URL ends with a slash, is a local folder, a bucket or a pattern; no store is asked."""
    text = os.fspath(url)
    scheme, found, _ = text.partition("://")
    if not text or scheme.lower() in ("http", "https"):
        return False
    path = None if found else os.path.expanduser(text)
    if text.endswith("/") or is_bucket(text) or (path is not None and os.path.isdir(path)):
        return True
    return names_pattern(text)


async def is_folder(url: str | os.PathLike[str], stores: Stores) -> bool:
    """Whether there is any object below a URL."""
    scope = Scope.named(url, stores)
    async with aclosing(scope.pages()) as pages:
        async for _ in pages:
            return True
    return False


@dataclass(frozen=True, slots=True)
class Wishes:
    """Whether versions of the files of a list are needed, at a request each, and the files listed around them."""

    versions: bool = False
    near: bool = False


_NAMES_ONLY = Wishes()


async def find(scopes: Sequence[Scope], wishes: Wishes = _NAMES_ONLY) -> AsyncGenerator[Sequence[ListedFile], None]:
    """List every file once, a page at a time."""
    once = Dedupe(scopes)
    named: list[Scope] = []
    for number, scope in enumerate(scopes):
        if scope.is_one_file:
            assert scope.may_be_file is not None
            if not await once.belongs((scope.store, scope.may_be_file), number):
                continue
            named.append(scope)
            if len(named) == _ASKED_AT_ONCE:
                yield await _files(named, wishes)
                named = []
            continue
        async with aclosing(_below(scope, wishes)) as pages:
            async for page in pages:
                left = [each for each in page if each.error or await once.belongs(each.place, number)]
                if left:
                    yield left
    if named:
        yield await _files(named, wishes)


async def _files(scopes: Sequence[Scope], wishes: Wishes) -> list[ListedFile]:
    """Files of a list; its neighbours in the list count as near."""
    found = await all_or_none(_file(scope, wishes) for scope in scopes)
    if not wishes.near:
        return found
    places = [each.place for each in found]
    beside = _MOST_NEAR // 2
    return [
        replace(each, near=(*places[max(0, at - beside) : at], *places[at + 1 : at + 1 + beside]))
        for at, each in enumerate(found)
    ]


async def _file(scope: Scope, wishes: Wishes) -> ListedFile:
    """One file by its name; whether it exists is seen when it is read."""
    key = scope.may_be_file
    assert key is not None
    name = os.path.basename(without_query(shown(key)).rstrip("/"))
    if not wishes.versions:
        return ListedFile(scope, name, (scope.store, key))
    try:
        info = await scope.store.head(key)
    except StoreError:
        return ListedFile(scope, name, (scope.store, key))
    return ListedFile(scope, name, (scope.store, key), info.size, _version(info.size, info.etag))


async def _below(scope: Scope, wishes: Wishes) -> AsyncGenerator[Sequence[ListedFile], None]:
    """The data files of a folder, or those that match its pattern."""
    before: list[str] = []
    any_listed = any_found = False
    async with aclosing(scope.pages()) as pages:
        async for page in pages:
            any_listed = True
            around = [*before, *(each.name for each in page if wishes.near and is_data_file(each.name))]
            before = around[-_MOST_NEAR:]
            if found := await _files_of_page(scope, page, around):
                any_found = True
                yield found
    if any_found:
        return
    if not any_listed and scope.may_be_file is not None and not scope.is_empty_folder:
        yield [await _file(scope, wishes)]
        return
    raise scope.nothing_found(any_listed=any_listed)


async def _files_of_page(scope: Scope, page: Sequence[ListedObject], around: Sequence[str]) -> list[ListedFile]:
    """The data files of a page, without those that are still being written."""
    found = [await _listed_file(scope, each, around) for each in page if _is_wanted(each, scope)]
    return [each for each in found if each is not None]


async def _listed_file(scope: Scope, listed: ListedObject, around: Sequence[str]) -> ListedFile | None:
    """A data file; None for one that is still being written."""
    store, key = scope.place(listed.name)
    if listed.error is not None:
        return ListedFile(scope, listed.name, (store, key), error=FileError.of(listed.error))
    partial = scope.pattern is None and listed.name.endswith(PARTIAL_SUFFIX)
    if partial and isinstance(store, GrowingStore) and await store.has_writer(key):
        return None
    near = tuple(scope.place(name) for name in nearest(listed.name, around))
    return ListedFile(scope, listed.name, (store, key), listed.size, _version(listed.size, listed.etag), near)


def _is_wanted(listed: ListedObject, scope: Scope) -> bool:
    name, pattern = listed.name, scope.pattern
    if listed.error is not None:
        return is_data_file(f"{name}x{SUFFIX}") if pattern is None else may_match_below(pattern, name)
    return scope.counts(name)


def _version(size: int | None, etag: str | None) -> str | None:
    return None if etag is None else f"{size} {etag}"


def nearest(name: str, around: Sequence[str]) -> list[str]:
    """The names around one, of sorted ones: in its own folder first, then in the nearest parent, then by place."""
    at = bisect_left(around, name)
    candidates = range(max(0, at - _MOST_NEAR), min(len(around), at + _MOST_NEAR + 1))
    folders = name.split("/")[:-1]

    def distance(position: int) -> tuple[int, int]:
        theirs = around[position].split("/")[:-1]
        shared = 0
        for mine, other in zip(folders, theirs, strict=False):
            if mine != other:
                break
            shared += 1
        return len(folders) - shared + len(theirs) - shared, abs(position - at)

    order = sorted((each for each in candidates if around[each] != name), key=distance)
    return [around[position] for position in order[:_MOST_NEAR]]


#: Where an object is, however it is spelled: its store, None for the files of this machine, and its name in there.
_Identity: TypeAlias = tuple[ReadStore | None, str]


class Dedupe:
    """Decides which of several scopes a file belongs to: the one of this file alone, or else the first that has it."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._real_folder = ("", os.path.realpath(os.curdir))  # the last that was asked for, and where it leads
        self._alone: dict[_Identity, int] = {}
        self._below: list[tuple[int, Scope, _Identity]] = []
        self._needed = len(scopes) > 1
        for number, scope in enumerate(scopes if self._needed else ()):
            if scope.is_one_file:
                self._alone.setdefault(self._identity((scope.store, scope.may_be_file or "")), number)
            else:
                store, name = self._identity(scope.place("_"))
                self._below.append((number, scope, (store, name.removesuffix("_"))))

    async def belongs(self, place: Place, number: int) -> bool:
        """Whether a file of the scope with this number belongs to it."""
        if not self._needed:
            return True
        store, name = self._identity(place)
        if (alone := self._alone.get((store, name))) is not None:
            return alone == number
        for earlier, scope, (its_store, folder) in self._below:
            if earlier == number:
                return True
            if its_store is store and name.startswith(folder) and await _counts(scope, name.removeprefix(folder)):
                return False
        return True

    def _identity(self, place: Place) -> _Identity:
        """The store and key; for a local file its path without links of folders."""
        store, key = place
        if not isinstance(store, LocalStore):
            return store, key
        folder, name = os.path.split(store.url_of(key))
        if folder != self._real_folder[0]:
            self._real_folder = (folder, os.path.realpath(folder))
        return None, os.path.join(self._real_folder[1], name)


async def _counts(scope: Scope, name: str) -> bool:
    """Whether a scope has found, or will find, this object of its folder."""
    if not scope.counts(name):
        return False
    store, key = scope.place(name)
    if scope.pattern is None and name.endswith(PARTIAL_SUFFIX) and isinstance(store, GrowingStore):
        return not await store.has_writer(key)
    return True
