"""Encrypted files of other writers, read with keys: values, filters, single pages, and what is refused."""

from __future__ import annotations

import asyncio
import io
import random
import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from encrypted_files import (
    CORPUS_FOOTER_KEY,
    CORPUS_KEYS,
    flipped,
    in_memory,
    read_in_memory,
    sealed_of_corpus,
    view_of,
)
from sampled import either

import resilient_pq as rpq
from resilient_pq.encryption.decrypted_store import UnverifiedPagesWarning

CORPUS = {
    "encrypt_columns_and_footer": {},
    "encrypt_columns_and_footer_aad": {},
    "encrypt_columns_and_footer_ctr": {},
    "encrypt_columns_and_footer_disable_aad_storage": {"aad_prefix": b"tester"},
    "encrypt_columns_plaintext_footer": {},
}


def table(num_rows: int = 3000, seed: int = 1) -> pa.Table:
    """Numbers, text with a dictionary, unique text, lists and nulls; `id` is sorted."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "id": pa.array(np.arange(num_rows)),
            "word": pa.array([f"word{n % 17}" for n in range(num_rows)]),
            "text": pa.array([None if n % 7 == 0 else f"text {n} {rng.integers(1e9)}" for n in range(num_rows)]),
            "value": pa.array(rng.normal(size=num_rows)),
            "list": pa.array([list(range(n % 4)) for n in range(num_rows)]),
        }
    )


def encrypted(data: pa.Table, *, key: bytes = CORPUS_FOOTER_KEY, **options: Any) -> bytes:
    """A file of pyarrow, all of it encrypted with one key."""
    names = ("aad_prefix", "store_aad_prefix", "encryption_algorithm", "plaintext_footer")
    about = {name: options.pop(name) for name in names if name in options}
    properties = pe.create_encryption_properties(footer_key=key, **about)
    sink = io.BytesIO()
    settings = {"row_group_size": 1000, "data_page_size": 900, "write_page_index": True, "compression": "zstd"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pq.write_table(data, sink, encryption_properties=properties, write_batch_size=50, **{**settings, **options})
    return sink.getvalue()


async def read(data: bytes, *, keys: Any = CORPUS_FOOTER_KEY, **options: Any) -> pa.Table:
    return await read_in_memory(data, keys=keys, **options)


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return table()


@pytest.fixture(scope="module")
def uniform(rows: pa.Table) -> bytes:
    return encrypted(rows)


@pytest.mark.parametrize("name", CORPUS)
@pytest.mark.filterwarnings("ignore::resilient_pq.encryption.decrypted_store.UnverifiedPagesWarning")
async def test_files_of_the_corpus_have_the_values_of_the_uniform_one(name: str) -> None:
    oracle = sealed_of_corpus("uniform_encryption")
    properties = pe.create_decryption_properties(footer_key=CORPUS_FOOTER_KEY)
    expected = pq.read_table(oracle, decryption_properties=properties)
    async with rpq.open(sealed_of_corpus(name), keys=CORPUS_KEYS, **CORPUS[name]) as file:
        found = pa.table(await file.read([column for column in expected.column_names if column != "int96_field"]))
    assert found.to_pydict() == expected.select(found.column_names).to_pydict()


async def test_an_encrypted_bloom_filter_is_used() -> None:
    path = sealed_of_corpus("encrypt_columns_and_footer_bloom_filter")
    async with rpq.open(path, keys=CORPUS_KEYS) as file:
        everything = pa.table(await file.read())
        column = next(name for name in everything.column_names if everything[name].type == pa.string())
        wanted = everything[column][0].as_py()
        found = pa.table(await file.read(filters=[(column, "==", wanted)]))
        assert found.num_rows == everything[column].to_pylist().count(wanted) > 0
        assert (await file.read(filters=[(column, "==", wanted + "0")])).num_rows == 0


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("size", [16, 24, 32])
async def test_files_of_pyarrow(rows: pa.Table, algorithm: str, size: int) -> None:
    key = bytes(range(size))
    data = encrypted(rows, key=key, encryption_algorithm=algorithm, write_page_checksum=True)
    assert (await read(data, keys=key)).equals(rows)


async def test_pages_that_nothing_verifies_are_told(rows: pa.Table) -> None:
    data = encrypted(rows, encryption_algorithm="AES_GCM_CTR_V1")
    with pytest.warns(UnverifiedPagesWarning, match="AES_GCM_CTR_V1 without page CRC32"):
        assert (await read(data)).equals(rows)


@pytest.mark.parametrize("plaintext_footer", [False, True])
async def test_an_aad_prefix_is_stored_or_given(rows: pa.Table, plaintext_footer: bool) -> None:
    stored = encrypted(rows, aad_prefix=b"file 1", store_aad_prefix=True, plaintext_footer=plaintext_footer)
    assert (await read(stored)).equals(rows)
    assert (await read(stored, aad_prefix=b"file 1")).equals(rows)
    with pytest.raises(rpq.OptionError, match="another AAD prefix"):
        await read(stored, aad_prefix=b"file 2")
    given = encrypted(rows, aad_prefix=b"file 1", store_aad_prefix=False, plaintext_footer=plaintext_footer)
    assert (await read(given, aad_prefix=b"file 1")).equals(rows)
    with pytest.raises(rpq.OptionError, match="AAD prefix that it does not store") as caught:
        await read(given)
    assert "aad_prefix=" in str(caught.value.hint)
    with pytest.raises((rpq.WrongKeyError, rpq.AuthenticationError)):
        await read(given, aad_prefix=b"file 2")


async def test_filters_and_single_pages_give_what_they_give_in_the_clear(rows: pa.Table, uniform: bytes) -> None:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=1000, data_page_size=900, write_batch_size=50, write_page_index=True)
    plain = sink.getvalue()
    asked: list[dict[str, Any]] = [
        {"filters": [("id", ">=", 1490), ("id", "<", 1512)]},
        {"filters": [("word", "==", "word3")], "columns": ["id", "list"]},
        {"limit": 7},
        {"columns": ["list"]},
        {"filters": [("text", "==", rows["text"][1234].as_py())]},
        {"filters": [("id", "==", -1)]},
    ]
    for reading in asked:
        assert (await read(uniform, reading=reading)).equals(await read(plain, keys=None, reading=reading)), reading


async def test_a_filter_reads_only_pages_that_it_needs(rows: pa.Table, uniform: bytes) -> None:
    options = rpq.ReadOptions(tail_bytes=8192, merge_gap=0)
    async with rpq.open(await in_memory(uniform), keys=CORPUS_FOOTER_KEY, options=options) as file:
        found = await file.read(["value"], filters=[("id", "==", 1500)])
        assert found.num_rows == 1
        assert file.counters.bytes < len(uniform) // 2


async def test_any_range_of_the_view_is_that_part_of_all_of_it(uniform: bytes) -> None:
    shared, other = [await view_of(uniform, CORPUS_FOOTER_KEY, 4096) for _ in range(2)]
    info = await other.head("file")
    whole = bytes(await other.read_range("file", 0, info.size, pin=info))
    generator = random.Random(5)
    for turn in range(60):
        start, end = sorted(generator.sample(range(info.size + 1), 2))
        one = shared if turn % 2 else await view_of(uniform, CORPUS_FOOTER_KEY, 4096)
        assert bytes(await one.read_range("file", start, end, pin=info)) == whole[start:end]
    assert pq.read_table(io.BytesIO(whole)).num_rows == 3000  # to any other reader it is a Parquet file, too


def test_files_of_duckdb(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "file.parquet"
    connection = duckdb.connect()
    connection.register("rows", rows)
    connection.execute("SET force_mbedtls_unsafe = 'true'")
    connection.execute("PRAGMA add_parquet_key('key', '0123456789012345')")
    connection.execute(f"COPY rows TO '{path}' (ENCRYPTION_CONFIG {{footer_key: 'key'}}, ROW_GROUP_SIZE 2048)")
    with rpq.sync.open(path, keys={"footer": CORPUS_FOOTER_KEY}) as file:
        assert pa.table(file.read()).to_pydict() == rows.to_pydict()


async def test_keys_may_come_in_any_way(rows: pa.Table) -> None:
    path = sealed_of_corpus("encrypt_columns_and_footer")
    asked: list[bytes] = []

    def key_of(key_metadata: bytes) -> bytes:
        asked.append(key_metadata)
        return CORPUS_KEYS[key_metadata.decode()]

    async def later(key_metadata: bytes) -> bytes:
        await asyncio.sleep(0)
        return key_of(key_metadata)

    by_column = {"footer": CORPUS_FOOTER_KEY, "double_field": b"1234567890123450", "float_field": b"1234567890123451"}
    for keys in (key_of, later, by_column):
        async with rpq.open(path, keys=keys) as file:
            assert (await file.read(["double_field", "float_field"])).num_rows == 50
    assert set(asked) == {b"kf", b"kc1", b"kc2"}


async def test_columns_without_a_key_are_missing_and_the_others_are_read() -> None:
    path = sealed_of_corpus("encrypt_columns_and_footer")
    async with rpq.open(path, keys={"footer": CORPUS_FOOTER_KEY, "kc1": b"1234567890123450"}) as file:
        assert (await file.read(["double_field", "int32_field"])).num_rows == 50
        with pytest.raises(rpq.KeyMissingError, match="float_field") as caught:
            await file.read(["float_field"])
        assert "keys=" in str(caught.value.hint)


async def test_without_any_key_the_footer_says_so(uniform: bytes) -> None:
    with pytest.raises(rpq.KeyMissingError, match="the footer is encrypted") as caught:
        await read(uniform, keys=None)
    assert "keys=" in str(caught.value.hint)
    with pytest.raises(rpq.KeyMissingError, match="footer"):
        await read(uniform, keys={"other": CORPUS_FOOTER_KEY})


async def test_a_plaintext_footer_opens_without_keys(rows: pa.Table) -> None:
    async with rpq.open(await in_memory(encrypted(rows, plaintext_footer=True))) as file:
        assert file.num_rows == 3000
        with pytest.raises(rpq.KeyMissingError, match="id"):
            await file.read(["id"])


async def test_another_key_is_told_as_that(uniform: bytes) -> None:
    wrong = b"5432109876543210"
    with pytest.raises(rpq.WrongKeyError) as caught:
        await read(uniform, keys=wrong)
    assert "5432109876543210" not in str(caught.value) + repr(caught.value)


async def test_a_file_in_the_clear_is_no_encrypted_one(rows: pa.Table) -> None:
    """Whoever exchanges the file for one of their own does not know the key."""
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    with pytest.raises(rpq.AuthenticationError, match="is not encrypted"):
        await read(sink.getvalue())


async def test_a_changed_signature_is_found(rows: pa.Table) -> None:
    data = encrypted(rows, plaintext_footer=True)
    with pytest.raises((rpq.AuthenticationError, rpq.WrongKeyError)):
        await read(flipped(data, len(data) - 20))


async def _read_or_error(data: bytes) -> pa.Table | rpq.ResilientPQError:
    try:
        return await read(data, require_complete=False)
    except rpq.ResilientPQError as error:
        return error


@pytest.fixture(scope="module")
def small() -> tuple[pa.Table, bytes]:
    rows = table(120).select(["id", "word", "text"])
    return rows, encrypted(rows, row_group_size=60)


@pytest.mark.parametrize("share", either([0.03], [1]))
async def test_a_flipped_bit_never_gives_other_values(small: tuple[pa.Table, bytes], share: float) -> None:
    rows, data = small
    places, same = random.Random(11).sample(range(len(data)), int(share * len(data))), 0
    assert len(places) > 100
    for at in places:
        found = await _read_or_error(flipped(data, at, 1 << at % 8))
        if isinstance(found, pa.Table):
            assert found.equals(rows), at
            same += 1
    assert same < len(places) // 2
