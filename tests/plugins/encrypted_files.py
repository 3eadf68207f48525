"""Encrypted files of some rows, of ours and of the corpus, on disk and in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from corpus_of_others import of_corpus
from in_memory_kms import MASTER_KEYS

import resilient_pq as rpq
from resilient_pq.encryption.decrypted_store import DecryptedStore
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.format.resilience_records import RecordHeader, RecordKind
from resilient_pq.io.memory_store import MemoryStore
from resilient_pq.recovery.evidence.records.record_scan import scan_headers

FOOTER_KEY = b"footer key 16 by"
SECRET_KEY = b"secret key 16 by"
KEYS = {"footer": FOOTER_KEY, "word": SECRET_KEY}
#: Footer keys of 128, 192 and 256 bits, in letters, as DuckDB takes a key as text.
KEYS_BY_BITS = {128: FOOTER_KEY, 192: b"footer key of 24 bytes..", 256: b"footer key of thirty-two bytes.."}
#: The keys of the files in parquet-testing.
CORPUS_FOOTER_KEY = MASTER_KEYS["kf"]
CORPUS_KEYS = {"footer": CORPUS_FOOTER_KEY, **MASTER_KEYS}
MODES: dict[str, dict[str, Any]] = {
    "uniform": {},
    "columns": {"column_keys": {"word": SECRET_KEY}},
    "plaintext footer": {"plaintext_footer": True, "column_keys": {"word": SECRET_KEY}},
    "ctr": {"algorithm": "AES_GCM_CTR_V1"},
}


def rows_of(count: int) -> pa.Table:
    """Numbers, and words with nulls."""
    return pa.table(
        {
            "number": pa.array(range(count), pa.int64()),
            "word": [None if i % 7 == 3 else f"secret word {i % 40}" for i in range(count)],
        }
    )


def sealed_file(
    table: pa.Table, *, mode: str = "uniform", rows: int = 100, checkpoints: tuple[int, ...] = (1,), **options: Any
) -> bytes:
    """The bytes of an encrypted file with row groups of so many rows, and checkpoints behind some of them."""

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sealed.parquet")
        encryption = rpq.Encryption(FOOTER_KEY, **MODES[mode])
        with rpq.sync.create(
            path, schema=table.schema, row_group_rows=rows, encryption=encryption, checkpoint_every=None, **options
        ) as writer:
            for ordinal, batch in enumerate(table.to_batches(rows)):
                writer.write(batch)
                if ordinal in checkpoints:
                    writer.checkpoint()
        return path.read_bytes()


def sealed_of_corpus(name: str) -> Path:
    return of_corpus(f"parquet-testing/data/{name}.parquet.encrypted")


def headers_of(data: bytes, kind: RecordKind) -> list[RecordHeader]:
    """The headers of the records of a kind."""
    return [header for _, header in scan_headers(data, 0) if header.kind == kind]


def footer_start(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def flipped(data: bytes, at: int, mask: int = 0x20) -> bytes:
    """The data with one byte changed."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


async def in_memory(data: bytes, store: MemoryStore | None = None) -> tuple[MemoryStore, str]:
    """The place of a file in memory."""
    store = MemoryStore() if store is None else store
    await store.put("file", data)
    return store, "file"


async def read_in_memory(data: bytes, *, reading: dict[str, Any] | None = None, **options: Any) -> pa.Table:
    """All rows, or those that the arguments of `read` name."""
    async with rpq.open(await in_memory(data), **options) as file:
        return pa.table(await file.read(**(reading or {})))


async def view_of(data: bytes, key: bytes, tail_bytes: int = 64, store: MemoryStore | None = None) -> DecryptedStore:
    """A file in the clear."""
    return await DecryptedStore.open(*await in_memory(data, store), DecryptionKeys.of(key), tail_bytes=tail_bytes)
