"""What rows are not appended to, and what two do who append at one time."""

from __future__ import annotations

import asyncio
import base64
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

import resilient_pq as rpq
from resilient_pq import sync
from resilient_pq.io.memory_store import MemoryStore


class _Keys(encryption.KmsClient):
    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[Path], rpq.ResilientPQError]:
    def append(path: Path) -> rpq.ResilientPQError:
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(rpq.ResilientPQError) as caught, sync.append(path):
            raise AssertionError("it is not refused")
        assert (path.read_bytes() if path.exists() else None) == before
        assert not path.with_name(path.name + ".partial").exists()
        return caught.value

    return append


def test_no_file(tmp_path: Path, refused: Any) -> None:
    error = refused(tmp_path / "a.parquet")
    assert isinstance(error, FileNotFoundError)
    assert "create" in (error.hint or "")


def changed(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


ANYWHERE = [
    lambda data: data[:-5],
    lambda data: data + b"more",
    lambda data: b"PAR2" + data[4:],
    lambda data: b"a,b\n1,2\n",
    lambda data: b"",
]


@pytest.mark.parametrize("damage", ANYWHERE)
def test_damaged(damage: Any, original: Callable[[str], Path], refused: Any) -> None:
    path = original("pyarrow")
    path.write_bytes(damage(path.read_bytes()))
    assert "rpq check" in (refused(path).hint or "")


@pytest.mark.parametrize("damage", [*ANYWHERE, changed(-200), changed(-2000)])
def test_ours_damaged(damage: Any, original: Callable[[str], Path], refused: Any) -> None:
    path = original("ours")
    path.write_bytes(damage(path.read_bytes()))
    assert "rpq check" in (refused(path).hint or "")


def test_encrypted(original: Callable[[str], Path], refused: Any) -> None:
    path = original("pyarrow")
    path.write_bytes(b"PARE" + path.read_bytes()[4:-4] + b"PARE")
    assert "encrypted" in str(refused(path))
    path.unlink()
    factory = encryption.CryptoFactory(lambda _: _Keys())
    config = encryption.EncryptionConfiguration(footer_key="k", column_keys={"k": ["a"]}, plaintext_footer=True)
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    pq.write_table(pa.table({"a": [1], "b": [2]}), path, encryption_properties=properties)
    assert "encrypted" in str(refused(path))


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_encrypted_by_us(plaintext_footer: bool, tmp_path: Path, refused: Any, rows_of: Any) -> None:
    encryption = rpq.Encryption(bytes(16), plaintext_footer=plaintext_footer)
    sync.write(tmp_path / "a.parquet", rows_of(0, 10), encryption=encryption)
    error = refused(tmp_path / "a.parquet")
    assert "encrypted" in str(error) and error.hint is None
    sync.write(tmp_path / "b.parquet", rows_of(0, 10))
    with pytest.raises(rpq.OptionError, match="encrypted"):
        sync.append(tmp_path / "b.parquet", encryption=encryption)


def test_of_another_kind(tmp_path: Path, refused: Any, rows_of: Any) -> None:
    with sync.create_dataset(str(tmp_path / "days")) as writer:
        writer.write(rows_of(0, 10))
    (file,) = (tmp_path / "days").glob("*.parquet")
    assert "resume_dataset" in (refused(file).hint or "")
    sync.write_metadata(str(tmp_path / "days"))
    assert "summary" in str(refused(tmp_path / "days" / "_metadata"))
    whole = tmp_path / "a.parquet"
    with pytest.raises(KeyError), sync.create(whole) as writer:
        writer.write(rows_of(0, 10))
        writer.checkpoint()
        raise KeyError
    cut = tmp_path / "cut.parquet"
    cut.write_bytes((tmp_path / "a.parquet.partial").read_bytes())
    assert "rpq.resume" in (refused(cut).hint or "")


async def test_where_nothing_can_be_copied() -> None:
    with pytest.raises(rpq.UnsupportedError, match="appended"):
        async with rpq.append("memory://a.parquet"):
            pass


def test_a_recovered_file_stays_one(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("ours")
    path.write_bytes(path.read_bytes()[:-5000])
    saved = path.with_name("saved.parquet")
    sync.recover(path, saved)
    before = sync.open(saved).key_value_metadata["rpq.recovered_from"]
    with sync.append(saved) as writer:
        rows = writer.num_rows
        writer.write(rows_of(0, 5))
    with sync.open(saved) as file:
        assert (file.state, file.num_rows) == ("salvaged", rows + 5)
        assert file.key_value_metadata["rpq.recovered_from"] == before


def test_a_link_stays_one_and_permissions_stay(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("ours")
    path.chmod(0o640)
    link = path.with_name("newest.parquet")
    link.symlink_to(path.name)
    with sync.append(link) as writer:
        writer.write(rows_of(0, 5))
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert pq.read_metadata(path).num_rows == 3005


async def test_one_of_two_appends(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("pyarrow")
    async with rpq.append(path) as writer:
        await writer.write(rows_of(3000, 3010))
        with pytest.raises(rpq.AlreadyExistsError, match="append again"):
            async with rpq.append(path):
                pass
    async with rpq.append(path) as writer:
        await writer.write(rows_of(3010, 3020))
    assert pq.read_table(path).equals(rows_of(0, 3020))


@pytest.mark.parametrize("fencing", ["lease", "none"])
async def test_of_two_at_once_on_s3_one_appends(fencing: Any, originals: dict[str, bytes], rows_of: Any) -> None:
    store, stored = MemoryStore(), []
    await store.put("a", originals["ours"])

    async def append(number: int) -> None:
        async with rpq.append((store, "a"), fencing=fencing) as writer:
            await writer.write(rows_of(number, number + 10))
            await writer.checkpoint()
            await asyncio.sleep(0.01)
        stored.append(number)

    outcomes = await asyncio.gather(*(append(number) for number in (10_000, 20_000, 30_000)), return_exceptions=True)
    failed = [error for error in outcomes if error is not None]
    assert len(stored) == 1
    for error in failed:
        assert isinstance(error, rpq.AlreadyExistsError | rpq.ObjectChangedError | rpq.WriterFencedError)
        assert "append" in f"{error} {error.hint}"
    table = pq.read_table(pa.BufferReader(bytes((await store.read_tail("a", 1 << 30)).data)))
    assert table.equals(pa.concat_tables([rows_of(0, 3000), rows_of(stored[0], stored[0] + 10)]))


async def test_a_file_that_was_replaced_meanwhile(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("ours")
    with pytest.raises(rpq.ObjectChangedError) as caught:
        async with rpq.append(path) as writer:
            await writer.write(rows_of(3000, 3010))
            pq.write_table(rows_of(0, 7), path.with_name("other"))
            os.replace(path.with_name("other"), path)
    assert "append" in (caught.value.hint or "")
    assert pq.read_table(path).equals(rows_of(0, 7))


async def test_readers_keep_the_version_that_they_opened(original: Callable[[str], Path], rows_of: Any) -> None:
    path = original("ours")
    store = MemoryStore()
    await store.put("a", path.read_bytes())
    async with rpq.open(path) as local, rpq.open((store, "a")) as remote:
        for url in (path, (store, "a")):
            async with rpq.append(url) as writer:
                await writer.write(rows_of(3000, 3010))
        for file in (local, remote):
            with suppress(rpq.ObjectChangedError):
                assert pa.table(await file.read()).equals(rows_of(0, 3000))
