"""Which files a caller means: a list, a pattern, a folder, or the summary in one. An async shell."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from resilient_pq.dataset.pattern import is_pattern, matcher, split_pattern
from resilient_pq.dataset.summary import is_data_file
from resilient_pq.errors import NotFoundError, SchemaError, StoreError, Where
from resilient_pq.io import ReadStore, Stores
from resilient_pq.reader.data_file import METADATA_NAME

#: A file as a caller names it: a URL, a path, or a pair of a store and a key in it.
Source: TypeAlias = str | os.PathLike[str] | tuple[ReadStore, str]
#: An object in its store.
Place: TypeAlias = tuple[ReadStore, str]


async def find_files(sources: Source | Sequence[Source], stores: Stores) -> list[Place]:
    """The objects that a caller means, in the order in which their rows are wanted.

    Args:
        sources: As of `open_many`.
        stores: What URLs lead into.

    Raises:
        SchemaError: They are none, or nothing that names files.
        NotFoundError: There is no file in the folder, or none that matches the pattern.
        StoreError: The store could not say.
    """
    if isinstance(sources, tuple) and len(sources) == 2 and isinstance(sources[0], ReadStore):
        store, key = sources
        return await _below(store, str(key))
    if isinstance(sources, str | os.PathLike):
        return await _named(sources, stores)
    files: Sequence[Any] = sources
    if not isinstance(files, Sequence) or isinstance(files, bytes | bytearray):
        raise SchemaError(
            f"urls is {sources!r}", hint="it is a folder, a pattern such as data/*.parquet, or a list of files"
        )
    if not files:
        raise SchemaError("urls is an empty list: there is nothing to open")
    return [_file(one, stores) for one in files]


def _file(source: Any, stores: Stores) -> Place:
    """One file of a list."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], ReadStore):
        return source[0], str(source[1])
    if isinstance(source, str | os.PathLike):
        return stores.resolve(source)
    raise SchemaError(
        f"{source!r} in urls names no file", hint="it is a URL, a path, or a pair of a store and a key in it"
    )


async def _named(url: str | os.PathLike[str], stores: Stores) -> list[Place]:
    text = os.fspath(url)
    if not text:
        return [stores.resolve(url)]  # which refuses it: everything below the current folder is "."
    scheme = text.partition("://")[0].lower()
    if scheme in ("http", "https"):  # a question mark is none of a pattern there, and nothing can be listed
        return [stores.resolve(url)]
    folder, _ = split_pattern(text) if is_pattern(text) else (text, "")
    trailing = "" if not folder or folder.endswith("/") else "/"
    # Of the folder itself no key is asked: a bucket has none.
    inside = f"{folder}{trailing}{METADATA_NAME}"
    store, key = stores.resolve(inside if isinstance(url, str) else Path(inside))
    if is_pattern(text):
        return await _matching(store, key, text)
    names = await _listed(store, key.removesuffix(METADATA_NAME))
    if not names and trailing:
        return [stores.resolve(url)]
    return _of_folder(store, key, names)


async def _below(store: ReadStore, key: str) -> list[Place]:
    """The same of a key in a store of the caller's."""
    if is_pattern(key):
        return await _matching(store, split_pattern(key)[0] + METADATA_NAME, key)
    folder = f"{key.rstrip('/')}/" if key else ""
    names = await _listed(store, folder)
    if not names and key and not key.endswith("/"):
        return [(store, key)]
    return _of_folder(store, folder + METADATA_NAME, names)


async def _listed(store: ReadStore, folder: str) -> list[str]:
    """What is below a folder; nothing where it is none, or the store cannot tell: then it is taken for a file."""
    if not store.capabilities.list_names:
        return []
    try:
        return await store.list_names(folder)
    except StoreError as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return []
        raise


async def _matching(store: ReadStore, key: str, pattern: str) -> list[Place]:
    """The files that match, by name; `key` is one of something in the folder that they are all below."""
    matches = matcher(split_pattern(pattern)[1]).match
    names = await store.list_names(key.removesuffix(METADATA_NAME))
    found = [(store, store.beside(key, name)) for name in names if matches(name)]
    if not found:
        raise NotFoundError(
            "no file matches the pattern",
            where=Where(key=pattern),
            hint="a file whose own name has *, ? or [ in it stands in a list: open_many([name])",
        )
    return found


def _of_folder(store: ReadStore, key: str, names: Sequence[str]) -> list[Place]:
    """The summary of a folder where there is one, else its data files by name."""
    if METADATA_NAME in names:
        return [(store, key)]
    found = [(store, store.beside(key, name)) for name in names if is_data_file(name)]
    if not found:
        folder = store.url_of(key).removesuffix(METADATA_NAME)
        raise NotFoundError("there are no *.parquet files below the folder", where=Where(key=folder))
    return found
