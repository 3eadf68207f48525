"""Resilient files in memory, and a driver for the survey that counts what it asks for."""

from __future__ import annotations

import asyncio
import base64
import io
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_bytes import file_bytes

import resilient_pq as rpq
from resilient_pq.byte_ranges import ByteRange
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import ColumnChunk, FileMetaData, RowGroup
from resilient_pq.reader.decoder import decode
from resilient_pq.recovery.carve import carve, find_files
from resilient_pq.recovery.evidence.records.record_scan import in_place, scan_headers
from resilient_pq.recovery.evidence.records.survey import Survey, survey


@dataclass(frozen=True)
class Written:
    """A file, its rows, and the headers of its records."""

    data: bytes = field(repr=False)
    table: pa.Table = field(repr=False)
    headers: list[Any] = field(repr=False)

    def records(self, kind: int) -> list[Any]:
        return [header for header in self.headers if header.kind == kind]

    def zeroed(self, *places: tuple[int, int]) -> bytes:
        """The bytes with zeros in some places, given as start and end."""
        changed = bytearray(self.data)
        for start, end in places:
            changed[start:end] = bytes(end - start)
        return bytes(changed)


async def write(table: pa.Table, **options: Any) -> Written:
    chosen = {"row_group_rows": 10, "checkpoint_every": 2, "checkpoint_overhead": 100.0, **options}
    data = await file_bytes(table, **chosen)
    return Written(data, table, in_place(scan_headers(data, 0)))


@dataclass
class Surveyed:
    """What a survey found, and the ranges it asked for."""

    result: Survey
    asked: list[ByteRange] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        return sum(place.size for place in self.asked)


def run_survey(data: bytes) -> Surveyed:
    """Drive the generator by hand."""
    asked: list[ByteRange] = []
    asking = survey(len(data))
    try:
        wanted = next(asking)
        while True:
            assert 0 <= wanted.start < wanted.end <= len(data)
            asked.append(wanted)
            wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
    except StopIteration as stop:
        return Surveyed(stop.value, asked)


@pytest.fixture(scope="session")
def drive() -> Callable[[bytes], Surveyed]:
    return run_survey


@pytest.fixture(scope="session")
def write_file() -> Callable[..., Any]:
    return write


@pytest.fixture(scope="session")
def small() -> Written:
    """Five row groups of ten rows, checkpoints behind the second and the fourth, bloom filters of one column."""
    table = pa.table({"id": list(range(50)), "name": [None if i % 3 else f"n{i}" for i in range(50)]})
    return asyncio.run(write(table, options=rpq.WriteOptions(bloom_filter_options=["name"])))


@pytest.fixture(scope="session")
def large() -> Written:
    """Eight row groups of more than a MiB each, checkpoints behind every third."""
    noise = [random.Random(i).randbytes(150_000) for i in range(64)]
    table = pa.table({"id": list(range(64)), "noise": pa.array(noise, pa.binary())})
    return asyncio.run(write(table, row_group_rows=8, checkpoint_every=3, compression="none"))


def chained(data: bytes) -> list[Any]:
    """The headers of a complete file's records, each of which follows on the one before it."""
    headers: list[Any] = in_place(scan_headers(data, 0))
    assert headers[0].kind == 1 and headers[-1].kind == 4
    assert [header.number for header in headers] == list(range(len(headers)))
    assert [header.previous for header in headers[1:]] == [header.offset for header in headers[:-1]]
    assert len({header.file_id for header in headers}) == 1
    epochs = [header.epoch for header in headers]
    assert epochs == sorted(epochs) and epochs[0] == 0
    footer = 0
    for header in headers:
        footer = header.offset if header.kind in (1, 3) else footer
        assert header.newest_footer == footer
    return headers


async def same_rows(place: Any, data: bytes, table: pa.Table) -> list[Any]:
    """Hold that a file has exactly these rows, that every byte is vouched for, and that its records are in order."""
    assert pq.read_table(io.BytesIO(data)).equals(table)
    report = await rpq.check(place)
    assert (report.outcome, report.findings) == (rpq.Outcome.SOUND, ())
    async with rpq.open(place) as file:
        assert pa.table(await file.read()).equals(table)
        known = [(checkpoint.offset, checkpoint.num_rows) for checkpoint in file.checkpoints]
    headers = chained(data)
    assert known == [(header.offset, header.num_rows) for header in headers if header.kind == 3]
    return headers


@pytest.fixture(scope="session")
def records_in_order() -> Callable[[bytes], list[Any]]:
    return chained


@pytest.fixture(scope="session")
def is_whole() -> Callable[..., Any]:
    return same_rows


