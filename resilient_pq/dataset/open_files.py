"""Opening of many files side by side, without those that are damaged beyond reading where the caller wants the rest."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Sequence
from typing import Final

from resilient_pq.bulk.name_pattern import is_pattern
from resilient_pq.bulk.scope import Place
from resilient_pq.damage.lost_region import Damage, LostRegion
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import FormatError, NotFoundError, NotParquetError, Where
from resilient_pq.io import FetchCounters
from resilient_pq.io.cancellation import all_or_none, in_one_hop
from resilient_pq.io.resolve import is_local
from resilient_pq.off_event_loop import ONE_HOP_BYTES
from resilient_pq.reader.file import File
from resilient_pq.reader.opening import IncompleteFileWarning, open_file
from resilient_pq.reader.read_options import ReadLimits, ReadSettings

#: Where opening takes so many times as long as the processor worked, it waited for a disk.
_WAITS: Final = 8.0


async def open_files(
    places: Sequence[Place], how: ReadSettings, counters: FetchCounters
) -> tuple[list[File], list[int]]:
    """The files that can be read, in order, with their positions; the first error cancels what is under way."""
    limits = ReadLimits.of(how.options)
    waiting = iter(enumerate(places))
    files: dict[int, File] = {}
    unreadable: dict[int, FormatError] = {}

    async def open_some(most_bytes: float = math.inf) -> bool:
        """Open files one after the other, until so many bytes of them were read; whether Python took the time."""
        begun, worked, before = time.monotonic(), time.thread_time(), counters.bytes
        for position, (store, key) in waiting:
            try:
                files[position] = await open_file(store, key, how, counters=counters, owns_store=False, limits=limits)
            except NotFoundError as error:
                if is_pattern(key):
                    error.hint = error.hint or "in a list, names are taken as they are; a pattern stands alone"
                raise
            except FormatError as error:
                if how.on_damage is OnDamage.RAISE:
                    raise
                unreadable[position] = error
            if counters.bytes - before >= most_bytes:
                break
        return time.monotonic() - begun < _WAITS * (time.thread_time() - worked)

    # Of this machine, so many that a hop to a thread is worth it: it is a disk that several threads make faster.
    is_quick = how.keys is None and all(map(is_local, places))
    while is_quick and len(files) + len(unreadable) < len(places):
        is_quick = await in_one_hop(open_some(ONE_HOP_BYTES))
    await all_or_none(open_some() for _ in range(min(how.options.max_requests, len(places))))
    if not files:
        raise unreadable[0]
    for position, error in sorted(unreadable.items()):
        await _tell(places[position], error, how)
    found = sorted(files)
    return [files[position] for position in found], found


async def _tell(place: Place, error: FormatError, how: ReadSettings) -> None:
    """Say that a file is left out: its bytes do not tell how many rows it had."""
    store, key = place
    url = store.url_of(key)
    warnings.warn(f"{url} is left out, since none of it can be read: {error.message}", IncompleteFileWarning, 5)
    if how.on_lost is not None:
        damage = Damage.FOREIGN if isinstance(error, NotParquetError) else Damage.TORN
        size = (await store.head(key)).size
        how.on_lost(LostRegion(0, size, None, damage, error.message, Where(key=url)))
