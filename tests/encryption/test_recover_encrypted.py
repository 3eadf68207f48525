"""`recover` and `check` of damaged encrypted files with their keys."""

from __future__ import annotations

import io
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from encrypted_files import FOOTER_KEY, KEYS, MODES, flipped, footer_start, headers_of, rows_of, sealed_file
from sampled import either

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.sealed_footer import FileCryptoMetaData
from resilient_pq.format.resilience_records import BytesBehind, RecordKind


async def read(path: Path, **options: object) -> pa.Table:
    async with rpq.open(path, keys=KEYS, require_complete=False, **options) as file:
        return pa.table(await file.read())


async def test_a_whole_file_is_sound_with_its_keys(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed)
    report = await rpq.check(path, keys=KEYS)
    assert (report.outcome, report.num_rows, report.findings) == ("sound", 300, ())
    assert report.size == len(sealed)


@pytest.mark.parametrize("step", either([1009], [41], 1800))
async def test_all_rows_up_to_a_cut_come_back(sealed: bytes, tmp_path: Path, step: int) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    ends = [header.end for header in headers_of(sealed, RecordKind.ROW_GROUP)]
    assert len(ends) == 3
    for size in range(700, len(sealed), step):
        path.write_bytes(sealed[:size])
        saved.unlink(missing_ok=True)
        num_whole = 100 * sum(end <= size for end in ends)
        try:
            report = await rpq.recover(path, saved, keys=KEYS)
        except rpq.NothingToRecoverError:
            assert num_whole == 0, size
            continue
        found = await read(saved)
        assert len(found) >= num_whole, size
        assert found.equals(rows_of(300).slice(0, len(found))), size
        assert report.num_rows == len(found)


async def test_a_file_cut_in_its_final_record_lost_nothing(sealed: bytes, tmp_path: Path) -> None:
    """Its header is whole, and counts no rows in the clear: the row group before it does."""
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    final = headers_of(sealed, RecordKind.FINAL)[-1].offset
    path.write_bytes(sealed[: final + 200])
    report = await rpq.recover(path, saved, keys=KEYS)
    assert report.kept is not None
    assert (report.num_rows, report.kept.lost, report.kept.rows_lost) == (300, (), 0)
    assert (await read(saved)).equals(rows_of(300))
    # Without the record of the row group before it nobody knows how many rows there were.
    header = headers_of(sealed, RecordKind.ROW_GROUP)[-1]
    at = header.offset
    path.write_bytes(sealed[:at] + bytes(header.end - at) + sealed[header.end : final + 200])
    saved.unlink()
    report = await rpq.recover(path, saved, keys=KEYS)
    assert report.kept is not None
    assert report.kept.rows_lost != 0 or report.num_rows == 300
    assert not any("counts other rows" in region.reason for region in report.kept.lost)


@pytest.mark.parametrize("step", either([2003], [61], 1800))
async def test_of_a_file_with_a_changed_byte_no_more_than_its_page_is_lost(
    sealed: bytes, tmp_path: Path, step: int
) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    expected = rows_of(300).to_pylist()
    for at in range(1, len(sealed), step):
        path.write_bytes(flipped(sealed, at))
        saved.unlink(missing_ok=True)
        report = await rpq.check(path, keys=KEYS)
        assert report.outcome == "damaged", at
        recovery = await rpq.recover(path, saved, keys=KEYS)
        found = (await read(saved)).to_pylist()
        assert len(found) in (200, 300), at
        assert found == [row for row in expected if row in found], at
        assert recovery.num_rows == report.num_rows == len(found), at


@pytest.mark.parametrize("step", either([499], [23], 1800))
async def test_reading_a_changed_byte_is_an_error_or_changes_nothing(sealed: bytes, tmp_path: Path, step: int) -> None:
    path, num_alike = tmp_path / "day.parquet", 0
    for at in range(0, len(sealed), step):
        path.write_bytes(flipped(sealed, at))
        try:
            found = await read(path)
        except rpq.FormatError:  # which has ChecksumError and AuthenticationError below it
            continue
        num_alike += 1
        assert found.equals(rows_of(300)), at
    assert num_alike * step < len(sealed)


