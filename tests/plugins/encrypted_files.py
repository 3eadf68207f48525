"""Encrypted files of some rows, for the tests of checks and recoveries."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

import resilient_pq as rpq

FOOTER_KEY = b"footer key 16 by"
SECRET_KEY = b"secret key 16 by"
KEYS = {"footer": FOOTER_KEY, "word": SECRET_KEY}
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
