"""The scope of a folder, a prefix or a pattern: a folder to list, and the names that count. An async shell."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TypeAlias

from resilient_pq.bulk.name_pattern import PARTIAL_SUFFIX, is_data_file, is_pattern, matcher, split_pattern
from resilient_pq.errors import NotFoundError, StoreError, Where
from resilient_pq.io import ListedObject, ReadStore, Stores, names_of
from resilient_pq.io.local_store import LocalStore
from resilient_pq.io.location import Address, is_web, shown, without_query
from resilient_pq.lazy_dataclass import dataclass

#: An object in its store.
Place: TypeAlias = tuple[ReadStore, str]
#: Stands for anything in a folder: of the folder itself no key is asked, since a bucket has none.
_ANYTHING = "_"


@dataclass(frozen=True, slots=True)
class Scope:
    """A folder to list, with a pattern of names; or a file, if `is_one_file`, or if an object is at `may_be_file`."""

    store: ReadStore
    folder: str
    pattern: str | None = None
    may_be_file: str | None = None
    is_one_file: bool = False

    @classmethod
    def named(cls, url: str | os.PathLike[str], stores: Stores) -> Scope:
        """The scope of a URL or a path."""
        text = os.fspath(url)
        if not text or text.partition("://")[0].lower() in ("http", "https"):
            # An empty path is refused: everything below the current folder is ".". On the web nothing can be listed,
            # and a question mark is none of a pattern.
            store, key = stores.resolve(url)
            return cls(store, key, None, key)
        folder, pattern = split_pattern(text) if names_pattern(text) else (text, None)
        slash = "" if not folder or folder.endswith("/") else "/"
        inside = f"{folder}{slash}{_ANYTHING}"
        store, key = stores.resolve(inside if isinstance(url, str) else Path(inside))
        is_object = slash and pattern is None and not is_bucket(text)
        may_be_file = Address(key[: -len(f"/{_ANYTHING}")]) if is_object else None
        return cls(store, Address(key.removesuffix(_ANYTHING)), pattern, may_be_file)

    @classmethod
    def below(cls, store: ReadStore, key: str) -> Scope:
        """The scope of a key, or a pattern of keys, in a store."""
        if is_pattern(key):
            folder, pattern = split_pattern(key)
            return cls(store, folder, pattern)
        is_file = bool(key) and not key.endswith("/")
        return cls(store, f"{key.rstrip('/')}/" if key else "", None, key if is_file else None)

    @classmethod
    def of_file(cls, store: ReadStore, key: str) -> Scope:
        """The scope of one object."""
        return cls(store, "", None, key, is_one_file=True)

    @property
    def url(self) -> str:
        """The folder, for people."""
        return self.store.url_of(self.folder)

    @property
    def address(self) -> str:
        """The unambiguous address of the folder."""
        return self.store.address_of(self.folder)

    def counts(self, name: str) -> bool:
        """Whether an object of a name relative to the folder belongs to the scope."""
        if self.pattern is not None:
            return matcher(self.pattern).match(name) is not None
        return is_data_file(name) or is_data_file(name.removesuffix(PARTIAL_SUFFIX))

    def place(self, name: str) -> Place:
        """The object of a name relative to the folder."""
        return self.store, self.store.beside(self.folder + _ANYTHING, name)

    async def pages(self) -> AsyncGenerator[Sequence[ListedObject], None]:
        """Everything below the folder, sorted within a page; nothing where it is no folder, or cannot be listed."""
        if self.pattern is None and not self.store.capabilities.list_names:
            return
        try:
            async with aclosing(self.store.list_objects(self.folder)) as pages:
                async for page in pages:
                    yield sorted(page, key=lambda found: found.name)
        except StoreError as error:
            if self.pattern is not None or not isinstance(error.__cause__, NotADirectoryError):
                raise

    async def names(self) -> list[str]:
        """The names of all that counts, sorted."""
        matches = None if self.pattern is None else matcher(self.pattern).match
        async with aclosing(self.pages()) as pages:
            found = [name async for page in pages for name in names_of(page) if matches is None or matches(name)]
        return sorted(found)

    @property
    def is_empty_folder(self) -> bool:
        """Whether it is a local folder, where nothing was listed: it is none of the files that it may be."""
        return isinstance(self.store, LocalStore) and os.path.isdir(self.folder)

    def nothing_found(self, *, any_listed: bool) -> NotFoundError:
        """What to raise where nothing counts; `any_listed` says whether anything else is there."""
        where = Where(key=self.url)
        if self.pattern is not None:
            return NotFoundError("no file matches the pattern", where=Where(key=self.url + self.pattern))
        if any_listed:
            hint = f"for files of other names there are patterns, such as {self.url.rstrip('/')}/**/*.pq"
            return NotFoundError("there are no *.parquet files in the folder", where=where, hint=hint)
        if self.is_empty_folder:
            return NotFoundError("the folder is empty", where=where)
        if is_bucket(self.url.rstrip("/")):
            return NotFoundError("the bucket is empty", where=where)
        return NotFoundError("there is no such folder", where=where)


def shown_place(place: Place) -> str:
    """The name of an object for people."""
    store, key = place
    return store.url_of(key)


def names_pattern(url: str) -> bool:
    """Whether a URL is a pattern: it has ``*``, ``?`` or ``[`` in it, and no local file has this name."""
    name = without_query(shown(url)) if is_web(url) else url  # on the web a question mark begins a query
    return is_pattern(name) and ("://" in url or not os.path.lexists(os.path.expanduser(url)))


def is_bucket(url: str) -> bool:
    """Whether a URL names a bucket alone, which is no object."""
    scheme, found, rest = url.partition("://")
    return bool(found) and scheme.lower() in ("s3", "s3a") and "/" not in rest
