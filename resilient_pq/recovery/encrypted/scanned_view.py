"""A damaged encrypted file in the clear, at the same offsets, as its records show it. An async shell."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import field, replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import crc32
from resilient_pq.encryption.decrypted_store import DecryptedStore
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.opened_footer import FileKeys
from resilient_pq.encryption.plain_regions import Patch, PlainRegion, SealedChunk, SealedIndex, regions_of
from resilient_pq.errors import FormatError, ResilientPQError
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import KeyCipher, WrongTagError
from resilient_pq.format.crypto.page_view import ChunkCipher
from resilient_pq.format.crypto.sealed_footer import OpenedChunk, open_chunks, parse_sealed_footer
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.footer import ENCRYPTED_MAGIC, MAGIC
from resilient_pq.format.resilience_records import (
    FOOTER_KINDS,
    HEADER_SIZE,
    SPAN_SIZE,
    BytesBehind,
    ChunkCopies,
    ChunkPlace,
    RecordHeader,
    RecordKind,
    RowGroupRecord,
)
from resilient_pq.format.schema_tree import Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import PIECE_BYTES, off_loop
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.encrypted.plain_records import (
    MORE_OF_CHUNK,
    SealedRecord,
    opened_payload,
    opened_record,
    opened_row_group,
    plain_chunk_record,
    plain_row_group_record,
)
from resilient_pq.recovery.encrypted.sealed_pages import LostPage, find_pages, put_back_exchanged
from resilient_pq.recovery.evidence.records.record_scan import outermost_file, scan_object

_MAX_PAYLOAD = 1 << 30  # Metadata that are larger are not read into memory, whatever their header says


async def scanned_view(source: DamagedObject, keys: DecryptionKeys, aad_prefix: bytes | None) -> DecryptedStore | None:
    """The file as its records show it; None where no footer is whole; raises where there is no right key for one."""
    found = await source.drive(scan_object(source.info.size))
    file_id = (
        source.file_id
        or next((header.file_id for at, header in found if at == len(MAGIC)), None)
        or outermost_file(found)
    )
    scan = _Scan(source, keys, [(at, header) for at, header in found if header.file_id == file_id])
    if not await scan.open_newest(aad_prefix):
        return None
    await scan.add_records()
    await scan.add_chunks()
    return scan.view()


@dataclass(slots=True)
class _Scan:
    """What is found of a file, step by step."""

    source: DamagedObject
    keys: DecryptionKeys
    found: list[tuple[int, RecordHeader]]
    shifts: dict[int, int] = field(default_factory=dict)
    regions: list[PlainRegion] = field(default_factory=list)
    copies: dict[tuple[int, int], ChunkCopies] = field(default_factory=dict)
    named: list[OpenedChunk] = field(default_factory=list)  # by the newest footer, and by the row groups behind it
    #: None where they are in the clear, or not known.
    keys_of_columns: dict[int, KeyCipher | None] = field(default_factory=dict)
    lost: list[LostPage] = field(default_factory=list)
    known: FileKeys = field(init=False)
    cipher: FileCipher = field(init=False)
    metadata: FileMetaData = field(init=False)
    schema: Schema = field(init=False)
    row_groups: list[tuple[int, RecordHeader, RowGroupRecord, int]] = field(default_factory=list)

    async def payload(self, at: int, header: RecordHeader) -> memoryview | None:
        """The payload of a record, if it is whole."""
        place = ByteRange(at + HEADER_SIZE, at + HEADER_SIZE + header.payload_size)
        if place.end > self.source.info.size or place.size > _MAX_PAYLOAD:
            return None
        data = await self.source.read(place)
        return data if header.holds(data) else None

    async def open_newest(self, aad_prefix: bytes | None) -> bool:
        """Open the newest footer that is whole, and learn from it how the file is encrypted."""
        for at, header in sorted(self.found, key=lambda one: -one[1].number):
            payload = await self.payload(at, header) if header.kind in FOOTER_KINDS else None
            if payload is None:
                continue
            try:
                sealed = parse_sealed_footer(payload, at + HEADER_SIZE, header)
            except FormatError:
                continue
            if sealed is None:
                continue
            self.known = await FileKeys.of(sealed, self.keys, aad_prefix)
            self.cipher = self.known.cipher
            self.metadata = sealed.metadata(self.cipher)
            self.schema = Schema.from_elements(self.metadata.schema)
            return True
        return False

    # -- records -----------------------------------------------------------------------------------

    async def add_records(self) -> None:
        """Open the records of footers and row groups, with the keys of all columns that they name."""
        for _, header in self.found:
            if header.kind == RecordKind.CHUNK:
                self.shifts[header.offset] = MORE_OF_CHUNK
        for at, header in self.found:
            if header.kind == RecordKind.ROW_GROUP and (payload := await self.payload(at, header)) is not None:
                with suppress(FormatError):
                    record = opened_record(header, payload, self.cipher)
                    self.row_groups.append((at, header, record, len(payload)))
        row_groups = [*self.metadata.row_groups, *(record.row_group for _, _, record, _ in self.row_groups)]
        await self.known.take_columns(row_groups)
        for row_group in row_groups:
            self.keys_of_columns |= {at: self.cipher.of_chunk(chunk) for at, chunk in enumerate(row_group.columns)}
        await off_loop(len(self.found), self._open_records)

    def _open_records(self) -> None:
        for at, header in self.found:
            if header.kind in FOOTER_KINDS:
                end = at + HEADER_SIZE + header.payload_size
                self._add(SealedRecord(at, end, header, self.cipher, self.shifts))
        named = len(self.metadata.row_groups)
        self.metadata.row_groups = list(self.metadata.row_groups)
        self.named += open_chunks(self.metadata.row_groups, self.cipher)
        for at, header, record, size in self.row_groups:
            ordinal, originals = record.row_group.ordinal or 0, list(record.chunks)
            try:
                opened = opened_row_group(record, self.cipher)
                content = plain_row_group_record(header, record, self.shifts, HEADER_SIZE + size)
            except (ResilientPQError, WrongTagError):
                continue
            self.copies |= {(ordinal, one.opener.column): originals[one.opener.column] for one in opened}
            self.named += opened if ordinal >= named else []
            self._add(Patch(at, at + len(content), content))
        self._show_counts()

    def _show_counts(self) -> None:
        """Show the footer records that are cut with the counts of the row group before them, or no such record."""
        # The headers of records in the file count 0 rows, so that nobody without the key learns how many there are.
        opened = {at: record for at, _, record, _ in self.row_groups}
        number = num_rows = num_row_groups = -1
        for at, header in self.found:
            if (record := opened.get(at)) is not None:
                num_rows = (record.first_row or 0) + record.row_group.num_rows
                num_row_groups = (record.row_group.ordinal or 0) + 1
            elif header.number != number + 1:
                num_rows = -1
            number = header.number
            if header.kind in FOOTER_KINDS and at + HEADER_SIZE + header.payload_size > self.source.info.size:
                counted = replace(header, num_rows=num_rows, num_row_groups=num_row_groups) if num_rows >= 0 else None
                content = bytes(HEADER_SIZE) if counted is None else counted.pack()
                self._add(Patch(at, at + HEADER_SIZE, content))

    def _add(self, region: PlainRegion) -> bool:
        """Take a region, unless another one lies there; whether it was taken."""
        i = bisect_left(self.regions, region.start, key=lambda one: one.start)
        before = self.regions[i - 1].end if i else 0
        behind = self.regions[i].start if i < len(self.regions) else self.source.info.size
        fits = before <= region.start < region.end <= behind
        if fits:
            self.regions.insert(i, region)
        return fits

    # -- chunks ------------------------------------------------------------------------------------

    async def add_chunks(self) -> None:
        """Find the chunks, by the records before them and by metadata, and examine those that are damaged."""
        for at, header in self.found:
            if header.kind == RecordKind.CHUNK:
                await self._add_recorded(at, header)
        regions = [region for opened in self.named for region in _regions_of(opened)]
        for region in regions:
            if isinstance(region, SealedChunk):
                await self._add_named(region)
        for index in [region for region in regions if isinstance(region, SealedIndex)]:
            self._add(index)
        await off_loop(len(self.lost) ** 2, put_back_exchanged, self.lost)
        head = await self.source.read(ByteRange(0, min(len(MAGIC), self.source.info.size)))
        if bytes(head) == ENCRYPTED_MAGIC:
            self._add(Patch(0, len(MAGIC), MAGIC))

    async def _add_named(self, chunk: SealedChunk) -> None:
        """A chunk that metadata name, where no record before it was found."""
        chunk.end = min(chunk.end, self.source.info.size)
        if self._add(chunk):
            await self._examine(chunk)

    async def _add_recorded(self, at: int, header: RecordHeader) -> None:
        """The chunk behind a record, and the record."""
        payload = await self.payload(at, header)
        if payload is None:
            return
        try:
            span = BytesBehind.unpack(payload)
            place = ChunkPlace.unpack(opened_payload(header, payload[SPAN_SIZE:], self.cipher))
        except (FormatError, WrongTagError):
            return
        content = plain_chunk_record(header, place, self.shifts)
        start = at + len(content)
        self._add(Patch(at, start, content))
        end = min(start + span.size, self.source.info.size)
        if start >= end or place.column >= len(self.schema.leaves):
            return
        data = await self.source.read(ByteRange(start, end))
        opener = await self._opener(place, data)
        if opener is not None:
            path = self.schema.leaves[place.column].column_path
            chunk = SealedChunk(start, end, opener, path, _opens(opener, None, data), crc=span.crc)
            self._add(chunk)
            await self._examine(chunk, data)

    async def _opener(self, place: ChunkPlace, data: memoryview) -> ChunkCipher | None:
        """What opens a chunk; None where it is in the clear, or its key is not known."""
        if place.column in self.keys_of_columns:
            cipher = self.keys_of_columns[place.column]
            return None if cipher is None else ChunkCipher(cipher, self.cipher.file_aad, place.row_group, place.column)
        # No footer names a row group yet: the tag of the first page tells which key is right.
        path = self.schema.leaves[place.column].column_path
        self.cipher.take_column_keys({path: await self._guessed_key(path)})
        for cipher in (self.cipher.footer, self.cipher.columns[path]):
            if cipher is not None:
                opener = ChunkCipher(cipher, self.cipher.file_aad, place.row_group, place.column)
                if _opens(opener, None, data) or _opens(opener, 0, data):
                    self.keys_of_columns[place.column] = cipher
                    return opener
        return None

    async def _guessed_key(self, path: str) -> bytes | None:
        """The key of a column whose key metadata is not known, if it is the default: its path."""
        try:
            return await self.keys.key_of(path.encode(), path)
        except FormatError:  # KeyTools find keys by key material alone
            return None

    async def _examine(self, chunk: SealedChunk, data: memoryview | None = None) -> None:
        """Find the pages of a chunk that is not as it was written."""
        data = await self.source.read(ByteRange(chunk.start, chunk.end)) if data is None else data
        if chunk.crc is not None and crc32(data) == chunk.crc:
            return
        if chunk.offset_index is not None and chunk.offset_index[0] + chunk.offset_index[1] <= self.source.info.size:
            start, size = chunk.offset_index
            try:
                chunk.pages_by_index(await self.source.read(ByteRange(start, start + size)))
            except (FormatError, WrongTagError):
                chunk.pages = None
        copies = self.copies.get((chunk.opener.row_group, chunk.opener.column))
        self.lost += await off_loop(len(data) // PIECE_BYTES, find_pages, chunk, data, copies)

    def view(self) -> DecryptedStore:
        """The file in the clear."""
        store, info, examined = self.source.store, self.source.info, {region.start for region in self.regions}
        return DecryptedStore(store, info, info.size, self.regions, self.known, shows_damage=True, damaged=examined)


def _regions_of(opened: OpenedChunk) -> list[PlainRegion]:
    """Where the parts of a chunk lie; none where its metadata contradict themselves."""
    try:
        return list(regions_of(opened))
    except FormatError:
        return []


def _opens(opener: ChunkCipher, ordinal: int | None, data: memoryview) -> bool:
    try:
        opener.open_header(ordinal, data)
    except (FormatError, WrongTagError):
        return False
    return True
