"""Whatever the bytes are, reading, checking and recovering end soon, in bounded memory, with an answer of ours."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from corpus_of_others import CORPUS, absent
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import either, sampled

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.file_metadata import FileMetaData
from resilient_pq.format.footer import frame

ERRORS_OF_FORMAT = {
    "ChecksumError",
    "CodecUnavailableError",
    "EncodingError",
    "FormatError",
    "KeyMissingError",
    "NotParquetError",
    "SchemaError",
    "ThriftError",
    "TornFileError",
    "UnsupportedError",
}
NUMBERS = [0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def feed(hostile_reader: Any, data: bytes) -> dict[str, Any]:
    """Have it examined; a store has nothing to do with it, so that only errors of the format can come of it."""
    said: dict[str, Any] = hostile_reader.answer(data)
    assert said["read"] in ERRORS_OF_FORMAT | {"ok"}
    assert said["read unverified"] in ERRORS_OF_FORMAT | {"ok"}
    assert said["check"] in ERRORS_OF_FORMAT | {"sound", "incomplete", "damaged", "nothing", "unchecked"}
    assert said["recover"] in ERRORS_OF_FORMAT | {"NothingToRecoverError", "sound", "recovered", "partial"}
    return said


def noise(seed: int, count: int) -> list[bytes]:
    """Random bytes, bare and dressed as a Parquet file."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        data = rng.randbytes(rng.choice([0, 1, 4, 8, 11, 12, 13, 96, 200, 5000]))
        framed = b"PAR1" + frame(rng.randbytes(rng.randrange(80)))
        found += [data, b"PAR1" + data, b"PAR1" + data + b"PAR1", b"PAR1" + data + framed[4:], framed]
    return found


