"""Metadata that the caller supplies make a Parquet file of parts that have no footer."""

from __future__ import annotations

import base64
import io
import json
import random
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import resilient_pq as rpq
from resilient_pq.errors import FormatError, RecoveryError, UnsupportedError
from resilient_pq.io import MemoryStore
from resilient_pq.recovery.uploads.supplied_footer import fitted_footer, supplied_contents
from resilient_pq.units import MiB

PART = 5 * MiB


@dataclass(frozen=True)
class Foreign:
    """A file of pyarrow."""

    data: bytes
    table: pa.Table

    @property
    def metadata(self) -> Any:
        return pq.read_metadata(io.BytesIO(self.data))

    @property
    def metadata_file(self) -> bytes:
        written = io.BytesIO()
        self.metadata.write_metadata_file(written)
        return written.getvalue()

    @property
    def ends(self) -> list[int]:
        """Where each row group's last column chunk ends."""
        found = []
        for group in (self.metadata.row_group(i) for i in range(self.metadata.num_row_groups)):
            column = group.column(group.num_columns - 1)
            start = column.dictionary_page_offset or column.data_page_offset
            found.append(start + column.total_compressed_size)
        return found


def foreign(rows: int, size: int, row_group_size: int) -> Foreign:
    noise = random.Random(9)
    table = pa.table(
        {
            "number": pa.array(range(rows)),
            "word": pa.array([f"word {i % 7}" for i in range(rows)]).dictionary_encode(),
            "noise": pa.array([noise.randbytes(size) for _ in range(rows)]),
        }
    )
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=row_group_size, compression="none", write_page_index=True)
    return Foreign(written.getvalue(), table)


@pytest.fixture(scope="module")
def large() -> Foreign:
    """Six row groups of two MB."""
    return foreign(120, 100_000, 20)


@pytest.fixture(scope="module")
def little() -> Foreign:
    """Ten row groups of ten rows."""
    return foreign(100, 20, 10)


def test_every_cut(little: Foreign) -> None:
    contents = supplied_contents(little.metadata_file)
    for cut in [*(end + by for end in little.ends for by in (-1, 0, 1)), 0, 4, len(little.data)]:
        made = fitted_footer(contents, cut)
        whole = sum(end <= cut for end in little.ends)
        assert (made.num_row_groups, made.num_rows) == (whole, whole * 10)
        assert (made.row_groups_dropped, made.rows_dropped) == (10 - whole, 100 - whole * 10)
        if cut < 4:
            continue
        file = io.BytesIO(little.data[:cut] + made.footer)
        assert pq.read_table(file).equals(little.table.slice(0, whole * 10))
        keys = pq.read_metadata(file).metadata
        assert json.loads(keys[b"rpq.recovered_from"]) == {"rows_lost": 100 - whole * 10}
        column = pq.read_metadata(file).row_group(0).column(0) if whole else None
        assert column is None or column.has_column_index == (cut == len(little.data))


def test_every_form_of_metadata(little: Foreign) -> None:
    alone = little.metadata_file
    expected = fitted_footer(supplied_contents(alone), little.ends[4])
    length = int.from_bytes(alone[-8:-4], "little")
    for data in (alone[-8 - length :], little.data):
        assert fitted_footer(supplied_contents(data), little.ends[4]).num_rows == expected.num_rows == 50


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 3, bytes(100), b"PAR1" + bytes(200) + b"PAR1"])
def test_what_is_no_metadata(data: bytes) -> None:
    with pytest.raises(FormatError):
        supplied_contents(data)


@given(data=st.data())
def test_damaged_metadata_cost_an_error_at_worst(data: st.DataObject, little: Foreign) -> None:
    alone = bytearray(little.metadata_file)
    for _ in range(data.draw(st.integers(1, 3))):
        alone[data.draw(st.integers(4, len(alone) - 9))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(little.data)))
    try:
        made = fitted_footer(supplied_contents(bytes(alone)), cut)
    except (FormatError, UnsupportedError, RecoveryError):
        return
    contents = supplied_contents(b"PAR1" + made.footer)
    for row_group in contents.metadata.row_groups:
        for chunk in row_group.columns:
            assert chunk.meta_data is not None
            if chunk.meta_data.num_values:
                starts = (chunk.meta_data.data_page_offset, chunk.meta_data.dictionary_page_offset or cut)
                assert 4 <= min(starts) <= min(starts) + chunk.meta_data.total_compressed_size <= cut


def test_chunks_that_lie_where_none_can(little: Foreign) -> None:
    def changed(**values: int) -> Any:
        contents = supplied_contents(little.metadata_file)
        chunk = contents.metadata.row_groups[1].columns[0].meta_data
        for name, value in values.items():
            setattr(chunk, name, value)
        return contents

    first = supplied_contents(little.metadata_file).metadata.row_groups[0].columns[0].meta_data
    assert first is not None
    start = first.dictionary_page_offset or first.data_page_offset
    for values in (
        {"data_page_offset": -1},
        {"total_compressed_size": -1},
        {"data_page_offset": start, "dictionary_page_offset": start},
        {"data_page_offset": 1 << 40},
    ):
        with pytest.raises(FormatError):
            fitted_footer(changed(**values), len(little.data))


def test_metadata_of_other_kinds_of_files(little: Foreign, small: Any) -> None:
    summary = little.metadata
    summary.set_file_path("elsewhere.parquet")
    written = io.BytesIO()
    summary.write_metadata_file(written)
    with pytest.raises(RecoveryError, match="of a summary"):
        fitted_footer(supplied_contents(written.getvalue()), len(little.data))
    with pytest.raises(RecoveryError, match="of a resilient file"):
        fitted_footer(supplied_contents(small.data), len(small.data))