def chunks_of(data: bytes) -> list[tuple[int, int, int]]:
    """For each column chunk of a file where its record begins, where its pages begin, and where they end."""
    found = []
    for header in headers_of(data, RecordKind.CHUNK):
        size = BytesBehind.unpack(data[header.payload_offset : header.end]).size
        found.append((header.offset, header.end, header.end + size))
    return found


def exchanged(data: bytes, one: tuple[int, int], other: tuple[int, int]) -> bytes:
    first, last = data[one[0] : one[1]], data[other[0] : other[1]]
    return data[: one[0]] + last + data[one[1] : other[0]] + first + data[other[1] :]


@pytest.mark.parametrize("mode", MODES)
async def test_chunks_that_were_exchanged_with_their_records_are_put_back(tmp_path: Path, mode: str) -> None:
    data, path, saved = sealed_file(rows_of(300), mode=mode), tmp_path / "day.parquet", tmp_path / "saved.parquet"
    chunks = chunks_of(data)
    path.write_bytes(exchanged(data, chunks[0][::2], chunks[2][::2]))
    with pytest.raises(rpq.FormatError):
        await read(path)
    report = await rpq.recover(path, saved, keys=KEYS)
    assert (await read(saved)).equals(rows_of(300))
    assert report.outcome == "recovered"


@pytest.mark.parametrize("mode", MODES)
async def test_pages_that_were_exchanged_are_put_back_by_their_tags(tmp_path: Path, mode: str) -> None:
    table = pa.table({"number": pa.array(range(900), pa.int64()), "word": ["a"] * 900})
    data = sealed_file(table, mode=mode, encodings={"number": "plain"}, compression=None)
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    numbers = [place[1:] for place in chunks_of(data)[::2]]
    pairs = combinations(numbers, 2)  # the CRC32 in a header has 4 or 5 bytes
    one, other = next(pair for pair in pairs if pair[0][1] - pair[0][0] == pair[1][1] - pair[1][0])
    path.write_bytes(exchanged(data, one, other))
    with pytest.raises((rpq.ChecksumError, rpq.AuthenticationError)):
        await read(path)
    report = await rpq.recover(path, saved, keys=KEYS)
    assert (await read(saved)).equals(table)
    assert report.outcome == "recovered"
    assert any("place of another page" in finding.message for finding in report.findings)


def places_of_pages(data: bytes, count: int) -> list[tuple[int, int]]:
    """Of the first pages of the first column chunk, each a header and a body with their lengths before them."""
    _, at, _ = chunks_of(data)[0]
    places = []
    for _ in range(count):
        body = at + 4 + int.from_bytes(data[at : at + 4], "little")
        end = body + 4 + int.from_bytes(data[body : body + 4], "little")
        places.append((at, end))
        at = end
    return places


async def test_neighbouring_pages_that_were_exchanged_are_found_by_the_offset_index(tmp_path: Path) -> None:
    """None of them opens where the next one is expected, and all records that have copies of their headers are gone."""
    table = pa.table({"number": pa.array(range(400), pa.int64())})
    options = rpq.WriteOptions(page_rows=50)
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    for _ in range(100):  # keys are drawn, and the CRC32 in a header has 4 or 5 bytes
        data = sealed_file(table, rows=200, encodings="plain", compression=None, options=options)
        pages = places_of_pages(data, 4)
        if pages[1][1] - pages[1][0] == pages[2][1] - pages[2][0]:
            break
    assert pages[1][1] - pages[1][0] == pages[2][1] - pages[2][0]
    data = exchanged(data, pages[1], pages[2])
    for header in [*headers_of(data, RecordKind.CHUNK), *headers_of(data, RecordKind.ROW_GROUP)]:
        data = flipped(data, header.payload_offset + 20)
    path.write_bytes(data)
    report = await rpq.recover(path, saved, keys=KEYS)
    assert (report.outcome, report.num_rows) == ("recovered", 400)
    assert (await read(saved)).equals(table)


