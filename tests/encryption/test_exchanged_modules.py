"""Modules of an encrypted file in each other's place: every exchange is found, as the AAD names the place."""

from __future__ import annotations

import io
import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from encrypted_files import footer_start, read_in_memory, view_of
from sampled import sampled

import resilient_pq as rpq
from resilient_pq.format import compact_protocol
from resilient_pq.format.crypto.file_cipher import FileAlgorithm
from resilient_pq.format.crypto.modules import KEY_SIZES, KeyCipher, ModulePlace, module_size
from resilient_pq.format.crypto.sealed_footer import FileCryptoMetaData
from resilient_pq.format.file_metadata import FileMetaData

KEY = b"0123456789012345"


@dataclass(frozen=True)
class Module:
    """A module of a page, of which the length was read from the file."""

    start: int
    end: int


def written(seed: int = 0, *, dictionary: bool = False) -> bytes:
    """Two row groups of two columns of four pages, of which all have one size."""
    rng = np.random.default_rng(seed)
    values = [rng.integers(0, 3 if dictionary else 1 << 60, 800) for _ in range(2)]
    sink = io.BytesIO()
    pq.write_table(
        pa.table({"a": values[0], "b": values[1]}),
        sink,
        row_group_size=400,
        data_page_size=100,
        write_batch_size=100,
        compression="none",
        use_dictionary=dictionary,
        column_encoding=None if dictionary else "PLAIN",
        write_page_index=True,
        encryption_properties=pe.create_encryption_properties(footer_key=KEY),
    )
    return sink.getvalue()


def modules_of_pages(data: bytes) -> list[tuple[Module, Module]]:
    """Header and body of each page, from the first byte behind the magic on, as long as they follow each other."""
    pages, at = [], 4
    while len(pages) < 16:
        header = Module(at, at + 4 + int.from_bytes(data[at : at + 4], "little"))
        body = Module(header.end, header.end + 4 + int.from_bytes(data[header.end : header.end + 4], "little"))
        pages.append((header, body))
        at = body.end
    assert at <= footer_start(data)
    return pages


async def read(data: bytes) -> pa.Table:
    return await read_in_memory(data, keys=KEY)


def exchanged(data: bytes, one: Module, other: Module) -> bytes:
    assert one.end - one.start == other.end - other.start
    out = bytearray(data)
    out[one.start : one.end], out[other.start : other.end] = data[other.start : other.end], data[one.start : one.end]
    return bytes(out)


def exchanges(data: bytes) -> Iterator[bytes]:
    """Every header with every other, every body with every other, and every page with every other."""
    pages = modules_of_pages(data)
    for (header, body), (other_header, other_body) in itertools.combinations(pages, 2):
        yield exchanged(data, header, other_header)
        yield exchanged(data, body, other_body)
        yield exchanged(exchanged(data, header, other_header), body, other_body)


@sampled(60, 1000)
async def test_every_exchange_of_two_pages_is_found(count: int) -> None:
    data = written()
    rows = await read(data)
    cases = list(exchanges(data))
    assert len(cases) == 3 * 16 * 15 // 2
    for case in random.Random(3).sample(cases, min(count, len(cases))):
        with pytest.raises(rpq.AuthenticationError, match="is not what was sealed for this place"):
            await read(case)
    assert (await read(data)).equals(rows)


async def test_pages_and_footers_of_another_file_of_the_same_key_are_found() -> None:
    data, other = written(1), written(2)
    assert len(data) == len(other)
    header, body = modules_of_pages(data)[3]
    with pytest.raises(rpq.AuthenticationError):
        await read(data[: header.start] + other[header.start : body.end] + data[body.end :])
    start = footer_start(data)
    with pytest.raises(rpq.FormatError):
        await read(data[:start] + other[start:])
    with pytest.raises(rpq.FormatError):
        await read(other[:start] + data[start:])


