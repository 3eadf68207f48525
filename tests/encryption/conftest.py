"""What the tests of encryption share: a table of many shapes, keys, and other readers of encrypted files."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from encrypted_files import MODES, rows_of, sealed_file


@pytest.fixture(scope="session", params=MODES)
def sealed(request: pytest.FixtureRequest) -> bytes:
    """Our file of 300 rows in three row groups, with a checkpoint behind the second."""
    return sealed_file(rows_of(300), mode=request.param)


@pytest.fixture(scope="session")
def many_shapes() -> pa.Table:
    """Numbers, text with and without a dictionary, nulls, lists, structs: 1,000 rows."""
    rows = range(1000)
    return pa.table(
        {
            "number": pa.array(rows, pa.int64()),
            "half": pa.array([None if i % 3 else i / 2 for i in rows], pa.float64()),
            "city": pa.array([f"city {i % 7}" for i in rows]),
            "name": pa.array([f"name {i}" if i % 11 else None for i in rows]),
            "flag": pa.array([i % 5 == 0 for i in rows]),
            "tags": pa.array([[f"tag {k}" for k in range(i % 4)] if i % 9 else None for i in rows]),
            "place": pa.array([{"x": i, "y": f"y {i}"} for i in rows]),
        }
    )


class _InTheOpen(pe.KmsClient):
    """Keys that are wrapped by nothing."""

    def __init__(self, _: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


def key_material(key: bytes, *, footer: bool) -> bytes:
    """Key metadata as pyarrow and parquet-java write them, for a KMS that wraps nothing."""
    material = {
        "keyMaterialType": "PKMT1",
        "internalStorage": True,
        "isFooterKey": footer,
        "masterKeyID": "master",
        "wrappedDEK": base64.b64encode(key).decode(),
        "doubleWrapping": False,
        **({"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"} if footer else {}),
    }
    return json.dumps(material).encode()


class PyArrowReader:
    """pyarrow, with the footer key alone, or with keys by a KMS."""

    def __init__(self) -> None:
        self._factory = pe.CryptoFactory(_InTheOpen)

    def read(
        self, path: Path, key: bytes | None = None, *, aad_prefix: bytes | None = None, **options: Any
    ) -> pa.Table:
        """All rows; without a key, with those that the key metadata name."""
        if key is None:
            properties = self._factory.file_decryption_properties(
                pe.KmsConnectionConfig(), pe.DecryptionConfiguration()
            )
        else:
            prefix = {} if aad_prefix is None else {"aad_prefix": aad_prefix}
            properties = pe.create_decryption_properties(key, **prefix)
        opened = pq.ParquetFile(path, decryption_properties=properties, page_checksum_verification=True)
        return opened.read(**options)

    def material(self, footer_key: bytes, column_keys: Mapping[str, bytes]) -> dict[str, Any]:
        """The arguments of `Encryption` by which `read` gets the keys from its KMS."""
        return {
            "footer_key_metadata": key_material(footer_key, footer=True),
            "column_key_metadata": {name: key_material(key, footer=False) for name, key in column_keys.items()},
        }


@pytest.fixture(scope="session")
def pyarrow_reader() -> PyArrowReader:
    return PyArrowReader()
