"""Nothing of what is encrypted, and nothing of a key, stands anywhere in the clear."""

from __future__ import annotations

import base64
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from encrypted_modules import records

import resilient_pq as rpq
from resilient_pq.io.memory_store import MemoryStore

KEY, COLUMN_KEY = b"0K<\x8f secret footer key..", b"2nd secret key of a column, \xfe\xff\x00!"
VALUE, ENTRY, NAME, META = "PLANTED-VALUE-%d", "PLANTED-ENTRY-%d", "PLANTED_COLUMN", "PLANTED-METADATA"
#: A number whose bytes stand nowhere by chance, as bound of a column.
NUMBER = 0x5EC2E7A1B2C3D4


def encryption(**options: Any) -> rpq.Encryption:
    return rpq.Encryption(KEY, {f"{NAME}_text": COLUMN_KEY}, column_key_metadata={f"{NAME}_text": b"k2"}, **options)


def planted() -> pa.Table:
    return pa.table(
        {
            f"{NAME}_text": [VALUE % i for i in range(2000)],
            f"{NAME}_entry": [ENTRY % (i % 5) for i in range(2000)],
            f"{NAME}_number": [NUMBER + i for i in range(2000)],
        }
    )


def secrets(*, names: bool) -> list[bytes]:
    """What may stand nowhere: `names` where the footer is encrypted, too."""
    numbers = [(NUMBER + i).to_bytes(8, order)[1 if order == "big" else 0 :][:7] for i in (0, 1999) for order in ("little", "big")]  # type: ignore[arg-type]  # fmt: skip
    keys = [form for key in (KEY, COLUMN_KEY) for form in (key, key.hex().encode(), base64.b64encode(key), repr(key)[2:-1].encode())]  # fmt: skip
    return [b"PLANTED-VALUE", b"PLANTED-ENTRY", *numbers, *keys, *([NAME.encode(), META.encode()] if names else [])]


def leaks(data: bytes, *, names: bool) -> list[bytes]:
    return [secret for secret in secrets(names=names) if secret in data or secret.lower() in data.lower()]


def test_the_search_finds_what_is_in_the_clear(tmp_path: Path) -> None:
    with rpq.sync.create(tmp_path / "a.parquet", compression="none", metadata={"note": META}) as writer:
        writer.write(planted())
    found = leaks((tmp_path / "a.parquet").read_bytes(), names=True)
    assert {b"PLANTED-VALUE", b"PLANTED-ENTRY", NAME.encode(), META.encode()} < {*found}
    assert len(found) >= 6


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
async def test_no_byte_that_is_stored_tells_anything(
    algorithm: Any, plaintext_footer: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not compressed; with all that repeats values: statistics, indexes, bloom filters, dictionary copies, parity."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "a.parquet"
    given = encryption(algorithm=algorithm, plaintext_footer=plaintext_footer)
    options = rpq.WriteOptions(bloom_filter_options=[f"{NAME}_entry"], page_rows=100)
    metadata = {} if plaintext_footer else {"note": META}
    async with rpq.create(
        path, encryption=given, compression="none", row_group_rows=500, parity="5%", checkpoint_every=1,
        checkpoint_overhead=9.0, options=options, metadata=metadata,
    ) as writer:  # fmt: skip
        await writer.write(planted())
        await writer.checkpoint()
        unfinished = (tmp_path / "a.parquet.partial").read_bytes()
        shown, options_shown = repr(writer) + repr(given), repr(vars(writer)["_options"])
    await rpq.protect(path)
    stored = {each.name: each.read_bytes() for each in tmp_path.iterdir()} | {"unfinished": unfinished}
    assert len(stored) == 3
    assert len(records(unfinished)) > 20
    for name, data in stored.items():
        assert (name, leaks(data, names=not plaintext_footer)) == (name, [])
    assert not leaks(options_shown.encode(), names=False)  # names are those that the caller gave
    logged = "\n".join(f"{record.getMessage()} {record.args!r}" for record in caplog.records)
    assert not leaks((shown + logged).encode(), names=True)


@pytest.mark.parametrize("plaintext_footer", [False, pytest.param(True, marks=pytest.mark.thorough)])
async def test_nothing_that_is_sent_to_s3_tells_anything(
    plaintext_footer: bool, moto_server: Any, empty_bucket: Any, http_proxy: Any
) -> None:
    """All requests of a writer that is killed, and of the one that goes on: parts, epoch objects, names and headers."""
    given = encryption(plaintext_footer=plaintext_footer)
    metadata = {} if plaintext_footer else {"note": META}
    with empty_bucket(moto_server) as s3:
        proxy = http_proxy(s3.endpoint_url)
        place = {"storage_options": {**s3.storage_options, "endpoint_url": proxy.endpoint_url}, "encryption": given}
        with pytest.raises(ZeroDivisionError):
            async with rpq.create(
                s3.url("a.parquet"), row_group_rows=100, compression="none", metadata=metadata, **place
            ) as writer:
                await writer.write(planted().slice(0, 300))
                await writer.checkpoint()
                raise ZeroDivisionError
        async with rpq.resume(s3.url("a.parquet"), row_group_rows=100, **place) as writer:
            assert writer.num_rows_stored == 300
            await writer.write(planted().slice(300, 100))
        stored = {name: s3.read(name) for name in s3.object_names()}
    sent = [each for each in proxy.requests if each.method in ("PUT", "POST")]
    assert all(len(each.body) == each.size for each in sent) and len(records(stored["a.parquet"])) >= 20
    assert sum("rpq-epoch" in each.target for each in sent) > 1
    assert sum("partNumber" in each.target for each in sent) > 2
    for each in proxy.requests:
        shown = each.body + repr((each.target, each.headers)).encode()
        assert (each.target, leaks(shown, names=not plaintext_footer)) == (each.target, [])
    assert [leaks(data, names=not plaintext_footer) for data in stored.values()] == [[]]


async def test_no_error_shows_a_key() -> None:
    store = (MemoryStore(), "a.parquet")
    said = []
    with pytest.raises(rpq.SchemaError) as caught:
        async with rpq.create(store, encryption=encryption()) as writer:
            await writer.write(planted())
            await writer.write({"other": [1]})
    said.append(caught.value)
    for wrong in ({"footer_key": KEY[:15]}, {"footer_key": KEY, "column_keys": {"a": COLUMN_KEY + b"x"}}):
        with pytest.raises(rpq.OptionError) as refused:
            rpq.Encryption(**wrong)  # type: ignore[arg-type]
        said.append(refused.value)  # type: ignore[arg-type]
    keys = [secret for secret in secrets(names=False) if not secret.startswith(b"PLANTED")]
    texts = [f"{error!r} {error} {error.hint} {error.__dict__} {error.__cause__!r}" for error in said]
    assert not [text for text in texts for key in [*keys, KEY[:15]] if key in text.encode()]
