"""Encrypted files on S3 that a writer left unfinished: gone on with, with the same keys."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encrypted_modules import EncryptedFile, Module, check_nonces, records
from in_memory_kms import InMemoryKms

import resilient_pq as rpq
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.io.transfer.retry import NO_RETRIES
from resilient_pq.units import MiB

FOOTER, CITY = b"footer key of thirty-two bytes..", b"the key of city."
NAME = "a.parquet"
NEVER = 10**9


def encryption(reader: Any, **options: Any) -> rpq.Encryption:
    keys = {"city": CITY, "place": CITY}
    return rpq.Encryption(FOOTER, keys, plaintext_columns=["half"], **reader.material(FOOTER, keys), **options)


@pytest.fixture
def moto(moto_server: Any, empty_bucket: Any, http_proxy: Any) -> Any:
    """A bucket, and the proxy before it, which has all that is sent."""
    with empty_bucket(moto_server) as s3:
        proxy = http_proxy(s3.endpoint_url)
        yield replace(s3, endpoint_url=proxy.endpoint_url), proxy


@pytest.fixture(scope="module")
def table(many_shapes: pa.Table) -> pa.Table:
    return many_shapes.slice(0, 100).select(["number", "half", "city", "place"])


async def run(moto: Any, table: pa.Table, changes: int, **options: Any) -> tuple[int, int]:
    """Write until so many requests that change something have passed; gives the rows found and those promised."""
    s3, proxy = moto
    found = promised = 0
    proxy.refuse_after(changes)
    async with S3Store(s3.storage_options, retry=NO_RETRIES) as store:
        with contextlib.suppress(*([rpq.ResilientPQError] if changes < NEVER else [])):
            async with rpq.create_or_resume(
                (store, f"{s3.bucket}/{NAME}"), table.schema, row_group_rows=20, compression="none", **options
            ) as writer:
                found = writer.num_rows_stored
                for start in range(found, len(table), 20):
                    await writer.write(table.slice(start, 20))
                    promised = (await writer.checkpoint()).num_rows
    return found, promised


async def interrupted(moto: Any, table: pa.Table, **options: Any) -> int:
    """Leave a file behind a few requests; gives the rows that were promised."""
    promised = (await run(moto, table, 8, **options))[1]
    assert promised >= 20
    moto[1].refuse_after(NEVER)
    return promised


def check_sent(proxy: Any) -> None:
    """No nonce was ever sent with two contents, in whichever version of the only part."""
    modules: list[Module] = []
    puts = [each for each in proxy.requests if each.method == "PUT" and each.target.endswith("partNumber=1")]
    sent = [each.body for each in puts if each.size]
    assert len({*sent}) > 3 and all(sent)
    for body in {*sent}:
        end = max(each.end for each in records(body) if each.kind in ("anchor", "checkpoint", "final"))
        modules += EncryptedFile(body[:end], FOOTER, {"city": CITY, "place.x": CITY, "place.y": CITY}).modules
    check_nonces(modules)


async def check_crashes(
    moto: Any, table: pa.Table, reader: Any, path: Path, crashes: Any, given: rpq.Encryption, **options: Any
) -> bool:
    """Crash after so many changes, each time, then go on to the end; False where a writer was done before that."""
    s3, proxy = moto
    promised = 0
    proxy.requests.clear()
    for changes in crashes:
        promised = max(promised, (await run(moto, table, changes, encryption=given, **options))[1])
        crashed = proxy.refused
    with contextlib.suppress(rpq.AlreadyExistsError):  # the crash came behind the completion
        assert (await run(moto, table, NEVER, encryption=given, **options))[0] >= promised
    path.write_bytes(s3.read(NAME))
    assert reader.read(path).cast(table.schema).equals(table)
    assert s3.object_names() == [NAME]
    for upload in s3.upload_ids():  # one whose beginning was the last change: nothing names it yet
        named = {"Bucket": s3.bucket, "Key": NAME, "UploadId": upload}
        assert not s3.client.list_parts(**named).get("Parts")
        s3.client.abort_multipart_upload(**named)
    if "options" not in options:
        check_sent(proxy)
    s3.client.delete_object(Bucket=s3.bucket, Key=NAME)
    return crashed


@pytest.mark.parametrize("plaintext_footer", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_after_two_crashes(
    moto: Any, table: pa.Table, pyarrow_reader: Any, tmp_path: Path, plaintext_footer: bool
) -> None:
    given = encryption(pyarrow_reader, plaintext_footer=plaintext_footer)
    assert await check_crashes(moto, table, pyarrow_reader, tmp_path / NAME, (8, 6), given)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plaintext_footer", [False, True])
async def test_after_every_request(
    moto: Any, table: pa.Table, pyarrow_reader: Any, tmp_path: Path, plaintext_footer: bool
) -> None:
    given = encryption(pyarrow_reader, plaintext_footer=plaintext_footer)
    for crashes in ([(n,) for n in range(1, 16)], [(8, n) for n in range(1, 16)]):
        done = [await check_crashes(moto, table, pyarrow_reader, tmp_path / NAME, each, given) for each in crashes]
        assert sum(done) >= 8 and not done[-1]


@pytest.mark.thorough
@pytest.mark.timeout(900)
async def test_a_file_of_several_parts(moto: Any, pyarrow_reader: Any, tmp_path: Path) -> None:
    """The store copies parts of them; with parity."""
    noise = [random.Random(i).randbytes(150_000) for i in range(100)]
    table = pa.table({"number": range(100), "half": [0.5] * 100, "city": noise, "place": [{"x": 1}] * 100})
    settings = rpq.WriteOptions(part_bytes=5 * MiB, max_part_bytes=5 * MiB, max_bytes_in_flight=10 * MiB)
    given = encryption(pyarrow_reader)
    for crashes in [(n, m) for n in (6, 8, 10) for m in (2, 4, 6, NEVER)]:
        await check_crashes(moto, table, pyarrow_reader, tmp_path / NAME, crashes, given, options=settings, parity="5%")
        assert moto[1].count("PUT", "partNumber=2")


async def test_other_keys_and_none_lose_nothing(moto: Any, table: pa.Table, pyarrow_reader: Any) -> None:
    s3, given = moto[0], encryption(pyarrow_reader)
    await interrupted(moto, table, encryption=given)
    place = {"url": s3.url(NAME), "storage_options": s3.storage_options}
    refused: list[tuple[rpq.Encryption | None, type[Exception]]] = [
        (rpq.Encryption(CITY), rpq.WrongKeyError),
        (None, rpq.ResilientPQError),
        (rpq.Encryption(FOOTER, {"city": CITY[::-1], "place": CITY}), rpq.WrongKeyError),
        (rpq.Encryption(FOOTER), rpq.KeyMissingError),
        (replace(given, plaintext_footer=True), rpq.OptionError),
    ]
    for other, error in refused:
        for overwrite in (False, True):
            with pytest.raises(error):
                await rpq.resume(**place, encryption=other, overwrite=overwrite)
    assert (await run(moto, table, NEVER, encryption=given))[0] >= 20


async def test_a_record_that_is_damaged_is_an_error(moto: Any, table: pa.Table, pyarrow_reader: Any) -> None:
    s3, given = moto[0], encryption(pyarrow_reader)
    await interrupted(moto, table, encryption=given)
    with pytest.raises(rpq.WrongKeyError):
        await rpq.resume(s3.url(NAME), storage_options=s3.storage_options, encryption=rpq.Encryption(CITY))
    data = bytearray(s3.read(NAME))
    data[next(each.end for each in records(data) if each.kind == "row group") - 5] ^= 1
    s3.client.put_object(Bucket=s3.bucket, Key=NAME, Body=bytes(data))
    with pytest.raises(rpq.RecoveryError, match="damaged before a checkpoint"):
        await run(moto, table, NEVER, encryption=given)
    assert s3.read(NAME) == data


async def test_a_file_in_the_clear_is_not_gone_on_with_encrypted(
    moto: Any, table: pa.Table, pyarrow_reader: Any
) -> None:
    await interrupted(moto, table)
    with pytest.raises(rpq.OptionError, match="in the clear"):
        await run(moto, table, NEVER, encryption=encryption(pyarrow_reader))
    assert (await run(moto, table, NEVER))[0] >= 20


@pytest.mark.parametrize("internal", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_keys_of_a_kms_are_taken_from_the_footer(moto: Any, table: pa.Table, internal: bool) -> None:
    s3, kms = moto[0], InMemoryKms()

    def tools() -> rpq.KeyTools:
        return rpq.KeyTools(kms, internal_key_material=internal)

    assert (await run(moto, table, 9, encryption=tools().encryption("kf", {"kc1": ["city"]})))[1] >= 20
    wrapped = sum(what == "wrap" for what, _ in kms.asked)
    assert (await run(moto, table, NEVER, encryption=tools().encryption("kf", {"kc1": ["city"]})))[0] >= 20
    assert sum(what == "wrap" for what, _ in kms.asked) == wrapped
    found = await rpq.read(s3.url(NAME), keys=tools(), storage_options=s3.storage_options)
    assert pa.table(found).cast(table.schema).equals(table)


@pytest.mark.parametrize("fencing", ["lease", pytest.param("none", marks=pytest.mark.thorough)])
async def test_the_file_of_a_data_set_is_completed_by_hand(moto: Any, table: pa.Table, fencing: Any) -> None:
    s3 = moto[0]
    settings: Any = {"encryption": rpq.Encryption(FOOTER), "storage_options": s3.storage_options, "fencing": fencing}
    with pytest.raises(ZeroDivisionError):
        async with rpq.create_dataset(s3.url("data"), roll_rows=40, row_group_rows=20, **settings) as sink:
            await sink.write(table.slice(0, 70))
            await sink.checkpoint()
            raise ZeroDivisionError
    with pytest.raises(rpq.UnsupportedError, match="left open") as caught:
        await rpq.resume_dataset(s3.url("data"), roll_rows=40, **settings)
    assert "rpq.resume" in str(caught.value.hint)
    (url,) = {str(caught.value.where.key)}
    await (await rpq.resume(url, **settings)).close()
    async with rpq.resume_dataset(s3.url("data"), roll_rows=40, **settings) as sink:
        assert sink.num_rows_stored == 70
        await sink.write(table.slice(70))
    keys = settings["encryption"].reading()["keys"]
    options = {"keys": keys, "storage_options": s3.storage_options}
    found = [pa.table(await rpq.read(s3.url(name), **options)) for name in sorted(s3.object_names())]
    assert pa.concat_tables(found).cast(table.schema).equals(table)


async def test_an_upload_is_completed_without_keys(
    moto: Any, table: pa.Table, pyarrow_reader: Any, tmp_path: Path
) -> None:
    """What was left open is an object up to its newest checkpoint, whose bytes nobody has to read for that."""
    s3 = moto[0]
    promised = await interrupted(moto, table, encryption=encryption(pyarrow_reader))
    url = f"s3://{s3.bucket}/{NAME}"
    await rpq.complete_upload(url, storage_options=s3.storage_options)
    assert s3.upload_ids() == []
    assert (await rpq.check(url, storage_options=s3.storage_options)).outcome == "incomplete"
    path = tmp_path / NAME
    path.write_bytes(s3.read(NAME))
    rows = pyarrow_reader.read(path).cast(table.schema)
    assert len(rows) >= promised and rows.equals(table.slice(0, len(rows)))
