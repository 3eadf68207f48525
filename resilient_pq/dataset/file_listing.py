"""Which files a caller means: a list, a pattern, a folder, or the summary in one. An async shell."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TypeAlias

from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.bulk.run_listing import each_of_list, place_in_list, scope_of
from resilient_pq.bulk.scope import Place, Scope
from resilient_pq.io import ReadStore, Stores
from resilient_pq.reader.data_file import METADATA_NAME

#: A file as a caller names it: a URL, a path, or a pair of a store and a key in it.
Source: TypeAlias = str | os.PathLike[str] | tuple[ReadStore, str]


async def find_files(sources: Source | Sequence[Source], stores: Stores) -> list[Place]:
    """The objects that a caller means, in the order in which their rows are wanted."""
    # In a thread: a file system of fsspec is imported then, and may connect.
    named = await asyncio.to_thread(_named, sources, stores)
    return await _of_scope(named) if isinstance(named, Scope) else named


def _named(sources: Source | Sequence[Source], stores: Stores) -> Scope | list[Place]:
    """What one source names, or the files of a list."""
    scope = scope_of(sources, stores)
    return [place_in_list(each, stores) for each in each_of_list(sources)] if scope is None else scope


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
