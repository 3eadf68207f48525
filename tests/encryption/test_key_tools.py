"""Envelope keys: their material as parquet-java and Arrow write it, requests to the KMS, and what goes wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encrypted_files import headers_of, sealed_of_corpus
from in_memory_kms import InMemoryKms, WaitingKms
from pyarrow.parquet import encryption as arrow
from sampled import either
from trevni_bytes import write_trevni

import resilient_pq as rpq
from resilient_pq.encryption.encryption import Encryption
from resilient_pq.encryption.key_tools import KeyTools, rotate_master_keys
from resilient_pq.encryption.keys import DecryptionKeys
from resilient_pq.errors import (
    AlreadyExistsError,
    AuthenticationError,
    FormatError,
    KeyMissingError,
    NotFoundError,
    OptionError,
)
from resilient_pq.format.resilience_records import RecordKind
from resilient_pq.io import LocalStore

COLUMNS = {"kc1": ["ssn"], "kc2": ["name", "address.street"]}
PLACES = ("ssn", "name", "address.street")


async def keys_back(
    tools: KeyTools, encryption: Encryption, path: Path | None = None
) -> dict[str | None, bytes | None]:
    """All keys of an encryption, found by their key metadata."""
    keys = DecryptionKeys.of(tools, None if path is None else (LocalStore(), str(path)))
    found = {name: await keys.key_of(metadata, name) for name, metadata in encryption.column_key_metadata.items()}
    return {None: await keys.key_of(encryption.footer_key_metadata, None), **found}


def keys_in(encryption: Encryption) -> dict[str | None, bytes]:
    return {None: encryption.footer_key, **encryption.column_keys}


async def left(path: Path, how: Any, rows: Any, **options: Any) -> None:
    """Begin a file, and leave it behind a checkpoint."""
    with pytest.raises(ZeroDivisionError):
        async with rpq.create(path, encryption=how, **options) as writer:
            await writer.write(rows)
            await writer.checkpoint()
            raise ZeroDivisionError


class TestKeys:
    @pytest.mark.parametrize("kms", [InMemoryKms, WaitingKms])
    @pytest.mark.parametrize("double_wrapping", [True, False])
    @pytest.mark.parametrize("bits", [128, 192, 256])
    async def test_they_are_found_again_by_their_metadata(
        self, kms: Callable[[], Any], double_wrapping: bool, bits: int
    ) -> None:
        service = kms()
        tools = KeyTools(service, double_wrapping=double_wrapping, data_key_length_bits=bits)
        encryption = await tools.encryption("kf", COLUMNS, plaintext_footer=True)
        assert encryption.plaintext_footer
        keys = keys_in(encryption)
        assert keys.keys() == {None, *PLACES} and len(set(keys.values())) == 4
        assert {len(key) for key in keys.values()} == {bits // 8}
        # Another process, with nothing in memory.
        assert await keys_back(KeyTools(service), encryption) == keys

    @pytest.mark.parametrize("double_wrapping", [True, False])
    async def test_they_lie_beside_the_file_where_the_material_is_external(
        self, tmp_path: Path, double_wrapping: bool
    ) -> None:
        tools = KeyTools(InMemoryKms(), double_wrapping=double_wrapping, internal_key_material=False)
        path = tmp_path / "a.parquet"
        encryption = await tools.encryption("kf", COLUMNS).for_file((LocalStore(), str(path)))
        assert os.listdir(tmp_path) == ["_KEY_MATERIAL_FOR_a.parquet.json"]
        assert json.loads(encryption.footer_key_metadata or b"") == {
            "keyMaterialType": "PKMT1",
            "internalStorage": False,
            "keyReference": "footerKey",
        }
        assert await keys_back(tools, encryption, path) == keys_in(encryption)
        assert await keys_back(tools, encryption, tmp_path / "a.parquet.partial") == keys_in(encryption)

    async def test_each_file_has_its_own(self) -> None:
        envelope = KeyTools(InMemoryKms()).encryption("kf", COLUMNS)
        first, second = await envelope, await envelope
        assert not {*keys_in(first).values()} & {*keys_in(second).values()}

    def test_a_column_has_one_master_key(self) -> None:
        with pytest.raises(OptionError, match="column 'ssn' has two master keys, 'kc1' and 'kc2'"):
            KeyTools(InMemoryKms()).encryption("kf", {"kc1": ["ssn"], "kc2": ["ssn"]})
        assert KeyTools(InMemoryKms()).encryption("kf", {"kc1": "ssn"}).column_keys == {"ssn": "kc1"}

    async def test_external_material_needs_a_place_and_replaces_none(self, tmp_path: Path) -> None:
        tools = KeyTools(InMemoryKms(), internal_key_material=False)
        with pytest.raises(OptionError, match="beside the file"):
            await tools.encryption("kf")
        place = LocalStore(), str(tmp_path / "a.parquet")
        first = await tools.encryption("kf").for_file(place)
        with pytest.raises(AlreadyExistsError):
            await tools.encryption("kf").for_file(place)
        assert await keys_back(tools, first, tmp_path / "a.parquet") == keys_in(first)
        second = await tools.encryption("kf", overwrite=True).for_file(place)
        assert await keys_back(tools, second, tmp_path / "a.parquet") == keys_in(second)


class TestFiles:
    async def test_a_file_is_not_begun_where_there_is_key_material(self, tmp_path: Path) -> None:
        tools = KeyTools(InMemoryKms(), internal_key_material=False)
        path = tmp_path / "a.parquet"
        async with rpq.create(path, encryption=tools.encryption("kf")) as writer:
            await writer.write({"x": [1]})
        with pytest.raises(AlreadyExistsError, match="overwrite"):
            await rpq.create(path, encryption=tools.encryption("kf"))
        assert sorted(os.listdir(tmp_path)) == ["_KEY_MATERIAL_FOR_a.parquet.json", "a.parquet"]
        assert (await rpq.read(path, keys=tools)).to_pylist() == [{"x": 1}]
        async with rpq.create(path, encryption=tools.encryption("kf", overwrite=True)) as writer:
            await writer.write({"x": [2]})
        assert (await rpq.read(path, keys=tools)).to_pylist() == [{"x": 2}]

    @pytest.mark.parametrize("kms", [InMemoryKms, WaitingKms])
    async def test_local_files_are_written_in_one_call_and_by_callers_that_block(
        self, kms: Callable[[], Any], tmp_path: Path
    ) -> None:
        tools = KeyTools(kms())
        given: Any = {"encryption": tools.encryption("kf")}

        def write_with_block() -> None:
            with rpq.sync.create(tmp_path / "a", **given) as writer:
                writer.write({"x": [1]})

        await rpq.write(tmp_path / "b", {"x": [1]}, **given)
        rpq.sync.write(tmp_path / "c", {"x": [1]}, **given)
        await asyncio.to_thread(rpq.sync.write, tmp_path / "d", {"x": [1]}, **given)
        await asyncio.to_thread(write_with_block)
        for path in tmp_path.iterdir():
            assert (await rpq.read(path, keys=tools)).to_pylist() == [{"x": 1}]
            assert (await asyncio.to_thread(rpq.sync.read, path, keys=tools)).to_pylist() == [{"x": 1}]

    async def test_a_kms_that_refuses_begins_no_file(self, tmp_path: Path) -> None:
        kms = InMemoryKms()
        kms.refused = {"kf"}
        with pytest.raises(PermissionError, match="kf may not be used"):
            await rpq.create(tmp_path / "a.parquet", encryption=KeyTools(kms).encryption("kf"))
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("internal", [True, False])
    @pytest.mark.parametrize("plaintext_footer", [True, False])
    async def test_an_unfinished_file_goes_on_with_its_keys(
        self, tmp_path: Path, internal: bool, plaintext_footer: bool
    ) -> None:
        """Also by another process, which has none of them."""
        path, kms = tmp_path / "a.parquet", InMemoryKms()
        rows = [{"ssn": i, "address": {"street": f"s{i}"}, "x": i / 2} for i in range(20)]

        def how() -> Any:
            tools = KeyTools(kms, internal_key_material=internal)
            return tools.encryption("kf", {"kc1": ["ssn"], "kc2": ["address"]}, plaintext_footer=plaintext_footer)

        await left(path, how(), rows[:10], row_group_rows=5)
        beside = [each.read_bytes() for each in tmp_path.glob("_KEY_MATERIAL*")]
        async with rpq.resume(path, encryption=how(), row_group_rows=5) as writer:
            await writer.write(rows[writer.num_rows_stored :])
        assert [each.read_bytes() for each in tmp_path.glob("_KEY_MATERIAL*")] == beside
        assert (await rpq.read(path, keys=KeyTools(kms))).to_pylist() == rows
        assert read_by_arrow(path, internal).to_pylist() == rows

    @pytest.mark.parametrize("internal", [True, False])
    async def test_columns_of_no_row_group_get_keys_as_well(self, tmp_path: Path, internal: bool) -> None:
        tools, place = (
            KeyTools(InMemoryKms(), internal_key_material=internal),
            (LocalStore(), str(tmp_path / "a.parquet")),
        )
        how = tools.encryption("kf", COLUMNS)
        begun = await how.for_file(place)
        keys = DecryptionKeys.of(tools, place)
        known = {"ssn": begun.column_key_metadata["ssn"]}
        again = await how.of_unfinished(keys, begun.footer_key_metadata, known)
        assert (again.footer_key, again.column_keys["ssn"]) == (begun.footer_key, begun.column_keys["ssn"])
        assert (again.column_keys == begun.column_keys) == (not internal)
        assert await keys_back(tools, again, tmp_path / "a.parquet") == keys_in(again)

    @pytest.mark.parametrize("internal", [True, False])
    async def test_what_is_recovered_has_its_key_material_with_it(self, tmp_path: Path, internal: bool) -> None:
        path, kms = tmp_path / "a.parquet", InMemoryKms()
        how = KeyTools(kms, internal_key_material=internal).encryption("kf", {"kc1": ["ssn"]})
        await left(path, how, {"ssn": [1, 2]})
        (tmp_path / "elsewhere").mkdir()
        saved = tmp_path / "elsewhere" / "saved.parquet"
        await rpq.recover(tmp_path / "a.parquet.partial", saved, keys=KeyTools(kms))
        assert os.listdir(saved.parent) == ["saved.parquet"]
        found = await rpq.read(saved, keys=KeyTools(kms), require_complete=False)
        assert found.to_pylist() == [{"ssn": 1}, {"ssn": 2}]

    @pytest.mark.parametrize(("columns", "rows"), [(None, [{"x": 1, "ssn": 2}]), ({"kc1": ["ssn"]}, [{"x": 1}])])
    async def test_rows_come_back_before_any_record_names_their_row_group(
        self, tmp_path: Path, columns: Any, rows: list[dict[str, int]]
    ) -> None:
        """No key metadata are known then but those of the footer: the tags tell what it opens."""
        path, kms = tmp_path / "a.parquet", InMemoryKms()
        await rpq.write(path, {"x": [1], "ssn": [2]}, encryption=KeyTools(kms).encryption("kf", columns))
        data, saved = path.read_bytes(), tmp_path / "saved.parquet"
        path.write_bytes(data[: headers_of(data, RecordKind.ROW_GROUP)[0].offset])
        await rpq.recover(path, saved, keys=KeyTools(kms), on_damage="null")
        found = await rpq.read(saved, columns=list(rows[0]), keys=KeyTools(kms), require_complete=False)
        assert found.to_pylist() == rows

    async def test_a_refused_key_resumes_nothing(self, tmp_path: Path) -> None:
        path, kms = tmp_path / "a.parquet", InMemoryKms()
        how = KeyTools(kms, double_wrapping=False).encryption("kf", {"kc1": ["ssn"]})
        await left(path, how, {"ssn": [1]})
        before = (tmp_path / "a.parquet.partial").read_bytes()
        for refused, whose in (("kf", "the footer"), ("kc1", "the column ssn")):
            kms.refused = {refused}
            with pytest.raises(KeyMissingError, match=f"no key for {whose}"):
                await rpq.resume(path, encryption=how)
        assert (tmp_path / "a.parquet.partial").read_bytes() == before

    async def test_a_converted_file_has_keys_of_its_own(self, tmp_path: Path) -> None:
        write_trevni(tmp_path / "old.trv", {"x": [1, 2, 3]})
        tools = KeyTools(InMemoryKms(), internal_key_material=False)
        encryption = tools.encryption("kf", aad_prefix=b"new", store_aad_prefix=False)
        report = await rpq.convert(tmp_path / "old.trv", tmp_path / "new.parquet", encryption=encryption)
        assert (report.outcome, report.num_rows) == ("sound", 3)
        found = await rpq.read(tmp_path / "new.parquet", keys=tools, aad_prefix=b"new")
        assert found.to_pylist() == [{"x": 1}, {"x": 2}, {"x": 3}]

    @pytest.mark.parametrize("internal", [True, False])
    async def test_every_file_of_a_data_set_has_its_own_keys(self, tmp_path: Path, internal: bool) -> None:
        kms = InMemoryKms()
        tools, folder = KeyTools(kms, internal_key_material=internal), tmp_path / "days"
        how = tools.encryption("kf", {"kc1": ["ssn"]})
        async with rpq.create_dataset(folder, roll_rows=10, encryption=how) as writer:
            for start in range(0, 30, 10):
                await writer.write({"ssn": range(start, start + 10), "x": [1.5] * 10})
        assert sorted(kms.asked) == [("wrap", "kc1"), ("wrap", "kf")]
        assert len(list(folder.glob("_KEY_MATERIAL_FOR_*.json"))) == (0 if internal else 3)
        async with rpq.open_many(folder, keys=KeyTools(kms)) as dataset:
            assert sorted(pa.table(await dataset.read())["ssn"].to_pylist()) == [*range(30)]


class TestRequests:
    async def test_double_wrapping_asks_once_for_each_master_key(self) -> None:
        kms = InMemoryKms()
        tools = KeyTools(kms)
        encryptions = [await tools.encryption("kf", COLUMNS) for _ in range(3)]
        assert sorted(kms.asked) == [("wrap", "kc1"), ("wrap", "kc2"), ("wrap", "kf")]
        kms.asked.clear()
        reader = KeyTools(kms)
        await asyncio.gather(*(keys_back(reader, each) for each in encryptions))
        assert sorted(kms.asked) == [("unwrap", "kc1"), ("unwrap", "kc2"), ("unwrap", "kf")]

    async def test_single_wrapping_asks_for_each_key(self) -> None:
        kms = InMemoryKms()
        tools = KeyTools(kms, double_wrapping=False)
        encryption = await tools.encryption("kf", COLUMNS)
        await keys_back(tools, encryption)
        assert sorted(kms.asked) == [(what, key) for what in ("unwrap", "wrap") for key in ("kc1", "kc2", "kc2", "kf")]

    @pytest.mark.parametrize("lifetime", [60.0, timedelta(minutes=1)])
    async def test_keys_in_memory_have_a_lifetime(self, monkeypatch: pytest.MonkeyPatch, lifetime: Any) -> None:
        kms, now = InMemoryKms(), time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now)
        tools = KeyTools(kms, cache_lifetime=lifetime)
        encryption = await tools.encryption("kf")
        for seconds, requests in ((0, 2), (59, 2), (61, 3), (119, 3), (122, 4)):
            monkeypatch.setattr(time, "monotonic", lambda seconds=seconds: now + seconds)
            await keys_back(tools, encryption)
            assert len(kms.asked) == requests

    async def test_a_refusal_is_a_missing_key_and_not_remembered(self) -> None:
        kms = InMemoryKms()
        encryption = await KeyTools(kms).encryption("kf", COLUMNS)
        kms.refused = {"kc1"}
        tools = KeyTools(kms)
        assert await keys_back(tools, encryption) == {**keys_in(encryption), "ssn": None}
        keys = DecryptionKeys.of(tools)
        await keys.key_of(encryption.column_key_metadata["ssn"], "ssn")
        error = keys.missing(encryption.column_key_metadata["ssn"], "ssn")
        assert isinstance(error.__cause__, PermissionError)
        kms.refused = set()
        assert await keys_back(tools, encryption) == keys_in(encryption)

    async def test_another_process_gets_no_key_of_this_one(self) -> None:
        tools = KeyTools(InMemoryKms(), double_wrapping=True, data_key_length_bits=256)
        encryption = await tools.encryption("kf", COLUMNS)
        await keys_back(tools, encryption)
        pickled = pickle.dumps(tools)
        secrets = [kek.cipher._key for kek, _ in tools._keks.values()]
        assert len(secrets) == 6 and not any(secret in pickled for secret in secrets)
        assert await keys_back(pickle.loads(pickled), encryption) == keys_in(encryption)

    def test_tools_serve_several_event_loops(self) -> None:
        tools = KeyTools(WaitingKms())

        async def many() -> None:
            envelope = tools.encryption("kf", COLUMNS)
            for each in await asyncio.gather(*(envelope.for_file(None) for _ in range(5))):
                assert await keys_back(tools, each) == keys_in(each)

        asyncio.run(many())
        asyncio.run(many())


class TestWhatGoesWrong:
    @pytest.mark.parametrize("answer", [b"\xff\xfe" * 20, None, 5])
    async def test_what_wraps_gives_text(self, answer: Any) -> None:
        kms = InMemoryKms()
        kms.wrap_key = lambda *_: answer  # type: ignore[method-assign]
        with pytest.raises(OptionError, match="wrap_key of the KMS gave no text"):
            await KeyTools(kms).encryption("kf")

    async def test_what_unwraps_gives_a_key(self) -> None:
        kms = InMemoryKms()
        encryption = await KeyTools(kms).encryption("kf")
        kms.unwrap_key = lambda *_: b"secret"  # type: ignore[method-assign]
        with pytest.raises(OptionError, match="unwrap_key of the KMS gave no key") as caught:
            await keys_back(KeyTools(kms), encryption)
        assert "secret" not in str(caught.value)

    async def test_a_kms_that_fails_is_told(self) -> None:
        kms = InMemoryKms()
        encryption = await KeyTools(kms).encryption("kf")

        def fail(*_: object) -> bytes:
            raise ConnectionResetError

        kms.unwrap_key = fail  # type: ignore[method-assign]
        with pytest.raises(KeyMissingError, match="ConnectionResetError was raised where the key of the footer"):
            await keys_back(KeyTools(kms), encryption)

    @pytest.mark.parametrize("bits", [0, 16, 512])
    def test_keys_have_a_length(self, bits: int) -> None:
        with pytest.raises(OptionError, match="128, 192 or 256"):
            KeyTools(InMemoryKms(), data_key_length_bits=bits)

    @pytest.mark.parametrize(
        "change",
        [
            {"wrappedDEK": base64.b64encode(bytes(44)).decode()},
            {"keyEncryptionKeyID": base64.b64encode(bytes(16)).decode()},
        ],
    )
    async def test_changed_material_is_found(self, change: dict[str, str]) -> None:
        tools = KeyTools(InMemoryKms())
        stored = json.loads((await tools.encryption("kf")).footer_key_metadata or b"")
        with pytest.raises(AuthenticationError, match="its data key does not open"):
            await DecryptionKeys.of(tools).key_of(json.dumps(stored | change).encode(), None)

    @pytest.mark.parametrize(
        "change",
        [
            {"wrappedDEK": "AAAA"},
            {"wrappedDEK": "no base64"},
            {"wrappedDEK": 5},
            {"wrappedDEK": base64.b64encode(bytes(1000)).decode()},
            {"keyEncryptionKeyID": None},
            {"keyEncryptionKeyID": "-"},
            {"doubleWrapping": "yes"},
            {"masterKeyID": ["kf"]},
            {"isFooterKey": None},
            {"internalStorage": None},
            {"internalStorage": False},
            {"internalStorage": False, "keyReference": "footerKey"},
            {"keyMaterialType": "PKMT2"},
        ],
    )
    async def test_material_that_is_none_is_refused(self, change: dict[str, Any]) -> None:
        tools = KeyTools(InMemoryKms())
        stored = json.loads((await tools.encryption("kf")).footer_key_metadata or b"")
        with pytest.raises(FormatError):
            await DecryptionKeys.of(tools).key_of(json.dumps(stored | change).encode(), None)

    @pytest.mark.parametrize("metadata", [None, b"kf", b"[]", b"{}", b"\xff", b"[" * 100_000, b"5", b'"PKMT1"'])
    async def test_key_metadata_of_others_are_refused(self, metadata: bytes | None) -> None:
        with pytest.raises(FormatError, match="not key material of type PKMT1"):
            await DecryptionKeys.of(KeyTools(InMemoryKms())).key_of(metadata, "ssn")

    @pytest.mark.parametrize("content", [b"", b"[]", b'{"footerKey": 5}', b'{"footerKey": "{}"}', b"{}"])
    async def test_a_file_of_material_that_is_none_is_refused(self, tmp_path: Path, content: bytes) -> None:
        tools, path = KeyTools(InMemoryKms(), internal_key_material=False), tmp_path / "a.parquet"
        encryption = await tools.encryption("kf").for_file((LocalStore(), str(path)))
        (tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json").write_bytes(content)
        with pytest.raises(FormatError, match=r"_KEY_MATERIAL_FOR_a\.parquet\.json"):
            await keys_back(tools, encryption, path)
        (tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json").unlink()
        with pytest.raises(NotFoundError, match=r"_KEY_MATERIAL_FOR_a\.parquet\.json"):
            await keys_back(tools, encryption, path)


class TestRotation:
    @pytest.mark.parametrize("before", [True, False])
    @pytest.mark.parametrize("after", [True, False])
    async def test_keys_are_wrapped_anew_and_stay_the_same(self, tmp_path: Path, before: bool, after: bool) -> None:
        kms, path = InMemoryKms(), tmp_path / "a.parquet"
        beside = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
        tools = KeyTools(kms, double_wrapping=before, internal_key_material=False)
        encryption = await tools.encryption("kf", COLUMNS).for_file((LocalStore(), str(path)))
        old = json.loads(beside.read_bytes())
        assert await rotate_master_keys(path, KeyTools(kms, double_wrapping=after)) == 4
        new = json.loads(beside.read_bytes())
        assert old.keys() == new.keys() and not {*old.values()} & {*new.values()}
        if before and after:
            keks = [{json.loads(each)["wrappedKEK"] for each in values.values()} for values in (old, new)]
            assert not keks[0] & keks[1]
        assert await keys_back(KeyTools(kms), encryption, path) == keys_in(encryption)

    async def test_a_kms_that_wraps_wrongly_changes_nothing(self, tmp_path: Path) -> None:
        kms, path = InMemoryKms(), tmp_path / "a.parquet"
        tools = KeyTools(kms, internal_key_material=False)
        await tools.encryption("kf", COLUMNS).for_file((LocalStore(), str(path)))
        old = (tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json").read_bytes()
        wrap = kms.wrap_key
        kms.wrap_key = lambda key, master: wrap(bytes(len(key)), master)  # type: ignore[method-assign]
        with pytest.raises((AuthenticationError, OptionError)):
            await rotate_master_keys(path, tools)
        assert (tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json").read_bytes() == old


class ArrowKms(arrow.KmsClient):
    """The service in memory, as Arrow asks one."""

    def __init__(self, _: object = None) -> None:
        super().__init__()
        self._kms = InMemoryKms()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return self._kms.wrap_key(key_bytes, master_key_identifier).encode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        return self._kms.unwrap_key(wrapped_key, master_key_identifier)


class TestOtherWriters:
    async def test_material_of_java_is_read(self) -> None:
        path = sealed_of_corpus("external_key_material_java")
        kms = InMemoryKms()
        table = pa.table(await rpq.read(path, keys=KeyTools(kms)))
        assert table.num_rows > 0 and table.num_columns > 1
        assert sorted(kms.asked) == [("unwrap", "kc1"), ("unwrap", "kc2"), ("unwrap", "kf")]

    @pytest.mark.parametrize("internal", [True, False])
    @pytest.mark.parametrize("double_wrapping", [True, False])
    @pytest.mark.parametrize("bits", either([128], [256]))
    @pytest.mark.parametrize("columns", [None, {"kc1": ["ssn"], "kc2": ["name"]}])
    async def test_files_of_arrow_are_read(
        self, tmp_path: Path, internal: bool, double_wrapping: bool, bits: int, columns: Any
    ) -> None:
        path, table = tmp_path / "a.parquet", pa.table({"ssn": [1, 2], "name": ["a", "b"], "x": [3, 4]})
        how = arrow.EncryptionConfiguration(
            "kf",
            **({"column_keys": columns} if columns else {"uniform_encryption": True}),
            double_wrapping=double_wrapping,
            internal_key_material=internal,
            data_key_length_bits=bits,
        )
        properties = arrow.CryptoFactory(ArrowKms).file_encryption_properties(
            arrow.KmsConnectionConfig(), how, None if internal else str(path)
        )
        with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
            writer.write_table(table)
        kms = InMemoryKms()
        assert pa.table(await rpq.read(path, keys=KeyTools(kms))).equals(table)
        assert {what for what, _ in kms.asked} == {"unwrap"}
        if columns:
            kms.refused = {"kc1"}
            async with rpq.open(path, keys=KeyTools(kms)) as file:
                assert pa.table(await file.read(columns=["name", "x"])).equals(table.select(["name", "x"]))
                with pytest.raises(KeyMissingError, match="ssn"):
                    await file.read(columns=["ssn"])

    @pytest.mark.parametrize("internal", [True, False])
    @pytest.mark.parametrize("double_wrapping", [True, False])
    @pytest.mark.parametrize("bits", either([128], [256]))
    @pytest.mark.parametrize("columns", [None, {"kc1": ["ssn"], "kc2": ["name"]}])
    @pytest.mark.parametrize("plaintext_footer", [True, False])
    async def test_arrow_reads_ours_and_rotates_its_keys(
        self, tmp_path: Path, internal: bool, double_wrapping: bool, bits: int, columns: Any, plaintext_footer: bool
    ) -> None:
        path, table = tmp_path / "a.parquet", pa.table({"ssn": [1, 2], "name": ["a", "b"], "x": [3, 4]})
        tools = KeyTools(
            ArrowKms(), double_wrapping=double_wrapping, internal_key_material=internal, data_key_length_bits=bits
        )
        encryption = tools.encryption("kf", columns, plaintext_footer=plaintext_footer)
        async with rpq.create(path, encryption=encryption) as writer:
            await writer.write(table)
        assert read_by_arrow(path, internal).equals(table)
        assert pa.table(await rpq.read(path, keys=tools)).equals(table)
        if not internal:
            beside = tmp_path / "_KEY_MATERIAL_FOR_a.parquet.json"
            old = beside.read_bytes()
            arrow.CryptoFactory(ArrowKms).rotate_master_keys(arrow.KmsConnectionConfig(), str(path))
            assert beside.read_bytes() != old
            assert pa.table(await rpq.read(path, keys=KeyTools(ArrowKms()))).equals(table)
            assert await rotate_master_keys(path, tools) == (3 if columns else 1)
            assert read_by_arrow(path, internal).equals(table)


def read_by_arrow(path: Path, internal: bool) -> pa.Table:
    config = arrow.KmsConnectionConfig()
    properties = arrow.CryptoFactory(ArrowKms).file_decryption_properties(config, None, None if internal else str(path))
    return pq.read_table(path, decryption_properties=properties)