def test_noise(hostile_reader: Any) -> None:
    for data in noise(1, 12):
        said = feed(hostile_reader, data)
        assert said["read"] != "ok"
        assert said["recover"] == "NothingToRecoverError"


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes after a few changes of the kinds that parsers trip over."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        # The metadata stand near the end: changes there reach further.
        first = rng.choice([0, max(len(changed) - 3000, 0)])
        at = rng.randrange(first, len(changed)) if len(changed) > first else 0
        match rng.randrange(7):
            case 0:
                changed[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                changed[at : at + 4] = struct.pack("<I", rng.choice(NUMBERS))
            case 2:
                del changed[at : at + rng.choice([1, 2, 16, 500])]
            case 3:
                changed[at:at] = rng.randbytes(rng.choice([1, 2, 16, 500]))
            case 4:
                other = rng.randrange(len(changed) + 1)
                changed[at:at] = changed[other : other + rng.choice([1, 8, 64, 1000])]
            case 5:
                changed[at : at + 5] = b"\xff\xff\xff\xff\x0f"  # the largest of small varints
            case _:
                changed[at : at + 16] = bytes(16)
    return bytes(changed)


def rotten(data: bytes, rng: random.Random) -> bytes:
    """The bytes with a whole footer, so that what stands before it is read, changed in a few places."""
    changed = bytearray(data)
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    if not data.endswith(b"PAR1") or footer <= 4:
        return data  # no footer, or nothing before it
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(4, footer)
        piece = rng.choice([rng.randbytes(1), rng.randbytes(4), bytes(8), b"\xff" * 5, b"\xff\xff\xff\xff\x0f"])
        size = min(len(piece), footer - at)
        changed[at : at + size] = piece[:size]
    return bytes(changed)


class TestMutations:
    """Of a resilient file, and of files that others wrote, which no checksum protects from being parsed."""

    def of(self, hostile_reader: Any, data: bytes, seed: int, count: int) -> None:
        rng = random.Random(seed)
        for _ in range(count):
            feed(hostile_reader, mutated(data, rng))
            feed(hostile_reader, rotten(data, rng))

    @pytest.mark.parametrize(("seed", "count"), either([(1, 10)], [(seed, 500) for seed in range(10, 14)], 900))
    def test_of_a_resilient_file(self, hostile_reader: Any, small: Any, seed: int, count: int) -> None:
        self.of(hostile_reader, small.data, seed, count)

    @pytest.mark.parametrize(("seed", "count"), either([(2, 10)], [(seed, 500) for seed in range(20, 24)], 900))
    def test_of_the_files_of_others(
        self, hostile_reader: Any, foreign: tuple[str, bytes], seed: int, count: int
    ) -> None:
        self.of(hostile_reader, foreign[1], seed, count)

    @pytest.mark.parametrize(("seed", "count"), either([(5, 2)], [(seed, 100) for seed in range(30, 34)], 900))
    def test_of_records_that_are_signed_again(self, hostile_reader: Any, small: Any, seed: int, count: int) -> None:
        self.forge(hostile_reader, small, seed, count)

    def forge(self, hostile_reader: Any, small: Any, seed: int, count: int) -> None:
        """Whoever writes such a file knows how to compute checksums."""
        rng = random.Random(seed)
        for record in [found for kind in (1, 2, 3, 4, 5) for found in small.records(kind)[-2:]]:
            payload = small.data[record.start + 96 : record.stop]
            for _ in range(count):
                data = small.forged(record, mutated(payload, rng))
                feed(hostile_reader, data)
                feed(hostile_reader, data + small.data[len(data) :])

    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(
        edits=st.lists(
            st.tuples(st.integers(0, 1 << 30), st.integers(0, 64), st.binary(max_size=64)),
            min_size=1,
            max_size=6,
        )
    )
    def test_edits_that_hypothesis_shrinks(
        self, hostile_reader: Any, foreign: tuple[str, bytes], edits: list[tuple[int, int, bytes]]
    ) -> None:
        data = bytearray(foreign[1])
        for anywhere, removed, inserted in edits:
            at = anywhere % (len(data) + 1)
            data[at : at + removed] = inserted
        feed(hostile_reader, bytes(data))


def corpus_files(folder: str) -> list[Path]:
    files = sorted(path for path in (CORPUS / folder).rglob("*") if path.is_file())
    if not files:
        absent(CORPUS / folder)
    return files


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(40, 44))
def test_mutations_of_what_others_have_collected(hostile_reader: Any, seed: int) -> None:
    """Every encoding, codec and shape that the corpora have."""
    rng = random.Random(seed)
    folders = ("parquet-testing", "drill", "nanoparquet", "fastparquet", "parquet-java")
    files = [path for folder in folders for path in corpus_files(folder) if 100 < path.stat().st_size < 60_000]
    files = [path for path in files if path.name != "_metadata"]  # whose rows are in files that are not there
    for path in rng.choices(files, k=400):
        data = path.read_bytes()
        try:
            feed(hostile_reader, mutated(data, rng))
            feed(hostile_reader, rotten(data, rng))
        except BaseException as error:
            error.add_note(path.name)
            raise


@sampled(12, 10_000)
@pytest.mark.parametrize("folder", ["arrow-testing", "parquet-testing/bad_data"])
def test_what_has_tripped_other_readers(hostile_reader: Any, folder: str, count: int) -> None:
    files = corpus_files(folder)
    for path in random.Random(folder).sample(files, min(count, len(files))):
        try:
            feed(hostile_reader, path.read_bytes())
        except BaseException as error:
            error.add_note(path.name)
            raise


async def test_a_footer_that_knows_of_no_rows(foreign: tuple[str, bytes], outcome_of: Any) -> None:
    """The pages of a row group tell of more rows than its footer, and the first of them is damaged."""
    data = bytearray(foreign[1])
    size = int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact_protocol.decode(FileMetaData, memoryview(data)[-8 - size : -8], 0, what="footer")
    row_group = metadata.row_groups[-1]
    row_group.num_rows = 0
    for chunk in row_group.columns:
        start = chunk.meta_data.dictionary_page_offset or chunk.meta_data.data_page_offset
        data[start : start + 4] = b"\xff" * 4
    footer = compact_protocol.encode(metadata)
    data[-8 - size :] = footer + len(footer).to_bytes(4, "little") + b"PAR1"
    outcome = await outcome_of(bytes(data))
    assert outcome.check.outcome == rpq.Outcome.DAMAGED
    assert outcome.recovery.num_rows == sum(each.num_rows for each in metadata.row_groups)