@pytest.mark.parametrize("mode", ["columns", "plaintext footer"])
async def test_the_footer_key_alone_keeps_row_groups_behind_the_newest_checkpoint(tmp_path: Path, mode: str) -> None:
    data = sealed_file(rows_of(500), mode=mode)
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    ends = [header.end for header in headers_of(data, RecordKind.ROW_GROUP)]
    for count, end in list(enumerate(ends, start=1))[2:]:
        path.write_bytes(data[: end + 50])
        report = await rpq.recover(path, saved, keys=FOOTER_KEY, overwrite=True)
        assert (report.outcome, report.num_rows, report.num_row_groups) == ("partial", 100 * count, count)
        assert saved.read_bytes().startswith(data[:end])
        assert (await read(saved)).equals(rows_of(100 * count))
        properties = pe.create_decryption_properties(footer_key=FOOTER_KEY)
        witness = pq.ParquetFile(saved, decryption_properties=properties).read(["number"])
        assert witness.equals(rows_of(100 * count).select(["number"]))
        report = await rpq.check(saved, keys=KEYS)
        assert (report.outcome, report.num_rows) == ("incomplete", 100 * count)
        assert (await rpq.check(saved)).outcome == "ciphertext whole"


async def test_a_check_with_the_footer_key_alone_names_the_columns_without_a_key(tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed_file(rows_of(300), mode="columns"))
    report = await rpq.check(path, keys=FOOTER_KEY)
    assert report.outcome == "ciphertext whole"
    assert "word" in report.notes[-1]


async def test_damaged_pages_are_left_out_or_null_where_the_reader_asks_for_it(sealed: bytes, tmp_path: Path) -> None:
    path, lost = tmp_path / "day.parquet", []
    path.write_bytes(flipped(sealed, chunks_of(sealed)[3][2] - 20))
    with pytest.raises((rpq.ChecksumError, rpq.AuthenticationError)):
        await read(path)
    dropped = await read(path, on_damage="drop", on_lost=lost.append)
    assert dropped.equals(pa.concat_tables([rows_of(300)[:100], rows_of(300)[200:]]))
    assert sum(region.num_rows for region in lost) == 100
    nulled = await read(path, on_damage="null")
    assert nulled["number"].equals(rows_of(300)["number"])
    assert nulled["word"][100:200].null_count == 100


