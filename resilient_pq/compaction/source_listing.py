"""Which files are compacted: found, told apart by their names and versions, and removed. An async shell."""

from __future__ import annotations

import os
from collections.abc import Sequence

from resilient_pq.bulk.name_pattern import is_data_file
from resilient_pq.bulk.scope import Place, Scope, shown_place
from resilient_pq.compaction.compaction_plan import SourceVersion
from resilient_pq.dataset.file_listing import Source, find_files, scope_of
from resilient_pq.errors import NotFoundError, RecoveryError, Where
from resilient_pq.io import LocalStore, Stores, WriteStore
from resilient_pq.io.location import fingerprint
from resilient_pq.parity.sidecar import sidecar_key
from resilient_pq.reader.data_file import METADATA_NAME


class SourceListing:
    """The files that a caller means, listed again and again."""

    def __init__(
        self, src: Source | Sequence[Source], stores: Stores, output: Scope, *, remove: bool, in_table: bool
    ) -> None:
        self._src, self._stores, self._output = src, stores, output
        self._remove, self._in_table = remove, in_table
        self._scope = scope_of(src, stores)
        self._list_id = ""  # known when it was listed

    @property
    def id(self) -> str:
        """The hash of what the caller means."""
        if self._scope is None:
            return self._list_id
        return fingerprint(_address((self._scope.store, self._scope.folder)) + (self._scope.pattern or ""))

    async def listed(self) -> dict[str, tuple[Place, str]]:
        """The sources by the hash of their names, each with its name below the folder."""
        scope = self._scope
        if scope is None:
            return await self._of_list()
        names = await scope.names()
        if self._remove and METADATA_NAME in names:
            raise RecoveryError(
                "the folder has a summary, which names files that would be removed",
                where=Where(key=shown_place(scope.place(METADATA_NAME))),
                hint="remove the summary first, and write one of the outputs: rpq metadata",
            )
        wanted = [(scope.place(name), name) for name in names if scope.pattern is not None or is_data_file(name)]
        return {identity_of(place): (place, name) for place, name in wanted}

    async def _of_list(self) -> dict[str, tuple[Place, str]]:
        places = await find_files(self._src, self._stores)
        inside = [
            place for place in places if _address(place).startswith(_address((self._output.store, self._output.folder)))
        ]
        if inside and not self._in_table:
            raise RecoveryError(
                "the outputs would lie in the folder of a source, whose readers would see rows twice",
                where=Where(key=shown_place(inside[0])),
                hint="name a folder outside of it",
            )
        found = {identity_of(place): (place, place[1]) for place in places}
        self._list_id = fingerprint("\n".join(sorted(found)))
        return found

    def nothing_found(self) -> NotFoundError:
        """What to raise where there is no file."""
        return (
            NotFoundError("no file was given") if self._scope is None else self._scope.nothing_found(any_listed=False)
        )


async def has_changed(place: Place, known: SourceVersion) -> bool:
    """Whether a source is another version by now."""
    try:
        return (await place[0].head(place[1])).etag != known.etag
    except NotFoundError:
        return False  # another process has removed it meanwhile


async def remove(place: Place, known: SourceVersion) -> bool:
    """Remove a source, and parity beside it, unless it was replaced meanwhile."""
    store, key = place
    assert isinstance(store, WriteStore)  # it could list, and gave its bytes
    if await has_changed(place, known):
        return False
    await store.delete(key)
    await store.delete(sidecar_key(store, key))
    return True


def identity_of(place: Place) -> str:
    """The hash of a name that no other object has."""
    return fingerprint(_address(place))


def _address(place: Place) -> str:
    """A name that no other object has, whatever links lead to it."""
    store, key = place
    address = store.address_of(key)
    if not isinstance(store, LocalStore):
        return address
    return os.path.join(os.path.realpath(address), "") if key.endswith("/") else os.path.realpath(address)
