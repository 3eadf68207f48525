"""Objects that are no Parquet files, or no more: what they are called, and what undoing a text transfer gives."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import pickle
import random
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.recovery.evidence.identify import Identity, identify, identity_of
from resilient_pq.recovery.evidence.text_mode import TextChange, detect_text_damage, undo_text_change


def drive(data: bytes) -> Identity:
    asking = identify(len(data))
    num_bytes = 0
    try:
        wanted = next(asking)
        while True:
            assert 0 <= wanted.start < wanted.end <= len(data)
            num_bytes += wanted.size
            assert num_bytes <= 3 << 20
            wanted = asking.send(memoryview(data)[wanted.start : wanted.end])
    except StopIteration as stop:
        identity: Identity = stop.value
        return identity


@cache
def table() -> pa.Table:
    rng = random.Random(1)
    return pa.table(
        {
            "id": list(range(5000)),
            "noise": [rng.randbytes(rng.randrange(20)) for _ in range(5000)],
            "name": [f"é{i % 50}\r\n" for i in range(5000)],
        }
    )


@cache
def foreign(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table(), sink, row_group_size=1000, **options)
    return sink.getvalue()


def from_sink(write: Callable[[Any], None]) -> bytes:
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def archived(kind: str, data: bytes) -> bytes:
    sink = io.BytesIO()
    if kind == "tar":
        with tarfile.open(fileobj=sink, mode="w") as tar:
            member = tarfile.TarInfo("day.parquet")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    else:
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("day.parquet", data)
    return sink.getvalue()


def streamed() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table().schema) as writer:
        writer.write_table(table())
    return sink.getvalue()


def database(folder: Path) -> bytes:
    path = folder / "some.db"
    connection = sqlite3.connect(path)
    connection.execute("create table t (a)")
    connection.commit()
    connection.close()
    return path.read_bytes()


def duck(folder: Path) -> bytes:
    import duckdb

    path = folder / "some.duckdb"
    connection = duckdb.connect(str(path))
    connection.execute("create table t as select 1 as a")
    connection.close()
    return path.read_bytes()


LFS = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n".encode()
S3_ERROR = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SlowDown</Code><Message>Reduce</Message></Error>'
MAKERS: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda _: b"",
    "zeros": lambda _: bytes(10_000_000),
    "zeros-around": lambda _: bytes(2_000_000) + random.Random(1).randbytes(3_000_000) + bytes(5000),
    "gzip-of-parquet": lambda _: gzip.compress(foreign()),
    "zstd-of-parquet": lambda _: bytes(cramjam.zstd.compress(foreign())),
    "bzip2-of-parquet": lambda _: bz2.compress(foreign()),
    "xz-of-parquet": lambda _: lzma.compress(foreign()),
    "lz4-of-parquet": lambda _: bytes(cramjam.lz4.compress(foreign())),
    "base64-of-parquet": lambda _: base64.encodebytes(foreign()),
    "hex-of-parquet": lambda _: foreign().hex().encode(),
    "gzip": lambda _: gzip.compress(b"a,b\n1,2\n" * 1000),
    "zstd": lambda _: bytes(cramjam.zstd.compress(b"a,b\n1,2\n" * 1000)),
    "tar": lambda _: archived("tar", foreign()),
    "zip": lambda _: archived("zip", foreign()),
    "arrow-file": lambda _: from_sink(lambda sink: pyarrow.feather.write_feather(table(), sink)),
    "arrow-stream": lambda _: streamed(),
    "orc": lambda _: from_sink(lambda sink: pyarrow.orc.write_table(table(), sink)),
    "avro": lambda _: b"Obj\x01\x04\x14avro.codec\x08null" + bytes(range(200)),
    "sqlite": database,
    "duckdb": duck,
    "hdf5": lambda _: b"\x89HDF\r\n\x1a\n" + bytes(range(100)),
    "numpy": lambda _: from_sink(lambda sink: np.save(sink, np.arange(10))),
    "pickle": lambda _: pickle.dumps(table().to_pydict()),
    "git-lfs": lambda _: LFS,
    "s3-error": lambda _: S3_ERROR,
    "html": lambda _: b"\n<!DOCTYPE html><html><head><title>Sign in\n to it</title></head></html>",
    "xml": lambda _: b"<?xml version='1.0'?><rows><row/></rows>",
    "json": lambda _: json.dumps({"a": [1, 2]}, indent=2).encode(),
    "ndjson": lambda _: b'{"a": 1}\n{"a": 2}\n',
    "delta-log": lambda _: b'{"protocol":{"minReaderVersion":1}}\n{"metaData":{}}\n',
    "csv": lambda _: b"\xef\xbb\xbfid;name\n1;one\n2;zw\xc3\xb6lf\n",
    "text": lambda _: b"Some words,\nand some more of them\n",
    "parquet-encrypted": lambda _: b"PARE" + bytes(range(100)) + b"PARE",
    "parquet": lambda _: foreign()[:-500],
    "unknown": lambda _: random.Random(2).randbytes(5000),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_it_is(name: str, tmp_path: Path) -> None:
    identity = drive(MAKERS[name](tmp_path))
    assert identity.name == name
    assert identity.sentence.startswith(("it ", "this ", "nothing "))


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_names_what_is_in_it(kind: str) -> None:
    identity = drive(archived(kind, foreign()))
    assert "'day.parquet', which is a Parquet file" in identity.sentence


@pytest.mark.parametrize(
    ("name", "undo"),
    [
        ("gzip-of-parquet", gzip.decompress),
        ("base64-of-parquet", base64.b64decode),
        ("hex-of-parquet", lambda data: bytes.fromhex(data.decode())),
    ],
)
def test_the_command_leads_back(name: str, undo: Callable[[bytes], bytes], tmp_path: Path) -> None:
    data = MAKERS[name](tmp_path)
    hint = drive(data).hint
    assert hint is not None and "FILE.parquet" in hint
    assert undo(data) == foreign()


def test_messages_have_no_control_characters() -> None:
    html = b"<html><title>a\x1b[31m\x07b</title>"
    for data in (html, archived("zip", b"").replace(b"day.parquet", b"d\x1b]\x07\n.parqu")):
        identity = drive(data)
        assert identity.sentence.isprintable()


def test_the_corpus_of_others_is_parquet() -> None:
    for version in ("1.0", "2.6"):
        for compression in ("none", "snappy", "zstd"):
            data = foreign(version=version, compression=compression)
            assert drive(data).name == "parquet"
            assert undo_text_change(data) is None


@given(st.binary(max_size=3000), st.binary(max_size=100))
def test_any_bytes_get_an_answer(head: bytes, tail: bytes) -> None:
    for magic in (b"", *(data[:8] for data in (gzip.compress(b""), bz2.compress(b""), lzma.compress(b"")))):
        assert identity_of(magic + head, tail).sentence.isprintable()


@pytest.mark.parametrize(
    "magic", [b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\x00", b"BZh9", b"\xfd7zXZ\0", b"PK\x03\x04"]
)
def test_what_only_begins_as_a_compressed_file(magic: bytes) -> None:
    for rest in (b"", b"\xff" * 300, bytes(300), random.Random(3).randbytes(1000)):
        assert not drive(magic + rest).name.endswith("of-parquet")


# -- text mode -------------------------------------------------------------------------------------------

CHANGES: dict[TextChange, Callable[[bytes], bytes]] = {
    TextChange.LF_TO_CRLF: lambda data: data.replace(b"\n", b"\r\n"),
    TextChange.CRLF_TO_LF: lambda data: data.replace(b"\r\n", b"\n"),
    TextChange.UTF8_REPLACED: lambda data: data.decode("utf-8", "replace").encode(),
    TextChange.LATIN1_AS_UTF8: lambda data: data.decode("latin-1").encode(),
    TextChange.ASCII_REPLACED: lambda data: data.decode("ascii", "replace").replace("\ufffd", "?").encode(),
    TextChange.SEVEN_BITS: lambda data: bytes(byte & 0x7F for byte in data),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_resilient_file_is_an_exact_witness(change: TextChange, write_file: Any) -> None:
    data = (await write_file(pa.table({"a": [1]}))).data
    assert detect_text_damage(data) is None
    damage = detect_text_damage(CHANGES[change](data))
    assert damage is not None
    assert (damage.change, damage.certain) == (change, True)
    identity = drive(CHANGES[change](data))
    assert identity.name == "text-mode"
    assert "suggest" not in identity.sentence


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_of_others_is_told_by_its_bytes(change: TextChange) -> None:
    noise = random.Random(4).randbytes(2 << 20)
    sink = io.BytesIO()
    pq.write_table(pa.table({"noise": [noise[at : at + 99] for at in range(0, len(noise), 99)]}), sink)
    data = sink.getvalue()
    assert detect_text_damage(data) is None
    damage = detect_text_damage(CHANGES[change](data)[: 1 << 20])
    assert damage is not None
    assert (damage.change, damage.certain) == (change, False)
    identity = drive(CHANGES[change](data))
    assert (identity.name, "suggest" in identity.sentence) == ("text-mode", True)


@pytest.mark.parametrize("change", [TextChange.LF_TO_CRLF, TextChange.LATIN1_AS_UTF8])
def test_undone(change: TextChange) -> None:
    for data in (foreign(), foreign(compression="none", write_page_checksum=True)):
        assert undo_text_change(CHANGES[change](data)) == (change, data)


@pytest.mark.parametrize("data", [b"", b"a\r\nb", b"PAR1\r\nPAR1", "PAR1é".encode()])
def test_what_is_smaller_than_any_file_is_not_undone(data: bytes) -> None:
    assert undo_text_change(data) is None


@pytest.mark.parametrize("change", [TextChange.LF_TO_CRLF, TextChange.LATIN1_AS_UTF8])
def test_a_small_file_is_told_by_undoing_it(change: TextChange) -> None:
    """It has too few bytes to count."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [10, 1 << 40], "b": ["\n", "é"]}), sink, compression="none", store_schema=False)
    changed = CHANGES[change](sink.getvalue())
    assert detect_text_damage(changed) is None
    identity = drive(changed)
    assert (identity.name, "suggest" in identity.sentence) == ("text-mode", False)


