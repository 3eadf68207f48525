"""Whether a text column has dictionaries: the same in all row groups of a file.

fastparquet 2026.9 reads the PLAIN values of a text column as null where other data pages of the column refer to
dictionaries, in another row group or in the same one. Chunks that have no values do no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import Choice, Choose, choose, choose_first
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf


class DictionaryUse:
    """The choice for one column: what was stored decides, else the first chunk that has values."""

    def __init__(self, stored: bool | None) -> None:
        """Begin with what stored row groups have: dictionaries, none, or no values (None)."""
        self._use = stored
        self._num_ended = 0
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, number: int) -> Iterator[Choose]:
        """What chooses the encoding of a chunk; chunks are numbered from 0, and begun in this order in any threads."""
        try:
            yield partial(self._choose, number)
        finally:
            with self._changed:
                self._num_ended = max(self._num_ended, number + 1)
                self._changed.notify_all()

    def _choose(self, number: int, leaf: Leaf, data: LeafData, options: ChunkOptions) -> Choice:
        with self._changed:
            self._changed.wait_for(lambda: self._use is not None or self._num_ended >= number)
        if self._use is not None:
            return choose(leaf, data, replace(options, dictionary=self._use))
        chosen = choose_first(leaf, data, options)
        if len(data.values):
            with self._changed:
                self._use = chosen.dictionary is not None
                self._changed.notify_all()
        return chosen