class TestUploads:
    async def test_a_strangers_upload_becomes_a_file(self, large: Foreign, s3: Any) -> None:
        place, options = {"Bucket": s3.bucket, "Key": "day.parquet"}, s3.storage_options
        upload_id = s3.client.create_multipart_upload(**place)["UploadId"]
        for number in (2, 1):
            part = large.data[(number - 1) * PART : number * PART]
            s3.client.upload_part(**place, UploadId=upload_id, PartNumber=number, Body=part)
        url = s3.url("day.parquet")
        done = await rpq.complete_upload(url, metadata=large.metadata, storage_options=options)
        whole = sum(end <= 2 * PART for end in large.ends)
        assert 1 < whole < 6
        assert (done.how, done.num_parts, done.num_rows) == ("metadata", 3, whole * 20)
        assert done.rows_dropped == 120 - whole * 20
        found = s3.read("day.parquet")
        assert found[: 2 * PART] == large.data[: 2 * PART]
        assert pq.read_table(io.BytesIO(found)).equals(large.table.slice(0, whole * 20))
        assert done.next == (("rpq", "check", url),)
        assert (await rpq.check(url, storage_options=options)).num_rows == whole * 20

    async def test_an_upload_with_checksums(self, large: Foreign, seaweedfs: Any, http_proxy: Any) -> None:
        """The server wants the checksum of every part, and lists none; so they are put into its listing."""
        s3, url = seaweedfs, seaweedfs.url("checked.parquet")
        place = {"Bucket": s3.bucket, "Key": "checked.parquet"}
        upload_id = s3.client.create_multipart_upload(**place, ChecksumAlgorithm="CRC32")["UploadId"]
        crc = base64.b64encode(zlib.crc32(large.data[:PART]).to_bytes(4, "big"))
        sent = {"UploadId": upload_id, "PartNumber": 1, "ChecksumCRC32": crc.decode()}
        s3.client.upload_part(**place, **sent, Body=large.data[:PART])
        proxy = http_proxy(s3.endpoint_url)

        def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
            body = body.replace(b"</Part>", b"<ChecksumCRC32>" + crc + b"</ChecksumCRC32></Part>")
            return re.sub(rb"(?i)content-length: \d+", b"Content-Length: %d" % len(body), head), body

        proxy.on("GET", match="uploadId", edit=edit)
        options = s3.storage_options | {"endpoint_url": proxy.endpoint_url}
        done = await rpq.complete_upload(url, upload_id=upload_id, metadata=large.metadata, storage_options=options)
        assert done.num_rows == pq.read_table(io.BytesIO(s3.read("checked.parquet"))).num_rows == 40
        s3.client.delete_object(**place)

    @pytest.mark.parametrize("form", ["path", "url", "name", "bytes", "memoryview"])
    async def test_how_metadata_may_be_given(self, form: str, large: Foreign, tmp_path: Path) -> None:
        store, path = MemoryStore(), tmp_path / "_metadata"
        path.write_bytes(large.metadata_file)
        upload_id = await store.create_upload("day")
        await store.put_part("day", upload_id, 1, large.data[:PART])
        forms: dict[str, Any] = {
            "path": path,
            "name": str(path),
            "url": path.as_uri(),
            "bytes": large.metadata_file,
            "memoryview": memoryview(large.metadata_file),
        }
        done = await rpq.complete_upload((store, "day"), metadata=forms[form])
        assert done.num_rows == 20 * sum(end <= PART for end in large.ends)

    async def test_a_part_too_small_to_be_followed_gives_way(self, large: Foreign) -> None:
        store, cut = MemoryStore(), large.ends[4] + 100
        upload_id = await store.create_upload("day")
        for number in (1, 2):
            start = (number - 1) * PART
            await store.put_part("day", upload_id, number, large.data[start : min(start + PART, cut)])
        assert cut < 2 * PART
        done = await rpq.complete_upload((store, "day"), metadata=large.metadata_file)
        whole = sum(end <= PART for end in large.ends)
        assert (done.num_parts, done.num_rows, done.bytes_dropped) == (2, whole * 20, cut - PART)

    async def test_not_one_row_group(self, large: Foreign) -> None:
        store = MemoryStore()
        upload_id = await store.create_upload("day")
        await store.put_part("day", upload_id, 1, large.data[:1000])
        with pytest.raises(rpq.NothingToRecoverError, match="no row group") as caught:
            await rpq.complete_upload((store, "day"), metadata=large.metadata)
        assert "number" in caught.value.report.schema
        assert [part.number for part in await store.list_parts("day", upload_id)] == [1]

    async def test_nothing_is_sent_where_an_object_is(self, large: Foreign) -> None:
        store = MemoryStore()
        await store.put("day", b"another")
        upload_id = await store.create_upload("day")
        await store.put_part("day", upload_id, 1, large.data[:PART])
        with pytest.raises(rpq.AlreadyExistsError):
            await rpq.complete_upload((store, "day"), metadata=large.metadata)
        assert [part.number for part in await store.list_parts("day", upload_id)] == [1]

    async def test_metadata_that_cannot_be_read(self, tmp_path: Path) -> None:
        store = MemoryStore()
        with pytest.raises(rpq.NotFoundError):
            await rpq.complete_upload((store, "day"), metadata=tmp_path / "nothing")
        (tmp_path / "torn").write_bytes(b"PAR1 and no end")
        with pytest.raises(rpq.TornFileError) as caught:
            await rpq.complete_upload((store, "day"), metadata=tmp_path / "torn")
        assert caught.value.where.key == str(tmp_path / "torn")
