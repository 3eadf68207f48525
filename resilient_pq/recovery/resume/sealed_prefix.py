"""The prefix of an unfinished encrypted file that stays in its place when it is resumed. An async shell."""

# What is whole is known by checksums in the clear; what records say is opened with the keys that the writer had, and
# sealed again under fresh nonces in the footers that follow.

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.checksum import unsigned
from resilient_pq.encryption.decrypted_store import DecryptedStore
from resilient_pq.encryption.encryption import Encryption, EncryptionOfEach
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.opened_footer import FileKeys
from resilient_pq.errors import AuthenticationError, FormatError, OptionError
from resilient_pq.format import footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.sealed_footer import SealedFooter, open_chunks, parse_sealed_footer
from resilient_pq.format.file_metadata import ColumnChunk, OffsetIndex
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.page_sums import PageSums
from resilient_pq.format.resilience_records import (
    HEADER_SIZE,
    ChunkCopies,
    RecordChain,
    RecordHeader,
    RecordKind,
    parse_header,
)
from resilient_pq.io.transfer.fetch import fetch
from resilient_pq.off_event_loop import off_loop
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.opening import read_contents
from resilient_pq.recovery.damaged_object import TAIL_BYTES, DamagedObject
from resilient_pq.recovery.encrypted.ciphertext import survey_ciphertext
from resilient_pq.recovery.encrypted.plain_records import offset_index_of, opened_record
from resilient_pq.recovery.evidence.row_group_choice import Candidates
from resilient_pq.recovery.resume.resume_layout import layout_of_placed
from resilient_pq.recovery.resume.resume_local import damaged, nothing_to_resume
from resilient_pq.recovery.verification.checksum_checks import record_range
from resilient_pq.writer.file_layout import FileLayout, PlacedRowGroup
from resilient_pq.writer.file_sealing import FileSealing
from resilient_pq.writer.write_options import EncoderOptions

_ENDS = (RecordKind.ANCHOR, RecordKind.ROW_GROUP, RecordKind.CHECKPOINT)  # A file may be cut behind these


async def opened_contents(source: DamagedObject, encryption: Encryption | EncryptionOfEach) -> Contents | FormatError:
    """What the footer at the end of an object says, which may be in the clear; or what is wrong with it."""
    given = encryption.reading()
    keys = DecryptionKeys.of(given["keys"], (source.store, source.key))
    try:
        view = await DecryptedStore.open(
            source.store, source.key, keys, aad_prefix=given["aad_prefix"], tail_bytes=TAIL_BYTES
        )
        for path, about in view.missing_keys.items():
            raise keys.missing(about, path)
        return (await read_contents(view, source.key, tail_bytes=TAIL_BYTES, counters=source.counters))[1]
    except FormatError as error:
        size = source.info.size
        if bytes(await source.read(ByteRange(max(size - len(footer.MAGIC), 0), size))) != footer.MAGIC:
            return error
        shown = await source.contents()
        is_clear = isinstance(shown, Contents) and shown.metadata.encryption_algorithm is None
        return shown if is_clear else error


