"""Where every page and every record of a Parquet file lies, and what is left of its rows when bytes are gone.

An oracle: it reads the bytes as parquet-format and docs/format.md draw them, with a Thrift reader of its own, and shares
no code with us. It is given the bytes of a whole file, before anything happens to it.
"""

from __future__ import annotations

import bisect
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = bytes.fromhex("d75250510d0a1a0a")
RECORD = struct.Struct("<8sBBHI16sQQQQIIQQII")
ANCHOR, ROW_GROUP, CHECKPOINT, FINAL, CHUNK = 1, 2, 3, 4, 5
#: A dictionary page up to this many bytes has a copy in the row-group record.
DICTIONARY_COPY = 64 * 1024
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
#: Encodings that need the dictionary: PLAIN_DICTIONARY and RLE_DICTIONARY.
OF_DICTIONARY = (2, 8)
REQUIRED, OPTIONAL, REPEATED = 0, 1, 2


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def thrift_value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return data[at] == 1, at + 1
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            value, at = varint(data, at)
            return (value >> 1) ^ -(value & 1), at
        case 7:
            return struct.unpack_from("<d", data, at)[0], at + 8
        case 8:
            size, at = varint(data, at)
            return data[at : at + size], at + size
        case 9 | 10:
            head, at = data[at], at + 1
            size = head >> 4
            if size == 15:
                size, at = varint(data, at)
            values = []
            for _ in range(size):
                value, at = thrift_value(data, at, head & 15)
                values.append(value)
            return values, at
        case 12:
            return thrift_struct(data, at)
    raise ValueError(f"no Thrift value of kind {kind} was expected at {at}")


def thrift_struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """A struct in the compact protocol: its values by field, and the offset behind it."""
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head, at = data[at], at + 1
        if head == 0:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            value, at = varint(data, at)
            number = (value >> 1) ^ -(value & 1)
        if head & 15 in (1, 2):
            fields[number] = head & 15 == 1
        else:
            fields[number], at = thrift_value(data, at, head & 15)


@dataclass(frozen=True)
class Record:
    """A record: its kind, its bytes, what its header counts, of a chunk record what it names, and its epoch."""

    kind: int
    place: range
    num_row_groups: int
    names: tuple[int, int] | None = None
    epoch: int = 0


@dataclass(frozen=True)
class Page:
    """A page."""

    is_dictionary: bool
    header: range  # Its header's bytes
    body: range  # Its body's
    first_row: int | None  # The first of its rows in the row group; None for a dictionary page, or where nothing tells
    num_rows: int | None  # Of a data page, where something tells
    of_dictionary: bool  # Whether it needs the dictionary
    tells_rows: bool  # Whether its header alone says how many rows it has
    has_crc: bool  # Whether its header has a checksum of its body


@dataclass(frozen=True)
class Chunk:
    """A column chunk: its leaf's path, its pages, its chunk record and its OffsetIndex, where it has them."""

    path: tuple[str, ...]
    place: range
    pages: tuple[Page, ...]
    record: Record | None
    offset_index: range | None


@dataclass(frozen=True)
class RowGroup:
    """A row group: its first row in the file, its rows, its chunks, and its record, where it has one."""

    first_row: int
    num_rows: int
    chunks: tuple[Chunk, ...]
    record: Record | None


class Gone:
    """Bytes that are changed, or missing."""

    def __init__(self, places: Iterable[range]) -> None:
        """Take them in any order; they may overlap."""
        self._places: list[range] = []
        for place in sorted((place for place in places if place), key=lambda place: place.start):
            if self._places and place.start <= self._places[-1].stop:
                last = self._places.pop()
                place = range(last.start, max(last.stop, place.stop))  # noqa: PLW2901
            self._places.append(place)
        self._starts = [place.start for place in self._places]

    def spare(self, place: range) -> bool:
        """Whether all bytes of a range are what they were."""
        at = bisect.bisect_left(self._starts, place.stop) - 1
        return at < 0 or self._places[at].stop <= place.start


class GoneInEach(Gone):
    """Bytes that are changed, or missing, in each of several copies."""

    def __init__(self, copies: Iterable[Gone]) -> None:
        """Take what is gone in each."""
        self._copies = list(copies)

    def spare(self, place: range) -> bool:
        """Whether all bytes of a range are what they were in one of the copies."""
        return any(copy.spare(place) for copy in self._copies)


class GoneEverywhere(Gone):
    """Bodies of pages that are changed or missing, and of which no other page has the same bytes."""

    def __init__(self, missing: Gone, same: dict[range, list[range]]) -> None:
        """Take what is gone, and for each body those with its bytes."""
        self._missing = missing
        self._same = same

    def spare(self, place: range) -> bool:
        """Whether the bytes of a body are what they were, there or in another page."""
        return any(self._missing.spare(body) for body in self._same[place])


