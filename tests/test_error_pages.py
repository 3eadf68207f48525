"""The messages on the pages of docs/errors are those of the libraries that are installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PAGES = Path(__file__).resolve().parent.parent / "docs" / "errors"


def _changed(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A file whose first page is the dictionary of its first column."""
    path = tmp_path_factory.mktemp("whole") / "whole.parquet"
    pq.write_table(pa.table({"name": [f"name {n % 997}" for n in range(5_000)]}), path)
    return path.read_bytes()


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "cut": ("parquet-magic-bytes-not-found", lambda data: data[: len(data) // 2]),
    "empty": ("parquet-file-size-is-0-bytes", lambda _: b""),
    "begun": ("parquet-file-size-is-0-bytes", lambda data: data[:4]),
    "length": ("couldnt-deserialize-thrift", lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1"),
    "footer": (
        "couldnt-deserialize-thrift",
        lambda data: _changed(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"), b"\0"),
    ),
    "page header": ("corrupt-snappy-compressed-data", lambda data: _changed(data, 4, b"\xff" * 12)),
    "page": ("corrupt-snappy-compressed-data", lambda data: _changed(data, 3_000, b"\xff" * 200)),
    "encrypted": ("could-not-read-encrypted-metadata", lambda data: data[:-4] + b"PARE"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_page_has_the_message(damage: str, data: bytes, tmp_path: Path) -> None:
    page, spoil = DAMAGE[damage]
    path = tmp_path / "FILE"
    path.write_bytes(spoil(data))
    text = (PAGES / f"{page}.md").read_text()
    messages = [part for line in text.splitlines() if line.startswith("| ") for part in line.split("`")[1::2]]
    for read in (pq.read_table, lambda file: duckdb.sql(f"from read_parquet('{file}')").fetchall(), pl.read_parquet):
        with pytest.raises(Exception) as raised:  # noqa: PT011
            read(str(path))
        told = str(raised.value).replace(str(path), "FILE")
        assert [message for message in messages if message in told], told