async def sealed_layout(
    source: DamagedObject, options: EncoderOptions, named: Candidates | None = None
) -> tuple[FileLayout, Contents]:
    """The layout behind an encrypted file: behind what its footer has `named`, or else behind what is whole of it."""
    records = await (_whole_records(source) if named is None else _named_records(source, named))
    newest = [each for each in records if each[0].kind in (RecordKind.ANCHOR, RecordKind.CHECKPOINT)][-1]
    encryption = options.encryption
    if not isinstance(encryption, Encryption):
        assert encryption is not None
        encryption = await _with_its_keys(source, encryption, newest, records)
    contents, cipher, sealing = await off_loop(len(newest[1]) // 1024, _opened_footer, newest, encryption)
    placed = [
        await off_loop(len(contents.schema.leaves), _placed, header, payload, cipher, sealing, ordinal)
        for ordinal, (header, payload) in enumerate(each for each in records if each[0].kind == RecordKind.ROW_GROUP)
    ]
    last = records[-1][0]
    chain = RecordChain(last.file_id, last.epoch + 1, last.number + 1, last.offset, last.newest_footer)
    layout = await layout_of_placed(source, contents, chain, placed, last.end, options.parity_share, sealing)
    return layout, contents


async def _with_its_keys(
    source: DamagedObject,
    encryption: EncryptionOfEach,
    newest: tuple[RecordHeader, memoryview],
    records: Sequence[tuple[RecordHeader, memoryview]],
) -> Encryption:
    """How a file is encrypted that has keys of its own, by what it says of them."""
    given = encryption.reading()
    keys, sealed = DecryptionKeys.of(given["keys"], (source.store, source.key)), _sealed(newest)
    found = await FileKeys.of(sealed, keys, given["aad_prefix"])
    opened = [opened_record(*each, found.cipher) for each in records if each[0].kind == RecordKind.ROW_GROUP]
    await found.take_columns([record.row_group for record in opened])
    for path, about in found.missing.items():
        raise keys.missing(about, path)
    return await encryption.of_unfinished(keys, sealed.key_metadata, found.own)


async def _named_records(source: DamagedObject, named: Candidates) -> list[tuple[RecordHeader, memoryview]]:
    """The records of the row groups that the footer at the end of an object names, and that of the footer."""
    assert named.last is not None
    end, found = source.info.size, list[tuple[RecordHeader, memoryview]]()
    places = [record_range(candidate.row_group, end) or ByteRange(0, 0) for candidate in named.row_groups]
    places.append(ByteRange(named.last.offset, end))
    reading = fetch(source.store, source.info, places, counters=source.counters, in_order=True)
    async with aclosing(reading):
        async for ordinal, data in reading:
            header, payload = parse_header(data), memoryview(bytes(data[HEADER_SIZE:]))
            kinds = _ENDS if ordinal == len(named.row_groups) else (RecordKind.ROW_GROUP,)
            at, file_id = places[ordinal].start, named.last.file_id
            if header is None or (header.offset, header.file_id) != (at, file_id) or not header.holds(payload):
                raise damaged(source)
            if header.kind not in kinds:
                raise damaged(source)
            found.append((header, payload))
    return found


async def _whole_records(source: DamagedObject) -> list[tuple[RecordHeader, memoryview]]:
    """Footers but the final one, and records of row groups, up to the first byte that is not what was written."""
    found = await source.drive(survey_ciphertext(source.info.size))
    headers = [header for header in found.unbroken if header.kind in _ENDS]
    if not headers or headers[0].kind != RecordKind.ANCHOR:
        raise nothing_to_resume(source)
    if found.newest_named >= headers[-1].end:  # a checkpoint was stored, as more was written behind it
        raise damaged(source)
    places = [(header, ByteRange(header.payload_offset, header.end)) for header in headers]
    return [(header, memoryview(bytes(await source.read(place)))) for header, place in places]


def _sealed(newest: tuple[RecordHeader, memoryview]) -> SealedFooter:
    """The footer in a record."""
    header, payload = newest
    sealed = parse_sealed_footer(payload, header.payload_offset, header)
    if sealed is None:
        raise OptionError("the file is in the clear, and cannot be gone on with encrypted")
    return sealed


def _opened_footer(
    newest: tuple[RecordHeader, memoryview], encryption: Encryption
) -> tuple[Contents, FileCipher, FileSealing]:
    """What a footer says, and the ciphers of the file."""
    header, payload, sealed = *newest, _sealed(newest)
    cipher = FileCipher.of(sealed.algorithm, encryption.footer_key, encryption.aad_prefix)
    metadata = sealed.metadata(cipher)
    shown = replace(header, num_rows=metadata.num_rows)
    metadata.row_groups, metadata.num_rows = [], 0  # their records tell of them
    contents = Contents.of(footer.Footer(metadata, header.payload_offset, len(payload) - footer.TAIL_SIZE, shown))
    file_unique = sealed.algorithm.file_unique or b""
    sealing = FileSealing(encryption, contents.schema, file_unique, os.urandom)
    if not sealing.goes_on(sealed):
        raise OptionError(
            "the file was encrypted in another way than encryption= says",
            hint="pass the algorithm, the AAD prefix and the plaintext_footer that it was begun with",
        )
    named = {leaf.column_path: encryption.name_of(leaf) or "" for leaf in contents.schema.leaves}
    keys = {path: encryption.column_keys.get(name) for path, name in named.items()}
    cipher.take_column_keys({path: key for path, key in keys.items() if key is not None})
    return contents, cipher, sealing


def _placed(
    header: RecordHeader, payload: memoryview, cipher: FileCipher, sealing: FileSealing, ordinal: int
) -> PlacedRowGroup:
    """A row group in its place, as its record tells it."""
    record = opened_record(header, payload, cipher)
    row_group = record.row_group
    if row_group.ordinal != ordinal or len(record.chunks) != len(row_group.columns):
        raise AuthenticationError("the record of a row group is not what was written in its place")
    opened = {id(each.chunk): each for each in open_chunks([row_group], cipher)}
    chunks = []
    for chunk, copies in zip(row_group.columns, record.chunks, strict=True):
        index, sums = copies.offset_index, None
        if (known := opened.get(id(chunk))) is None:
            sums = PageSums.of_copies(copies)
        else:
            index = offset_index_of(copies, known.opener)
        if known is not None and known.bloom_filter is not None and chunk.meta_data is not None:
            chunk.meta_data.bloom_filter_length = known.bloom_filter[1]
        chunks.append(_in_place(chunk, copies, index, sums))
    record_place = footer.RECORD_KEY, f"{header.offset}:{header.end - header.offset}"
    serialized, indexes = sealing.placed(row_group, chunks, ordinal, record_place)
    return PlacedRowGroup(row_group, header.end, indexes, serialized)


def _in_place(
    chunk: ColumnChunk, copies: ChunkCopies, index: OffsetIndex | None, sums: PageSums | None
) -> EncodedChunk:
    """A chunk whose bytes are stored already; those of its column index stand nowhere before a final footer."""
    metadata = chunk.meta_data
    if metadata is None:
        raise AuthenticationError("the record of a row group lacks a column")
    known = footer.ChunkSums.of(metadata)
    return EncodedChunk(
        buffers=[],
        size=metadata.total_compressed_size,
        metadata=metadata,
        offset_index=index,
        column_index=None,
        headers=b"",
        header_crcs=[],
        crc=unsigned(copies.crc32),
        dictionary_page=None,
        dictionary_body=None,
        digest=None if known is None else known.xxh3,
        page_sums=sums,
    )