@pytest.mark.parametrize("change", sorted(set(CHANGES) - {TextChange.LF_TO_CRLF, TextChange.LATIN1_AS_UTF8}, key=str))
def test_what_lost_something_is_not_undone(change: TextChange) -> None:
    assert undo_text_change(CHANGES[change](foreign())) is None


@given(
    st.lists(st.binary(max_size=40), min_size=1, max_size=30),
    st.sampled_from(["none", "snappy"]),
    st.sampled_from([TextChange.LF_TO_CRLF, TextChange.LATIN1_AS_UTF8]),
    st.integers(0, 3),
)
def test_undoing_gives_the_original_or_nothing(
    values: list[bytes], compression: str, change: TextChange, more: int
) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": pa.array(values, pa.binary())}), sink, compression=compression)
    data = sink.getvalue()
    changed = CHANGES[change](data)
    found = undo_text_change(changed)
    assert found == (None if changed == data else (change, data))
    # A change that was not the same everywhere cannot be undone, unless it is proven nonetheless.
    partly = changed[: len(changed) // 2] + data[-more - 1 :]
    assert undo_text_change(partly) in (None, (change, data))


def test_a_converter_that_leaves_pairs_alone_is_not_undone() -> None:
    """As unix2dos does: the pairs that were there before cannot be told from those that were made."""
    data = foreign(compression="none", use_dictionary=False)
    assert b"\r\n" in data
    changed = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    assert changed != CHANGES[TextChange.LF_TO_CRLF](data)
    assert undo_text_change(changed) is None
    assert drive(changed).name == "text-mode"


@pytest.mark.parametrize(("zeros", "name"), [(4095, "unknown"), (4096, "zeros")])
def test_the_last_4096_bytes_are_looked_at(zeros: int, name: str) -> None:
    assert drive(bytes(2 << 20) + b"x" + bytes(zeros)).name == name
