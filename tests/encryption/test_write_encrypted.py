"""Encrypted files of ours as other libraries read them, and as the specification's words have them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encrypted_files import KEYS_BY_BITS as KEYS
from encrypted_modules import EncryptedFile, records
from sampled import either

import resilient_pq as rpq

CITY, PLACE = b"the key of city.", b"the key of place, which has 32 b"
PREFIX = b"the file of Monday"
ALGORITHMS = ("AES_GCM_V1", "AES_GCM_CTR_V1")
MATRIX = list(itertools.product(KEYS, ALGORITHMS, (False, True), ("none", "stored", "supplied"), ("1.0", "2.0")))


async def written(path: Path, table: Any, encryption: rpq.Encryption, **options: Any) -> Path:
    settings = rpq.WriteOptions(page_rows=64, bloom_filter_options=["number", "city"], **options.pop("options", {}))
    options = {"row_group_rows": 300, "checkpoint_every": 1, "checkpoint_overhead": 100.0, **options}
    async with rpq.create(path, encryption=encryption, options=settings, **options) as writer:
        await writer.write(table)
    return path


def same(found: pa.Table, expected: pa.Table) -> bool:
    return found.cast(expected.schema).equals(expected)


@pytest.mark.parametrize(
    ("bits", "algorithm", "plaintext_footer", "prefix", "version"),
    either(MATRIX[::7], [case for i, case in enumerate(MATRIX) if i % 7]),
)
async def test_pyarrow_reads_files_of_one_key(
    bits: int, algorithm: Any, plaintext_footer: bool, prefix: str, version: str,
    tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any,
) -> None:  # fmt: skip
    path = tmp_path / "a.parquet"
    encryption = rpq.Encryption(
        KEYS[bits],
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        aad_prefix=None if prefix == "none" else PREFIX,
        store_aad_prefix=prefix != "supplied",
    )
    await written(path, many_shapes, encryption, options={"data_page_version": version})
    supplied = PREFIX if prefix == "supplied" else None
    assert same(pyarrow_reader.read(path, KEYS[bits], aad_prefix=supplied), many_shapes)
    opened = EncryptedFile(path.read_bytes(), KEYS[bits], prefix=supplied)
    assert {module.type for module in opened.modules} >= {0, 2, 3, 4, 5, 6, 7, 8, 9}


def of_columns(reader: Any, **options: Any) -> rpq.Encryption:
    keys = {"city": CITY, "place": PLACE}
    return rpq.Encryption(KEYS[256], keys, **reader.material(KEYS[256], keys), **options)


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_pyarrow_reads_columns_with_keys_of_their_own(
    algorithm: str, plaintext_footer: bool, tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any
) -> None:
    """By its KMS, as it takes no column keys otherwise; `place` stands for its fields."""
    options = {"algorithm": algorithm, "plaintext_footer": plaintext_footer, "plaintext_columns": ["half", "tags"]}
    path = await written(tmp_path / "a.parquet", many_shapes, of_columns(pyarrow_reader, **options))
    assert same(pyarrow_reader.read(path), many_shapes)
    opened = EncryptedFile(path.read_bytes(), KEYS[256], {"city": CITY, "place.x": PLACE, "place.y": PLACE})
    keys = [opened.key_of(chunk) for chunk in opened.metadata.row_groups[0].columns]
    assert keys == [KEYS[256], None, CITY, KEYS[256], KEYS[256], None, PLACE, PLACE]
    for chunk in opened.metadata.row_groups[0].columns:
        if plaintext_footer and opened.key_of(chunk) is not None:
            assert chunk.meta_data is not None and chunk.encrypted_column_metadata is not None
            shown = chunk.meta_data
            assert (shown.statistics, shown.size_statistics, shown.key_value_metadata) == (None, None, None)
            assert (shown.encoding_stats, shown.bloom_filter_offset) == (None, None)


async def test_columns_in_the_clear_need_no_key(tmp_path: Path, many_shapes: pa.Table) -> None:
    encryption = rpq.Encryption(KEYS[128], plaintext_footer=True, plaintext_columns=["half", "tags"])
    path = await written(tmp_path / "a.parquet", many_shapes, encryption)
    opened = pq.ParquetFile(path, page_checksum_verification=True)
    shown = many_shapes.select(["half", "tags"])
    assert same(opened.read(columns=["half", "tags"]), shown)
    assert opened.metadata.row_group(0).column(1).statistics.has_min_max
    assert not opened.metadata.row_group(0).column(0).is_stats_set


@pytest.mark.parametrize("bits", [128, 256])
async def test_duckdb_reads_files_of_one_key(bits: int, tmp_path: Path) -> None:
    """Without filters, in chunks of one page, and no lists: version 2.0 fails on others, pyarrow's too."""
    table = pa.table({"number": range(1000), "city": [f"city {i % 7}" for i in range(1000)]})
    encryption = rpq.Encryption(KEYS[bits])
    async with rpq.create(tmp_path / "a.parquet", encryption=encryption, row_group_rows=300) as writer:
        await writer.write(table)
    with duckdb.connect() as connection:
        connection.execute(f"PRAGMA add_parquet_key('k', '{KEYS[bits].decode()}')")
        scan = f"read_parquet('{tmp_path}/a.parquet', encryption_config={{footer_key: 'k'}})"
        assert connection.sql(f"SELECT * FROM {scan}").fetchall() == [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("plaintext_footer", [False, True])
async def test_a_file_without_rows(plaintext_footer: bool, tmp_path: Path, pyarrow_reader: Any) -> None:
    schema = pa.schema({"number": pa.int64(), "city": pa.string()})
    encryption = rpq.Encryption(KEYS[128], plaintext_footer=plaintext_footer)
    async with rpq.create(tmp_path / "a.parquet", schema, encryption=encryption):
        pass
    assert pyarrow_reader.read(tmp_path / "a.parquet", KEYS[128]).num_rows == 0


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("parity", [None, 0.05])
async def test_every_checkpoint_ends_an_encrypted_file(
    parity: float | None, plaintext_footer: bool, tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any
) -> None:
    encryption = of_columns(pyarrow_reader, plaintext_footer=plaintext_footer)
    path = await written(tmp_path / "a.parquet", many_shapes, encryption, parity=parity)
    data, counted = path.read_bytes(), []
    for record in records(data):
        if record.kind in ("anchor", "checkpoint", "final"):
            (tmp_path / "cut.parquet").write_bytes(data[: record.end])
            found = pyarrow_reader.read(tmp_path / "cut.parquet")
            counted.append(found.num_rows)
            assert same(found, many_shapes.slice(0, found.num_rows))
    assert counted == [0, 300, 600, 900, 1000]


async def test_records_say_nothing_in_the_clear(tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any) -> None:
    """Where they may: with a plaintext footer, the numbers of rows and row groups are no secret."""
    for plaintext_footer in (False, True):
        encryption = of_columns(pyarrow_reader, plaintext_footer=plaintext_footer)
        path = await written(tmp_path / "a.parquet", many_shapes, encryption)
        shown = {(record.num_rows, record.num_row_groups) for record in records(path.read_bytes())}
        assert (shown == {(0, 0)}) is not plaintext_footer


async def test_every_byte_is_vouched_for_in_the_clear(tmp_path: Path, many_shapes: pa.Table) -> None:
    """By the CRC32 of a record, or by that in the payload of the record before it: without keys, all can be checked."""
    import zlib

    encryption = rpq.Encryption(KEYS[128], {"city": CITY}, plaintext_columns=["half"])
    path = await written(tmp_path / "a.parquet", many_shapes, encryption)
    data = path.read_bytes()
    end = 4
    for record in records(data):
        assert not data[end : record.offset].strip(b"\0")
        end = record.end
        if record.kind in ("chunk", "span"):
            size = int.from_bytes(record.payload[:8], "little")
            assert zlib.crc32(data[end : end + size]) == int.from_bytes(record.payload[8:12], "little")
            end += size
    assert end == len(data)


async def test_no_nonce_comes_twice(tmp_path: Path, many_shapes: pa.Table) -> None:
    path = await written(tmp_path / "a.parquet", many_shapes, rpq.Encryption(KEYS[128]), parity="5%")
    opened = EncryptedFile(path.read_bytes(), KEYS[128])
    nonces = [module.nonce for module in opened.modules]
    assert len(set(nonces)) == len(nonces) > 100


async def test_pages_of_a_chunk_are_no_more_than_their_ordinals(
    tmp_path: Path, pyarrow_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resilient_pq.format.pages.page_encoder.MAX_SEALED_PAGES", 10)
    table = pa.table({"number": np.arange(5000)})
    encryption = rpq.Encryption(KEYS[128])
    options = rpq.WriteOptions(page_rows=7)
    async with rpq.create(tmp_path / "a.parquet", encryption=encryption, page_bytes=64, options=options) as writer:
        await writer.write(table)
    assert same(pyarrow_reader.read(tmp_path / "a.parquet", KEYS[128]), table)
    opened = EncryptedFile((tmp_path / "a.parquet").read_bytes(), KEYS[128])
    assert 1 < sum(module.type == 2 for module in opened.modules) <= 10


async def test_what_cannot_be_encrypted_is_refused(tmp_path: Path) -> None:
    key = KEYS[128]
    refused: list[tuple[dict[str, Any], str]] = [
        ({"footer_key": b"short"}, "footer_key: an encryption key is bytes, 16, 24 or 32 of them, not 5 bytes"),
        ({"footer_key": "0123456789abcdef"}, "not str"),
        ({"footer_key": key, "column_keys": {"a": b"x" * 17}}, "a: an encryption key"),
        ({"footer_key": key, "column_keys": {"a": key}, "plaintext_columns": ["a"]}, "'a' has a key, and is among"),
        ({"footer_key": key, "plaintext_columns": "a"}, "one string"),
        ({"footer_key": key, "algorithm": "AES"}, "algorithm is 'AES'"),
        ({"footer_key": key, "store_aad_prefix": False}, "needs an aad_prefix"),
        ({"footer_key": key, "aad_prefix": "text"}, "aad_prefix is str; it is bytes"),
        ({"footer_key": key, "column_key_metadata": {"a": b"a"}}, "has no key in column_keys"),
        (
            {"footer_key": key, "column_keys": {"a": key}, "column_key_metadata": {"a": "m"}},
            "of 'a' is str; it is bytes",
        ),
        ({"footer_key": key, "column_key_metadata": None}, "column_key_metadata is a mapping"),
        ({"footer_key": key, "column_keys": [key]}, "column_keys is a mapping"),
        ({"footer_key": key, "column_keys": {b"a": key}}, "column_keys is a mapping of the paths"),
        ({"footer_key": key, "plaintext_columns": 5}, "plaintext_columns is a list"),
        ({"footer_key": key, "plaintext_columns": [5]}, "plaintext_columns is a list of the paths"),
    ]
    for given, message in refused:
        with pytest.raises(rpq.OptionError, match=message) as caught:
            rpq.Encryption(**given)
        assert "x" * 17 not in str(caught.value)
    with pytest.raises(rpq.SchemaError, match="no column 'b'"):
        async with rpq.create(
            tmp_path / "a.parquet", pa.schema({"a": pa.int32()}), encryption=rpq.Encryption(key, {"b": key})
        ):
            pass
    with pytest.raises(rpq.OptionError, match=r"takes rpq\.Encryption"):
        rpq.create(tmp_path / "a.parquet", encryption=key)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


async def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(rpq.UnsupportedError) as caught:
        rpq.Encryption(KEYS[128])
    assert "resilient_pq[encryption]" in (caught.value.hint or "")
