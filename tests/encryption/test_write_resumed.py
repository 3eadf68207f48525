"""Encrypted files that a writer left unfinished: gone on with, with the same keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encrypted_modules import EncryptedFile, check_nonces, records
from sampled import either

import resilient_pq as rpq

FOOTER, CITY = b"footer key of thirty-two bytes..", b"the key of city."
ROWS = 1000


class _KilledError(Exception):
    pass


def encryption(reader: Any, **options: Any) -> rpq.Encryption:
    keys = {"city": CITY}
    return rpq.Encryption(FOOTER, keys, plaintext_columns=["half"], **reader.material(FOOTER, keys), **options)


async def unfinished(path: Path, table: pa.Table, given: rpq.Encryption, **options: Any) -> bytes:
    """What a writer leaves that is killed before its last row group is complete."""
    settings = rpq.WriteOptions(page_rows=40, bloom_filter_options=["number", "city", "half"])
    with pytest.raises(_KilledError):
        async with rpq.create(
            path, encryption=given, row_group_rows=100, checkpoint_every=3, checkpoint_overhead=9.0, options=settings,
            **options,
        ) as writer:  # fmt: skip
            await writer.write(table.slice(0, 850))
            raise _KilledError
    return path.with_name(path.name + ".partial").read_bytes()


async def finished(path: Path, table: pa.Table, given: rpq.Encryption, **options: Any) -> int:
    """Go on with the file to its end; gives the rows that were there."""
    async with rpq.resume(path, encryption=given, row_group_rows=100, **options) as writer:
        stored = writer.num_rows_stored
        await writer.write(table.slice(stored))
    return stored


@pytest.mark.parametrize("parity", [None, "5%"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
async def test_a_file_is_gone_on_with(
    parity: str | None, plaintext_footer: bool, tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any
) -> None:
    given, path = encryption(pyarrow_reader, plaintext_footer=plaintext_footer), tmp_path / "a.parquet"
    data = await unfinished(path, many_shapes, given, parity=parity)
    before = EncryptedFile(
        data[: [each for each in records(data) if each.kind == "checkpoint"][-1].end], FOOTER, {"city": CITY}
    )
    assert await finished(path, many_shapes, given) == 800
    assert pyarrow_reader.read(path).cast(many_shapes.schema).equals(many_shapes)
    with rpq.sync.open(path, **given.reading()) as file:
        assert file.num_rows == ROWS
        assert pa.table(file.read(filters=[("number", "==", 5)]))["city"].to_pylist() == ["city 5"]
    after = EncryptedFile(path.read_bytes(), FOOTER, {"city": CITY})
    assert {each.number for each in records(path.read_bytes())} == {*range(len(records(path.read_bytes())))}
    # What was sealed in the two runs, that of the same bytes counted once.
    assert check_nonces([*before.modules, *after.modules]) > len(after.modules)


async def check_cut(path: Path, data: bytes, size: int, table: pa.Table, given: rpq.Encryption, reader: Any) -> int:
    path.with_name(path.name + ".partial").write_bytes(data[:size])
    async with rpq.create_or_resume(path, table.schema, encryption=given, row_group_rows=100) as writer:
        stored = writer.num_rows_stored
        await writer.write(table.slice(stored))
    assert reader.read(path).cast(table.schema).equals(table)
    path.unlink()
    return stored


@pytest.mark.parametrize(("parity", "count"), either([(None, 2)], [(None, 100), ("5%", 100)]))
async def test_wherever_it_was_cut(
    parity: str | None, count: int, tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any
) -> None:
    """All row groups before a cut are kept, and nothing else."""
    path, given = tmp_path / "a.parquet", encryption(pyarrow_reader)
    data = await unfinished(path, many_shapes, given, parity=parity)
    ends = [each.end for each in records(data) if each.kind == "row group"]
    path.with_name(path.name + ".partial").unlink()
    for size in [*random.Random(3).sample(range(len(data)), count), ends[3] - 1, ends[3]]:
        stored = await check_cut(path, data, size, many_shapes, given, pyarrow_reader)
        assert stored == 100 * sum(end <= size for end in ends)


async def test_damage_before_what_was_stored_is_an_error(
    tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any
) -> None:
    given, path = encryption(pyarrow_reader), tmp_path / "a.parquet"
    data = bytearray(await unfinished(path, many_shapes, given))
    data[[each for each in records(data) if each.kind == "chunk"][5].end + 30] ^= 1
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    with pytest.raises(rpq.RecoveryError, match="damaged before a checkpoint"):
        await finished(path, many_shapes, given)
    assert partial.read_bytes() == data


async def test_other_keys_and_none_are_refused(tmp_path: Path, many_shapes: pa.Table, pyarrow_reader: Any) -> None:
    for plaintext_footer in (False, True):
        given = encryption(pyarrow_reader, plaintext_footer=plaintext_footer)
        path = tmp_path / f"{plaintext_footer}.parquet"
        data = await unfinished(path, many_shapes, given)
        refused: list[tuple[rpq.Encryption | None, type[Exception]]] = [
            (None, rpq.KeyMissingError),
            (rpq.Encryption(CITY), rpq.WrongKeyError),
            (rpq.Encryption(FOOTER, {"city": CITY[::-1]}, plaintext_footer=plaintext_footer), rpq.WrongKeyError),
            (rpq.Encryption(FOOTER, {"city": CITY}, plaintext_footer=not plaintext_footer), rpq.OptionError),
            (rpq.Encryption(FOOTER, {"city": CITY}, algorithm="AES_GCM_CTR_V1"), rpq.OptionError),
        ]
        for other, error in refused:
            with pytest.raises(error):
                async with rpq.resume(path, encryption=other):
                    pass
            assert path.with_name(path.name + ".partial").read_bytes() == data
