"""Whether a text column has dictionaries: the same in all row groups of a file, and in all files of a data set.

fastparquet 2026.9 reads the PLAIN values of a text column as null where other data pages of the column refer to
dictionaries: in another row group, in the same one, or in another file of a folder. Chunks that have no values do no
harm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from resilient_pq.arrow.leaf_rows import LeafRows, ShreddedRows
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS
from resilient_pq.format.file_metadata import ColumnMetaData, FileMetaData
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import Choice, Choose, choose, choose_first
from resilient_pq.format.physical_values import LeafData
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.format.side_by_side import SideBySide

#: Rows that are looked at before the first row group, at most.
_MOST_EXPECTED: Final = 8192


class ColumnChoice:
    """What was chosen for a column: dictionaries, none, or nothing yet (None)."""

    def __init__(self, use: bool | None = None) -> None:
        self.use = use
        self.changed = threading.Condition()


class KnownChoices:
    """The choices of the files of a data set, by the paths of their columns."""

    def __init__(self) -> None:
        self._of: dict[str, ColumnChoice] = {}

    def of(self, column_path: str) -> ColumnChoice:
        """The choice for a column."""
        return self._of.setdefault(column_path, ColumnChoice())

    def note(self, metadata: FileMetaData) -> None:
        """Take over what a file has, as far as nothing is chosen."""
        for group in metadata.row_groups:
            for column in group.columns:
                chunk = column.meta_data
                if chunk is not None and (stored := has_dictionary(chunk)) is not None:
                    choice = self.of(".".join(chunk.path_in_schema or ()))
                    choice.use = stored if choice.use is None else choice.use


class DictionaryUse:
    """The choice for a column of one file: what was stored decides, else the first chunk that has values."""

    def __init__(self, stored: bool | None, choice: ColumnChoice | None = None) -> None:
        """Begin with what stored row groups have; other files share a choice, unless these differ from it."""
        self._choice = choice if choice is not None and stored in (None, choice.use) else ColumnChoice(stored)
        self._num_ended = 0
        self._coming: LeafRows | ShreddedRows | None = None

    def expect(self, rows: LeafRows | ShreddedRows, num_rows: int) -> None:
        """Choose by rows with which the column begins, more than its first row group takes."""
        if self._choice.use is None:
            self._coming = rows.slice(0, min(num_rows, _MOST_EXPECTED))

    def known(self, number: int) -> bool | None:
        """Whether a chunk has a dictionary; None where it is the first that says so. It waits for those before."""
        choice = self._choice
        if choice.use is not None:  # which stays
            return choice.use
        with choice.changed:
            choice.changed.wait_for(lambda: choice.use is not None or self._num_ended >= number)
        return choice.use

    @property
    def looks_ahead(self) -> bool:
        """Whether rows that come after the first chunk decide."""
        return self._coming is not None

    def settled_by(self, chunk: Any) -> bool:
        """Choose by a `FlatChunk` that has values; whether the chunk is as was chosen, and there is one."""
        if chunk is None or chunk.num_values == chunk.null_count:
            return chunk is not None
        return self.settle(chunk.dictionary_header is not None)

    def settle(self, found: bool) -> bool:
        """Choose, where nobody has meanwhile; whether that is what was chosen."""
        choice = self._choice
        with choice.changed:
            if choice.use is None:
                choice.use = found
                choice.changed.notify_all()
        return choice.use == found

    @contextmanager
    def turn(self, number: int) -> Iterator[Choose]:
        """What chooses the encoding of a chunk; chunks are numbered from 0, and begun in this order in any threads."""
        try:
            yield partial(self._choose, number)
        finally:
            self.end(number)

    def end(self, number: int) -> None:
        """A chunk has its encoding, or none of it will ever be written."""
        with self._choice.changed:
            self._num_ended = max(self._num_ended, number + 1)
            self._choice.changed.notify_all()

    def _choose(
        self, number: int, leaf: Leaf, data: LeafData, options: ChunkOptions, side_by_side: SideBySide
    ) -> Choice:
        if (use := self.known(number)) is None:
            coming, self._coming = self._coming, None
            sample = data if coming is None else coming.shredded()
            chosen = choose_first(leaf, sample, options, side_by_side)
            if not len(sample.values):
                return choose(leaf, data, options, side_by_side)
            found = chosen.dictionary is not None
            if self.settle(found) and sample is data:
                return chosen  # else another file was first
            use = self._choice.use
        return choose(leaf, data, replace(options, dictionary=use), side_by_side)


def has_dictionary(chunk: ColumnMetaData) -> bool | None:
    """Whether data pages refer to a dictionary; None where the chunk is known to have no values."""
    if {*DICTIONARY_ENCODINGS}.intersection(chunk.encodings):
        return True
    num_nulls = None if chunk.statistics is None else chunk.statistics.null_count
    return None if num_nulls == chunk.num_values else False
