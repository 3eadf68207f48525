"""The plans of compactions, kept in the folder of their outputs. An async shell.

A plan is written before its first output, under a number that only one writer gets. What was begun goes on by it,
whoever goes on, and sources of a plan are not taken a second time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final, Literal

from resilient_pq.compaction.compaction_plan import CompactionPlan
from resilient_pq.errors import AlreadyExistsError, FormatError, RecoveryError, Where
from resilient_pq.io import WriteStore
from resilient_pq.lazy_dataclass import dataclass

#: The folder of the plans, which readers of the data pass over.
_FOLDER: Final = "_compact"
#: Bytes of a plan that are read, at most: those of about a million sources.
_MOST_BYTES: Final = 256 * 1024 * 1024
_NOTES: Final = ("done", "replaced", "removed")
_NAME: Final = re.compile(rf"(\d{{6,9}})\.(json|{'|'.join(_NOTES)})")


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan, its number, whether all of its outputs are there, and whether a table has them for the sources."""

    number: int
    plan: CompactionPlan
    is_done: bool
    is_replaced: bool


class PlanJournal:
    """The plans of all that was compacted into one folder."""

    def __init__(self, store: WriteStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._next = 0

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever compacted into the folder, as far as it was read."""
        return self._next == 0

    async def plans(self) -> list[KeptPlan]:
        """The plans, the oldest first, without those whose sources were removed."""
        names = await self._store.list_names(self._key(""))
        found = [match for match in map(_NAME.fullmatch, names) if match is not None]
        numbers = {kind: {int(match[1]) for match in found if match[2] == kind} for kind in ("json", *_NOTES)}
        self._next = max(numbers["json"], default=-1) + 1
        wanted = sorted(numbers["json"] - numbers["removed"])
        return [
            KeptPlan(number, await self._read(number), number in numbers["done"], number in numbers["replaced"])
            for number in wanted
        ]

    async def begin(self, plan: CompactionPlan) -> None:
        """Keep a plan behind those that were read, unless another process has kept one there meanwhile."""
        await self._store.make_folder(self._key(""))
        with suppress(AlreadyExistsError):
            await self._store.put(self._key(f"{self._next:06d}.json"), plan.to_json(), if_none_match=True)

    async def note(self, kept: KeptPlan, what: Literal["done", "replaced", "removed"]) -> None:
        """Note that the outputs of a plan are there, and named by a table, or that its sources are not any more."""
        await self._store.put(self._key(f"{kept.number:06d}.{what}"), b"{}\n")
        await self._store.discard_unfinished(self._key(f"{kept.number:06d}.json"))

    async def _read(self, number: int) -> CompactionPlan:
        key = self._key(f"{number:06d}.json")
        tail = await self._store.read_tail(key, _MOST_BYTES)
        try:
            return CompactionPlan.from_json(bytes(tail.data))
        except FormatError as error:
            raise RecoveryError(
                error.message,
                where=Where(key=self._store.url_of(key)),
                hint="name another folder for the outputs, or remove this one and compact again",
            ) from error

    def _key(self, name: str) -> str:
        return self._store.beside(f"{self._folder}_", f"{_FOLDER}/{name}")
