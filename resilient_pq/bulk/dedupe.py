"""Files that several arguments name are found once, without a list of all files. An async shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX
from resilient_pq.bulk.scope import Place, Scope
from resilient_pq.io import GrowingStore, LocalStore, ReadStore

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