async def test_indexes_in_each_others_place_are_found() -> None:
    data = written()
    pages = modules_of_pages(data)
    start, end = pages[-1][1].end, footer_start(data)
    modules, at = [], start
    while at < end:
        modules.append(Module(at, at + 4 + int.from_bytes(data[at : at + 4], "little")))
        at = modules[-1].end
    pairs = [pair for pair in itertools.combinations(modules, 2) if len({m.end - m.start for m in pair}) == 1]
    assert pairs
    for one, other in pairs:
        view = await view_of(exchanged(data, one, other), KEY)
        with pytest.raises(rpq.AuthenticationError, match="an index is not what was sealed for this place"):
            await view.read_range("file", one.start, one.start + 1, pin=await view.head("file"))


@pytest.mark.parametrize("size", KEY_SIZES)
@pytest.mark.parametrize("tagged", [True, False])
def test_what_is_sealed_opens_at_its_place_alone(size: int, tagged: bool) -> None:
    cipher = KeyCipher(bytes(range(size)), tagged_pages=tagged)
    place = ModulePlace(2, 1, 2, 3)
    counter = itertools.count()
    content = b"the body of a page"
    module = cipher.seal(content, 2, place.aad(b"file"), lambda n: next(counter).to_bytes(n, "big"))
    assert module_size(memoryview(module), 0, len(module), cipher.overhead(2)) == len(module)
    assert content not in module
    assert cipher.open(memoryview(module), 2, place.aad(b"file")) == content
    assert ("00010203" not in repr(cipher) and "256" in repr(cipher)) or size != 32


@pytest.mark.parametrize(
    "data", [b"", b"\x1b\0\0\0", b"\xff\xff\xff\xff" + bytes(40), b"\x20\0\0\0" + bytes(20), bytes(64)]
)
def test_lengths_of_modules_are_not_believed(data: bytes) -> None:
    with pytest.raises(rpq.FormatError):
        module_size(memoryview(data), 0, len(data), 32)


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written()
    for name in list(sys.modules):
        if name.split(".")[0] == "cryptography":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(rpq.UnsupportedError, match="cryptography") as caught:
        await read(data)
    assert "resilient_pq[encryption]" in str(caught.value.hint)


async def test_a_hostile_footer_is_refused_or_read() -> None:
    """Whoever has the key may write what they like: things in one place, behind the end, or at negative offsets."""
    data = written()
    start = footer_start(data)
    payload = data[start:-8]
    crypto, at = compact_protocol.decode(FileCryptoMetaData, payload)
    cipher = KeyCipher(KEY)
    aad = ModulePlace(0).aad(FileAlgorithm.of(crypto.encryption_algorithm).file_aad(None))
    content = bytes(cipher.open(memoryview(payload)[at:], 0, aad))
    generator = random.Random(1)
    refused = 0
    for _ in range(150):
        metadata, _ = compact_protocol.decode(FileMetaData, content)
        metadata.schema, metadata.row_groups = list(metadata.schema), list(metadata.row_groups)
        for row_group in metadata.row_groups:
            row_group.columns = list(row_group.columns)
        chunk = generator.choice(metadata.row_groups).columns[generator.randrange(2)]
        assert chunk.meta_data is not None
        name, target = generator.choice(
            [("total_compressed_size", chunk.meta_data), ("data_page_offset", chunk.meta_data)]
            + [("dictionary_page_offset", chunk.meta_data), ("bloom_filter_offset", chunk.meta_data)]
            + [(f"{kind}_index_{what}", chunk) for kind in ("column", "offset") for what in ("offset", "length")]
        )
        setattr(target, name, generator.choice([-1, 0, 1, 5, 33, 1 << 30, (1 << 31) - 1, len(data), len(data) + 1]))
        sealed = cipher.seal(compact_protocol.encode(metadata), 0, aad, generator.randbytes)
        body = payload[:at] + bytes(sealed)
        try:
            await read(data[:start] + body + len(body).to_bytes(4, "little") + b"PARE")
        except rpq.FormatError:
            refused += 1
    assert refused > 50