async def test_a_torn_file_is_read_as_far_as_it_goes_where_the_reader_asks_for_it(
    sealed: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "day.parquet"
    path.write_bytes(sealed[:-100])
    with pytest.raises(rpq.FormatError):
        await read(path)
    with pytest.warns(rpq.IncompleteFileWarning):
        assert (await read(path, on_damage="drop")).equals(rows_of(300))


@pytest.mark.parametrize("mode", MODES)
async def test_damaged_bytes_are_rebuilt_by_parity_beneath_the_encryption(tmp_path: Path, mode: str) -> None:
    data, path = sealed_file(rows_of(300), mode=mode, parity=0.2), tmp_path / "day.parquet"
    for at in (chunks_of(data)[2][1] + 40, len(data) - 30):
        path.write_bytes(flipped(data, at))
        with pytest.warns(rpq.HealedFileWarning):
            assert (await read(path)).equals(rows_of(300))
        with pytest.raises(rpq.FormatError):
            await read(path, heal=False)
        for keys in (None, KEYS):
            checked = await rpq.check(path, keys=keys)
            assert checked.outcome == "damaged"
            assert checked.blocks_repairable == checked.blocks_damaged == 1
            report = await rpq.recover(path, tmp_path / "saved.parquet", keys=keys, overwrite=True)
            assert (tmp_path / "saved.parquet").read_bytes() == data
            assert report.outcome == "recovered"
        await rpq.repair(path, tmp_path / "repaired.parquet", overwrite=True)
        assert (tmp_path / "repaired.parquet").read_bytes() == data


@pytest.mark.parametrize("heal_by", [rpq.check, rpq.recover])
async def test_a_damaged_index_is_damage_and_keeps_nobody_from_the_rows(heal_by: Any, tmp_path: Path) -> None:
    sink = io.BytesIO()
    properties = pe.create_encryption_properties(footer_key=FOOTER_KEY)
    pq.write_table(rows_of(300), sink, write_page_index=True, encryption_properties=properties)
    data, path = sink.getvalue(), tmp_path / "day.parquet"
    path.write_bytes(flipped(data, footer_start(data) - 10))
    assert (await read(path)).equals(rows_of(300))
    to = [tmp_path / "saved.parquet"] if heal_by is rpq.recover else []
    report = await heal_by(path, *to, keys=FOOTER_KEY)
    assert report.outcome != "sound"
    assert "not what was sealed" in report.findings[0].message
    for saved in to:
        assert (await read(saved)).equals(rows_of(300))


@pytest.mark.parametrize("mode", ["uniform", "ctr"])
async def test_pyarrow_reads_what_was_recovered(tmp_path: Path, mode: str, pyarrow_reader: Any) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    data = sealed_file(rows_of(300), mode=mode)
    path.write_bytes(flipped(data, chunks_of(data)[3][2] - 20))
    report = await rpq.recover(path, saved, keys=KEYS)
    assert report.num_rows == 200
    found = pyarrow_reader.read(saved, FOOTER_KEY)
    assert found.equals(pa.concat_tables([rows_of(300)[:100], rows_of(300)[200:]]))
    assert found.schema.metadata is None or b"secret" not in b"".join(found.schema.metadata.values())


async def test_what_was_recovered_has_no_plaintext_and_another_identity(tmp_path: Path) -> None:
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    data = sealed_file(rows_of(300))
    path.write_bytes(flipped(data, chunks_of(data)[3][2] - 20))
    report = await rpq.recover(path, saved, keys=KEYS)
    written = saved.read_bytes()
    for planted in (b"secret word", b"number", b"day.parquet", FOOTER_KEY):
        assert planted not in written
    first, last = (crypto_metadata(each) for each in (data, written))
    assert first.encryption_algorithm.AES_GCM_V1.aad_file_unique != last.encryption_algorithm.AES_GCM_V1.aad_file_unique
    assert FOOTER_KEY.decode() not in f"{report!r}{report}{json.dumps(report.to_json())}"
    unread = await rpq.check(path)
    assert "word" not in f"{unread!r}{unread}{json.dumps(unread.to_json())}".replace("words", "")


def crypto_metadata(data: bytes) -> FileCryptoMetaData:
    return compact_protocol.decode(FileCryptoMetaData, data[footer_start(data) :])[0]


async def test_records_show_that_a_key_is_right_which_a_damaged_footer_does_not_prove(
    sealed: bytes, tmp_path: Path
) -> None:
    """Noise over the end of the final record and the beginning of the footer."""
    path, saved = tmp_path / "day.parquet", tmp_path / "saved.parquet"
    final = headers_of(sealed, RecordKind.FINAL)[-1].offset
    path.write_bytes(sealed[: final + 60] + bytes(range(7, 87)) + sealed[final + 140 :])
    assert (await rpq.recover(path, saved, keys=KEYS)).num_rows == 300
    assert (await read(saved)).equals(rows_of(300))
    with pytest.raises(rpq.WrongKeyError):
        await rpq.recover(path, saved, keys=b"another key 16 b", overwrite=True)


async def test_a_damaged_index_hinders_only_who_needs_it(sealed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "day.parquet"
    span = headers_of(sealed, RecordKind.SPAN)[0]
    path.write_bytes(flipped(sealed, span.end + 30))
    assert (await read(path)).equals(rows_of(300))