@dataclass(frozen=True)
class Row:
    """A row that can be kept: its number in the file, and the columns that must be null in it."""

    number: int
    nulled: frozenset[str]


class Layout:
    """A whole file, ours or another's, known byte for byte."""

    def __init__(self, data: bytes) -> None:
        """Read its footer, and every page header."""
        self.data = data
        size = int.from_bytes(data[-8:-4], "little")
        self.footer = range(len(data) - 8 - size, len(data))
        metadata, _ = thrift_struct(data, self.footer.start)
        self.records = tuple(records_of(data))
        self.num_rows: int = metadata[3]
        self.leaves, self.required = leaves_of(metadata[2])
        self.row_groups: list[RowGroup] = []
        first_row = 0
        for ordinal, row_group in enumerate(metadata[4]):
            self.row_groups.append(self._row_group(ordinal, row_group, first_row))
            first_row += row_group[3]
        self._same_bodies = self._bodies_alike()

    def _bodies_alike(self) -> dict[range, list[range]]:
        """For the body of each page those that have the same bytes, itself among them."""
        alike: dict[bytes, list[range]] = {}
        bodies = [page.body for row_group in self.row_groups for chunk in row_group.chunks for page in chunk.pages]
        for body in bodies:
            alike.setdefault(self.data[body.start : body.stop], []).append(body)
        return {body: alike[self.data[body.start : body.stop]] for body in bodies}

    def _row_group(self, ordinal: int, fields: dict[int, Any], first_row: int) -> RowGroup:
        own = [record for record in self.records if record.kind == ROW_GROUP]
        chunks = []
        for column, chunk in enumerate(fields[1]):
            start = chunk[3].get(11) or chunk[3][9]
            record = [record for record in self.records if record.names == (ordinal, column)]
            index = range(chunk[4], chunk[4] + chunk[5]) if 4 in chunk else None
            place = range(start, start + chunk[3][7])
            path = tuple(name.decode() for name in chunk[3][3])
            pages = tuple(self._pages(path, place, index, fields[3]))
            chunks.append(Chunk(path, place, pages, record[0] if record else None, index))
        return RowGroup(first_row, fields[3], tuple(chunks), own[ordinal] if own else None)

    def _pages(self, path: tuple[str, ...], place: range, index: range | None, num_rows: int) -> Iterator[Page]:
        firsts: dict[int, int] = {}
        if index is not None:
            locations, _ = thrift_struct(self.data, index.start)
            firsts = {location[1]: location[3] for location in locations[1]}
        borders = [*sorted(firsts.values()), num_rows]
        at, row = place.start, 0
        while at < place.stop:
            fields, body = thrift_struct(self.data, at)
            header, end = range(at, body), body + fields[3]
            data_page = fields.get(5) or fields.get(8) or {}
            first, rows, tells = None, None, fields[1] == DATA_PAGE_V2 or self.leaves[path]
            if fields[1] != DICTIONARY_PAGE:
                if tells:
                    first, rows = row, data_page[3] if fields[1] == DATA_PAGE_V2 else data_page[1]
                elif at in firsts:
                    first = firsts[at]
                    rows = borders[borders.index(first) + 1] - first
                row += rows or 0
            encoding = data_page.get(4 if fields[1] == DATA_PAGE_V2 else 2)
            yield Page(
                fields[1] == DICTIONARY_PAGE, header, range(body, end), first, rows,
                encoding in OF_DICTIONARY, tells, 4 in fields,
            )  # fmt: skip
            at = end

    def footers(self, gone: Gone) -> list[Record]:
        """The anchor, checkpoints and final record that are whole; of a file of others, its footer."""
        if not self.records:
            whole = [Record(FINAL, self.footer, len(self.row_groups))]
        else:
            whole = [record for record in self.records if record.kind in (ANCHOR, CHECKPOINT, FINAL)]
        return [record for record in whole if gone.spare(record.place)]

    def rows(self, gone: Iterable[range] | Gone, on_damage: str = "drop", *, by_luck: bool = False) -> list[Row]:
        """The rows that can be kept under a policy, at best, in order."""
        missing = gone if isinstance(gone, Gone) else Gone(gone)
        headers = Gone([]) if by_luck else missing
        bodies = GoneEverywhere(missing, self._same_bodies) if by_luck else missing
        footers = self.footers(missing)
        if by_luck and not footers and self.records:
            footers = [record for record in self.records if record.kind == ANCHOR]
        rows: list[Row] = []
        if not footers:
            return rows
        for ordinal, row_group in enumerate(self.row_groups):
            lost = self._lost(ordinal, row_group, footers, missing, headers, bodies)
            for i in range(row_group.num_rows):
                names = frozenset(path[0] for path, rows_lost in lost.items() if i in rows_lost)
                if not names or (on_damage == "null" and not names & self.required):
                    rows.append(Row(row_group.first_row + i, names))
        return rows

    def _lost(
        self, ordinal: int, row_group: RowGroup, footers: Sequence[Record], missing: Gone, headers: Gone, bodies: Gone
    ) -> dict[tuple[str, ...], set[int]]:
        """The rows of the row group that each leaf column has lost."""
        named = any(record.num_row_groups > ordinal for record in footers)
        record = row_group.record is not None and missing.spare(row_group.record.place)
        indexed = bool(footers) and footers[-1].kind == FINAL
        lost = {}
        for chunk in row_group.chunks:
            every = set(range(row_group.num_rows))
            if named or record or (chunk.record is not None and headers.spare(chunk.record.place)):
                index = indexed and chunk.offset_index is not None and missing.spare(chunk.offset_index)
                counted = named or headers is not missing
                placed = self._placed(chunk, bodies, headers, named=counted, everything=record or index)
                every -= self._kept(chunk, placed, bodies, Gone([]) if record else headers, has_copies=record)
            lost[chunk.path] = every
        return lost

    @staticmethod
    def _placed(chunk: Chunk, missing: Gone, headers: Gone, *, named: bool, everything: bool) -> set[int]:
        """The pages whose first row is known, by their ordinals: counted from the front, or from the end."""
        if everything:
            return set(range(len(chunk.pages)))

        def counted(page: Page) -> bool:
            return headers.spare(page.header) and (page.is_dictionary or page.tells_rows or missing.spare(page.body))

        placed = set()
        for ordinal, page in enumerate(chunk.pages):
            placed.add(ordinal)
            # A footer says where the first data page is, so that one knows what a lost first page was.
            if not counted(page) and not (named and page.is_dictionary):
                break
        if named:
            for ordinal in reversed(range(len(chunk.pages))):
                # Counted from the end, a page's own rows have to be known as well.
                if not counted(chunk.pages[ordinal]):
                    break
                placed.add(ordinal)
        return placed

    @staticmethod
    def _kept(chunk: Chunk, placed: set[int], missing: Gone, headers: Gone, *, has_copies: bool) -> set[int]:
        """The rows of the chunk's pages that are whole, whose place is known, and whose dictionary is there."""
        dictionary = True
        kept: set[int] = set()
        for ordinal, page in enumerate(chunk.pages):
            # Of several copies one has to have both, where nothing else has the header.
            both = range(page.header.start, page.body.stop) if headers is missing else page.body
            whole = missing.spare(both) and headers.spare(page.header)
            if page.is_dictionary:
                size = len(page.header) + len(page.body)
                dictionary = whole or (has_copies and size <= DICTIONARY_COPY)
            elif whole and ordinal in placed and (dictionary or not page.of_dictionary):
                assert page.first_row is not None and page.num_rows is not None
                kept |= set(range(page.first_row, page.first_row + page.num_rows))
        return kept