@pytest.fixture
def listing_checksums(s3_proxy: Any, committed_file: Any) -> Any:
    """The bucket through a proxy that lists the CRC32 of each part, as S3 does and neither server here."""
    s3, proxy = s3_proxy

    def with_checksum(part: re.Match[bytes]) -> bytes:
        number, size = (int(found) for found in re.findall(rb"<(?:PartNumber|Size)>(\d+)<", part[0]))
        start = (number - 1) * 5 * 1024 * 1024
        crc = zlib.crc32(committed_file.data[start : start + size])
        checksum = base64.b64encode(crc.to_bytes(4, "big"))
        return part[0].replace(b"</Part>", b"<ChecksumCRC32>" + checksum + b"</ChecksumCRC32></Part>")

    def edit(head: bytes, body: bytes) -> tuple[bytes, bytes]:
        changed = re.sub(rb"<Part>.*?</Part>", with_checksum, body, flags=re.DOTALL)
        length = f"Content-Length: {len(changed)}".encode()
        return re.sub(rb"(?i)content-length: \d+", length, head), changed

    proxy.on("GET", match="uploadId", edit=edit)
    return s3


@dataclass(frozen=True)
class FailedWriter:
    """What a writer stored before an exception ended it."""

    num_rows: int  # Rows of its newest checkpoint
    num_bytes: int  # Bytes up to the end of that
    notes: list[str]  # What the exception was told on its way


@pytest.fixture
def write_and_fail(s3: Any) -> Callable[..., Any]:
    """Writes three parts of five MiB, a checkpoint that ends in the third, some more rows, and fails."""

    async def write_some(writer: Any, noise: random.Random) -> Any:
        checkpoint = None
        for start in range(0, 80, 8):
            numbers = range(start, start + 8)
            await writer.write([{"number": i, "noise": noise.randbytes(200_000)} for i in numbers])
            if start == 56:
                checkpoint = await writer.checkpoint()
        return checkpoint

    async def fail(name: str, checkpoint_log: Any = None) -> FailedWriter:
        options = rpq.WriteOptions(part_bytes=5 * 1024 * 1024, checkpoint_log=checkpoint_log)
        stored: list[Any] = []
        try:
            async with rpq.create(
                s3.url(name), options=options, storage_options=s3.storage_options, compression="none"
            ) as writer:
                stored.append(await write_some(writer, random.Random(2)))
                raise ZeroDivisionError
        except ZeroDivisionError as error:
            (checkpoint,) = stored
            return FailedWriter(checkpoint.num_rows, checkpoint.offset, error.__notes__)

    return fail


def drive_carving(asking: Any, data: bytes) -> Any:
    """Give a generator the bytes that it asks for; returns what it returns."""
    view = memoryview(data)
    try:
        wanted = next(asking)
        while True:
            assert 0 <= wanted.start <= wanted.end <= len(data)
            wanted = asking.send(view[wanted.start : wanted.end])
    except StopIteration as stop:
        return stop.value


def carve_bytes(data: bytes, schema: Any = None, **options: Any) -> Any:
    """What carving makes of the largest file in some bytes."""
    files = drive_carving(find_files(0, len(data)), data)
    largest = max(files, key=lambda file: file.num_bytes)
    return drive_carving(carve(largest, schema, **options), data)


def footer_of(data: bytes) -> tuple[FileMetaData, int]:
    """The metadata of a file, and where its footer begins."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return compact_protocol.decode(FileMetaData, data, start)[0], start


def complete(group: Any) -> bool:
    """Whether all chunks of a carved row group are whole."""
    return all(chunk is not None and chunk.pages.complete for chunk in group.chunks)


def refooted(data: bytes, rebuilt: Any, key_values: Any = None) -> bytes:
    """A file of some bytes and the row groups that carving found complete in them, behind a new footer."""
    groups = [group for group in rebuilt.row_groups if complete(group) and group.num_rows is not None]
    metadata = rebuilt.metadata
    metadata.key_value_metadata = key_values
    metadata.num_rows = sum(group.num_rows for group in groups)
    metadata.row_groups = [
        RowGroup([ColumnChunk(meta_data=chunk.read.metadata) for chunk in group.chunks], 0, group.num_rows)
        for group in groups
    ]
    encoded = compact_protocol.encode(metadata)
    return data + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def carved_table(data: bytes, rebuilt: Any, key_values: Any = None) -> pa.Table:
    """The rows of the complete row groups, each chunk decoded by us, and all of it read by pyarrow."""
    for group in rebuilt.row_groups:
        for chunk in group.chunks if complete(group) else ():
            place = chunk.read.range
            column = decode(chunk.read, memoryview(data)[place.start : place.end], verify=True)
            assert column.num_rows == group.num_rows
    return pq.read_table(io.BytesIO(refooted(data, rebuilt, key_values)))


@pytest.fixture(scope="session")
def carving() -> Any:
    """What tests of carving share."""
    return SimpleNamespace(
        drive=drive_carving, carve=carve_bytes, footer_of=footer_of, table=carved_table, complete=complete
    )
