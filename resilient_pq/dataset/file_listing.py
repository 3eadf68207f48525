"""Which files a caller means: a list, a pattern, a folder, or the summary in one. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.bulk.scope import Place, Scope
from resilient_pq.errors import SchemaError
from resilient_pq.io import ReadStore, Stores
from resilient_pq.io.location import scrubbed
from resilient_pq.reader.data_file import METADATA_NAME

#: A file as a caller names it: a URL, a path, or a pair of a store and a key in it.
Source: TypeAlias = str | os.PathLike[str] | tuple[ReadStore, str]


async def find_files(sources: Source | Sequence[Source], stores: Stores) -> list[Place]:
    """The objects that a caller means, in the order in which their rows are wanted."""
    # In a thread: a file system of fsspec is imported then, and may connect.
    named = await asyncio.to_thread(_named, sources, stores)
    return await _of_scope(named) if isinstance(named, Scope) else named


def _named(sources: Any, stores: Stores) -> Scope | list[Place]:
    """What one source names, or the files of a list."""
    if (scope := scope_of(sources, stores)) is not None:
        return scope
    files = sources
    if not isinstance(files, Sequence) or isinstance(files, bytes | bytearray):
        raise SchemaError(
            f"urls is {sources!r}",
            hint="it is a folder, a pattern such as data/*.parquet, or a list of files",
        )
    if not files:
        raise SchemaError("urls is an empty list: there is nothing to open")
    return [_file(one, stores) for one in files]


def scope_of(sources: Source | Sequence[Source], stores: Stores) -> Scope | None:
    """The folder, pattern or file that one source names; None for a list of files."""
    if isinstance(sources, tuple) and len(sources) == 2 and isinstance(sources[0], ReadStore):
        return Scope.below(sources[0], str(sources[1]))
    return Scope.named(sources, stores) if isinstance(sources, str | os.PathLike) else None


def _file(source: Any, stores: Stores) -> Place:
    """One file of a list."""
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], ReadStore):
        return source[0], str(source[1])
    if isinstance(source, str | os.PathLike):
        return stores.resolve(source)
    raise SchemaError(
        f"{scrubbed(repr(source))} in urls names no file",
        hint="it is a URL, a path, or a pair of a store and a key in it",
    )


async def _of_scope(scope: Scope) -> list[Place]:
    """The files that match a pattern, by name; the summary of a folder where there is one, else its data files."""
    names = await scope.names()
    if scope.pattern is not None:
        if not names:
            error = scope.nothing_found(any_listed=False)
            error.hint = "a file whose own name has *, ? or [ in it stands in a list: open_many([name])"
            raise error
        return [scope.place(name) for name in names]
    if not names and scope.may_be_file is not None and not scope.is_empty_folder:
        return [(scope.store, scope.may_be_file)]
    if METADATA_NAME in names:
        return [scope.place(METADATA_NAME)]
    found = [scope.place(name) for name in names if is_data_file(name)]
    if not found:
        raise scope.nothing_found(any_listed=bool(names))
    return found