def leaves_of(elements: Sequence[dict[int, Any]]) -> tuple[dict[tuple[str, ...], bool], frozenset[str]]:
    """The leaves of a schema as a footer has it, by path, and the columns of the top level that are not nullable.

    Each leaf with whether every value, null or not, is a row: nothing above it is repeated.
    """
    leaves: dict[tuple[str, ...], bool] = {}
    at = 1

    def walk(path: tuple[str, ...], flat: bool) -> None:
        nonlocal at
        element, at = elements[at], at + 1
        path, flat = (*path, element[4].decode()), flat and element.get(3) != REPEATED
        if not element.get(5):
            leaves[path] = flat
        for _ in range(element.get(5) or 0):
            walk(path, flat)

    required = set()
    for _ in range(elements[0][5]):
        if elements[at].get(3) == REQUIRED:
            required.add(elements[at][4].decode())
        walk((), True)
    return leaves, frozenset(required)


def records_of(data: bytes) -> Iterator[Record]:
    """The records that lie where they say, and whose two CRC32 hold."""
    at = data.find(MAGIC)
    while at >= 0:
        if at + RECORD.size <= len(data):
            fields = RECORD.unpack_from(data, at)
            place = range(at, at + RECORD.size + fields[12])
            payload = data[at + RECORD.size : place.stop]
            if (
                fields[6] == at
                and zlib.crc32(data[at : at + RECORD.size - 4]) == fields[15]
                and place.stop <= len(data)
                and zlib.crc32(payload) == fields[14]
            ):
                names = struct.unpack_from("<II", payload) if fields[2] == CHUNK else None
                yield Record(fields[2], place, fields[10], names, fields[4])
        at = data.find(MAGIC, at + 1)
