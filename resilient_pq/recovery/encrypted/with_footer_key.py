"""Recovery with the footer key alone: row groups stay in their places, sealed as they are, behind a new footer."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.errors import AuthenticationError, FormatError, Where
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import NONCE_SIZE, ModulePlace, ModuleType, WrongTagError
from resilient_pq.format.crypto.sealed_footer import FileCryptoMetaData, SealedFooter, parse_sealed_footer
from resilient_pq.format.file_metadata import FileMetaData, KeyValue, RowGroup
from resilient_pq.format.resilience_records import RecordChain, RecordHeader, RecordKind, RowGroupRecord
from resilient_pq.io.location import without_query
from resilient_pq.reader.contents import FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.encrypted.ciphertext import Ciphertext
from resilient_pq.recovery.encrypted.plain_records import opened_payload
from resilient_pq.recovery.recover_options import RecoverOptions


@dataclass(frozen=True, slots=True)
class Continued:
    """A footer for the row groups that lie whole in their places.

    Attributes:
        end: Where it belongs.
        record: It, and the record around it.
        num_rows: Rows that it names.
        num_row_groups: Row groups that it names.
    """

    end: int
    record: bytes
    num_rows: int
    num_row_groups: int


async def continued_footer(source: DamagedObject, found: Ciphertext, options: RecoverOptions) -> Continued | None:
    """A footer that names the row groups behind the newest whole one, too; None where there are none.

    Raises:
        KeyMissingError: There is no key for the footer.
        WrongKeyError: The key of the footer opens nothing.
    """
    base, later = found.newest, found.later_row_groups
    if base is None or not later or options.keys is None:
        return None
    sealed, cipher = await _opened_base(source, base, options)
    metadata = sealed.metadata(cipher)
    row_groups, last = list(metadata.row_groups), base
    for header in later:
        record = await _row_group(source, header, cipher)
        if record is None or record.row_group.ordinal != len(row_groups):
            break
        row_groups.append(_as_in_footer(record.row_group, cipher, in_clear=sealed.module is None))
        last = header
    if last is base:
        return None
    return _continued(source, sealed, cipher, metadata, row_groups, (base, last))


async def _opened_base(
    source: DamagedObject, base: RecordHeader, options: RecoverOptions
) -> tuple[SealedFooter, FileCipher]:
    """A whole footer as it lies there, and what opens it."""
    assert options.keys is not None
    keys = DecryptionKeys.of(options.keys, (source.store, source.key))
    payload = await source.read(ByteRange(base.payload_offset, base.end))
    sealed = parse_sealed_footer(payload, base.payload_offset, base)
    if sealed is None:
        raise AuthenticationError("a footer in the file is not encrypted", where=Where(offset=base.offset))
    key = await keys.key_of(sealed.key_metadata, None)
    if key is None:
        raise keys.missing(sealed.key_metadata, None)
    return sealed, FileCipher.of(sealed.algorithm, key, options.aad_prefix)


async def _row_group(source: DamagedObject, header: RecordHeader, cipher: FileCipher) -> RowGroupRecord | None:
    """The whole record of a row group; None where it does not open."""
    payload = await source.read(ByteRange(header.payload_offset, header.end))
    try:
        return compact_protocol.decode(RowGroupRecord, opened_payload(header, payload, cipher))[0]
    except (FormatError, WrongTagError):
        return None


def _as_in_footer(row_group: RowGroup, cipher: FileCipher, *, in_clear: bool) -> RowGroup:
    """A row group of a record as a footer has it: one in the clear tells nothing of columns that are encrypted."""
    if not in_clear or cipher.footer is None:
        return row_group
    columns = []
    for ordinal, known in enumerate(row_group.columns):
        chunk = known
        if chunk.crypto_metadata is not None and chunk.meta_data is not None:
            kind = ModuleType.COLUMN_METADATA
            aad = ModulePlace(kind, row_group.ordinal, ordinal).aad(cipher.file_aad)
            module = cipher.footer.seal(compact_protocol.encode(chunk.meta_data), kind, aad, os.urandom)
            chunk = replace(chunk, meta_data=None, encrypted_column_metadata=bytes(module))
        columns.append(chunk)
    return replace(row_group, columns=columns)


def _continued(
    source: DamagedObject,
    sealed: SealedFooter,
    cipher: FileCipher,
    metadata: FileMetaData,
    row_groups: Sequence[RowGroup],
    ends: tuple[RecordHeader, RecordHeader],
) -> Continued:
    base, last = ends
    num_rows = sum(row_group.num_rows for row_group in row_groups)
    said = footer.key_values(metadata.key_value_metadata)
    if base.kind == RecordKind.CHECKPOINT:
        known = said.get(footer.CHECKPOINTS_KEY)
        here = f"{base.offset}:{metadata.num_rows}"
        said[footer.CHECKPOINTS_KEY] = here if known is None else f"{known},{here}"
    name, info = os.path.basename(without_query(source.url)), source.info
    lineage = {"source": name, "size": info.size, "etag": info.etag, "rows_lost": None, "lost": []}
    said |= {footer.STATE_KEY: FileState.SALVAGED, footer.LINEAGE_KEY: json.dumps(lineage)}
    pairs = [KeyValue(key, value) for key, value in said.items()]
    written = replace(metadata, num_rows=num_rows, row_groups=list(row_groups), key_value_metadata=pairs)
    chain = RecordChain(last.file_id, last.epoch + 1, last.number + 1, last.offset, base.offset)
    chain.shows_counts = sealed.module is None
    record = chain.record(
        RecordKind.FINAL,
        last.end,
        _framed(compact_protocol.encode(written), sealed, cipher),
        num_rows=num_rows,
        num_row_groups=len(row_groups),
    )
    return Continued(last.end, record, num_rows, len(row_groups))


def _framed(metadata: bytes, sealed: SealedFooter, cipher: FileCipher) -> bytes:
    """Metadata as a footer of the file, sealed with the footer key."""
    aad = ModulePlace(ModuleType.FOOTER).aad(cipher.file_aad)
    assert cipher.footer is not None
    if sealed.module is None:
        return footer.frame(metadata + cipher.footer.signature(metadata, os.urandom(NONCE_SIZE), aad))
    module = cipher.footer.seal(metadata, ModuleType.FOOTER, aad, os.urandom)
    crypto = FileCryptoMetaData(sealed.algorithm.stored, sealed.key_metadata)
    return footer.frame(compact_protocol.encode(crypto) + module, footer.ENCRYPTED_MAGIC)
