"""Recovery with the footer key alone: row groups stay in their places, sealed as they are, behind a new footer."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.encryption.opened_footer import FileKeys
from resilient_pq.errors import AuthenticationError, FormatError, Where
from resilient_pq.format import compact_protocol, footer
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.modules import ModuleType
from resilient_pq.format.crypto.sealed_chunk import ChunkSealer
from resilient_pq.format.crypto.sealed_footer import SealedFooter, parse_sealed_footer, sealed_frame
from resilient_pq.format.file_metadata import FileMetaData, KeyValue, RowGroup
from resilient_pq.format.resilience_records import RecordChain, RecordHeader, RecordKind
from resilient_pq.io.location import without_query
from resilient_pq.reader.contents import FileState
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.recovery.encrypted.ciphertext import Ciphertext
from resilient_pq.recovery.encrypted.plain_records import opened_record
from resilient_pq.recovery.recover_options import RecoverOptions
from resilient_pq.writer.file_sealing import shown_metadata


@dataclass(frozen=True, slots=True)
class Continued:
    """Where a file is cut, and the footer for the row groups that lie whole before that."""

    end: int  # The offset
    record: bytes  # The footer, and the record around it; empty where that is there
    num_rows: int | None  # Rows that it names; None where they are not known
    num_row_groups: int  # Row groups that it names


async def continued_footer(source: DamagedObject, found: Ciphertext, options: RecoverOptions) -> Continued | None:
    """A footer that names the row groups behind the newest whole one, too; None where there are none."""
    base, later = found.newest, found.later_row_groups
    if base is None or not later or options.keys is None:
        return None
    keys = DecryptionKeys.of(options.keys, (source.store, source.key))
    sealed = parse_sealed_footer(await source.read(ByteRange(base.payload_offset, base.end)), base.payload_offset, base)
    if sealed is None:
        raise AuthenticationError("a footer in the file is not encrypted", where=Where(offset=base.offset))
    cipher = (await FileKeys.of(sealed, keys, options.aad_prefix)).cipher
    metadata = sealed.metadata(cipher)
    row_groups, last = list(metadata.row_groups), base
    for header in later:
        payload = await source.read(ByteRange(header.payload_offset, header.end))
        try:
            record = opened_record(header, payload, cipher)
        except FormatError:
            break
        if record.row_group.ordinal != len(row_groups):
            break
        row_groups.append(_as_in_footer(record.row_group, cipher, in_clear=sealed.module is None))
        last = header
    if last is base:
        return None
    return _continued(source, sealed, cipher, metadata, row_groups, (base, last))


def _as_in_footer(row_group: RowGroup, cipher: FileCipher, *, in_clear: bool) -> RowGroup:
    """A row group of a record as a footer has it: one in the clear tells no values of encrypted columns."""
    if not in_clear:
        return row_group
    columns = []
    for ordinal, known in enumerate(row_group.columns):
        chunk = known
        if chunk.crypto_metadata is not None and chunk.meta_data is not None:
            sealer = ChunkSealer(cipher.footer, cipher.file_aad, os.urandom, row_group.ordinal or 0, ordinal)
            module = sealer.sealed(compact_protocol.encode(chunk.meta_data), ModuleType.COLUMN_METADATA)
            shown = shown_metadata(chunk.meta_data)
            chunk = replace(chunk, meta_data=shown, encrypted_column_metadata=bytes(module))
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
    chain.shows_counts = in_clear = sealed.module is None
    record = chain.record(
        RecordKind.FINAL,
        last.end,
        sealed_frame(compact_protocol.encode(written), cipher, sealed.key_metadata, os.urandom, in_clear=in_clear),
        num_rows=num_rows,
        num_row_groups=len(row_groups),
    )
    return Continued(last.end, record, num_rows, len(row_groups))
