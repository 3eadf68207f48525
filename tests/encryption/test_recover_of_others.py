"""Damaged encrypted files of other writers: what is said of them without keys, and what comes back with them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from encrypted_files import CORPUS_KEYS, flipped, footer_start, sealed_of_corpus
from sampled import either

import resilient_pq as rpq

CORPUS = ("encrypt_columns_and_footer", "encrypt_columns_and_footer_ctr", "encrypt_columns_plaintext_footer")
UNIFORM = "uniform_encryption"

pytestmark = pytest.mark.filterwarnings(
    "ignore::resilient_pq.encryption.decrypted_store.UnverifiedPagesWarning",
    "ignore::resilient_pq.reader.opening.IncompleteFileWarning",
)


async def read(path: Path, **options: object) -> pa.Table:
    async with rpq.open(path, keys=CORPUS_KEYS, require_complete=False, **options) as file:
        plain = [] if path.name == "uniform.parquet" else ["double_field", "float_field"]
        return pa.table(await file.read(plain or [name for name in file.schema.names if name != "int96_field"]))


@pytest.mark.parametrize("name", [*CORPUS, UNIFORM])
async def test_without_keys_nothing_of_them_is_called_whole(tmp_path: Path, name: str) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed_of_corpus(name).read_bytes())
    report = await rpq.check(path)
    assert (report.outcome, report.exit_code) == ("unchecked", 1)
    assert report.notes and "no key was given" in report.notes[0]
    with pytest.raises(rpq.KeyMissingError, match="nothing can be checked without keys"):
        await rpq.recover(path, tmp_path / "saved.parquet")
    path.write_bytes(sealed_of_corpus(name).read_bytes()[:-10])
    assert (await rpq.check(path)).outcome in ("nothing", "damaged")
    for keys in (None, CORPUS_KEYS):
        with pytest.raises(rpq.NothingToRecoverError):
            await rpq.recover(path, tmp_path / "saved.parquet", keys=keys)


@pytest.mark.parametrize("name", [*CORPUS, UNIFORM])
async def test_with_keys_they_are_checked(tmp_path: Path, name: str) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed_of_corpus(name).read_bytes())
    report = await rpq.check(path, keys=CORPUS_KEYS)
    assert (report.outcome, report.findings) == ("sound", ())
    assert report.num_rows == (await read(path)).num_rows


@pytest.mark.parametrize("step", either([61], [1], 3000))
@pytest.mark.parametrize("name", [CORPUS[0], CORPUS[2], UNIFORM])  # nothing verifies the pages of the other one
async def test_a_changed_byte_is_never_a_wrong_value_and_never_a_wrong_key(
    tmp_path: Path, name: str, step: int
) -> None:
    data, path = sealed_of_corpus(name).read_bytes(), tmp_path / f"{name.partition('_')[0]}.parquet"
    path.write_bytes(data)
    expected = await read(path)
    for at in range(0, len(data), step):
        path.write_bytes(flipped(data, at, 1))
        try:
            found = await read(path)
        except rpq.WrongKeyError:
            # Nothing but its key vouches for the footer of another writer; the hint says that it may be damaged.
            assert at >= footer_start(data), f"the key is right, and byte {at} was changed"
        except rpq.ResilientPQError:
            continue
        assert found.equals(expected), at


async def test_another_key_is_a_wrong_key(tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    for name in (UNIFORM, *CORPUS):
        path.write_bytes(sealed_of_corpus(name).read_bytes())
        with pytest.raises(rpq.WrongKeyError):
            async with rpq.open(path, keys=b"another key 16 b"):
                pass
        for verb in (rpq.check(path, keys=b"another key 16 b"), rpq.recover(path, path, keys=b"another key 16 b")):
            with pytest.raises((rpq.WrongKeyError, rpq.RecoveryError)):
                await verb
