"""Chunks that compiled code makes of Arrow's buffers are those of `chunk_encoder`, and hostile descriptions are refused."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import nanoarrow
import numpy as np
import pyarrow as pa
import pytest

from resilient_pq.arrow.batch_ingest import Batch, Ingest
from resilient_pq.format import kernels
from resilient_pq.format.pages import flat_chunk
from resilient_pq.format.pages.chunk_encoder import encode_chunk
from resilient_pq.format.pages.chunk_options import ChunkOptions
from resilient_pq.format.pages.encoding_choice import choose, choose_first
from resilient_pq.format.pages.flat_chunk import FIRST, FREE, KEPT, NONE, flat_writer
from resilient_pq.writer.described_chunk import Described
from resilient_pq.writer.write_options import EncoderOptions

INT64 = (0, 2, 8, 0, 1, 0)  # column, kind, width, offsets, optional, signed
TEXT = (0, 6, 0, 4, 1, 0)


@pytest.fixture(autouse=True)
def _compiled(native: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(native, "FlatWriter"):
        pytest.skip("it is no kernel of this module")
    monkeypatch.setattr(kernels, "FlatRows", native.FlatRows)
    monkeypatch.setattr(kernels, "FlatWriter", native.FlatWriter)


def flat(table: Any) -> tuple[Ingest, Batch]:
    ingest, source = Ingest.infer(table)
    return ingest, next(iter(ingest.batches(source)))


def falling(kind: Any, dtype: str, *offsets: int) -> Any:
    """A text array with offsets that are none."""
    buffers = [None, np.array(offsets, dtype), b"abcde"]
    return nanoarrow.c_array_from_buffers(kind, len(offsets) - 1, buffers, validation_level="none")


def rows_of(array: Any, *leaves: tuple[int, ...]) -> Any:
    """An Arrow array as the rows of leaves."""
    owner = nanoarrow.c_array(array)
    return kernels.FlatRows(owner, 0, np.array(leaves, np.int64), [owner._addr()], [0], owner.length)


def draw(rng: np.random.Generator, rows: int) -> pa.Table:
    numbers = rng.integers(0, int(rng.choice([1, 3, 200, 1 << 40])), rows)
    mask = rng.random(rows) < float(rng.choice([0, 0.01, 0.6, 1]))
    words = [
        None if null else "ä" * int(n % 5) + str(n) * int(n % 60 == 0) * 30
        for n, null in zip(numbers, mask, strict=True)
    ]
    return pa.table(
        {
            "i8": pa.array((numbers % 250 - 125).astype("i1"), mask=mask),
            "u16": pa.array(numbers.astype("u2")),
            "i32": pa.array(np.sort(numbers).astype("i4")),
            "rising": pa.array(np.arange(rows) * int(rng.choice([0, 1, 1000])) + 7),
            "falling": pa.array((-3 * np.arange(rows) - rng.integers(0, 2)).astype("i4")),
            "nearly": pa.array(np.arange(rows) - (np.arange(rows) == rows // 2)),
            "u64": pa.array(numbers.astype("u8"), mask=mask),
            "f32": pa.array(np.where(numbers % 7, numbers, np.nan).astype("f4")),
            "f64": pa.array(numbers * -0.5, mask=mask),
            "flag": pa.array(numbers % 2 == 0, mask=mask),
            "word": pa.array(words, pa.string()),
            "large": pa.array(words, pa.large_string()),
            "blob": pa.array([str(n).encode() for n in numbers.tolist()], pa.binary()),
        }
    )


@pytest.mark.parametrize("rows", [1, 8, 9, 130, 511, 512, 1023, 1024])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_the_chunks_are_those_of_the_encoder(rows: int, codec: str) -> None:
    rng = np.random.default_rng(rows)
    ingest, batch = flat(draw(rng, rows + 3).slice(3))
    options = EncoderOptions(compression=codec).chunk_options(ingest.schema)
    writer = flat_writer(ingest.schema, options)
    leaves, dictionaries = ingest.schema.leaves, {FREE: None, KEPT: True, NONE: False, FIRST: None}
    for choice, dictionary in dictionaries.items():
        choices = bytes(choice if leaf.is_flat_text else FREE for leaf in leaves)
        start = int(rng.integers(0, rows))
        for leaf, chunk in zip(
            leaves, writer.chunks(batch.flat, start, rows - start, 0, len(leaves), choices), strict=True
        ):
            how = ChunkOptions(options[0].codec, options[0].level, dictionary=dictionary if leaf.is_flat_text else None)
            choosing = choose_first if choice == FIRST and leaf.is_flat_text else choose
            data = batch.columns[leaf.ordinal].slice(start, rows).shredded()
            other = encode_chunk(leaf, [data], how, choose=choosing)
            assert b"".join(map(bytes, chunk.buffers)) == b"".join(map(bytes, other.buffers)), leaf.column_path
            chunk.place(77)
            other.place(77)
            expected = Described(other, 0)
            assert chunk.column_chunk(("k", "v")) == expected.column_chunk(("k", "v")), leaf.column_path
            for said in ("copies", "column_index", "offset_index"):
                assert getattr(chunk, said)() == getattr(expected, said)(), (leaf.column_path, said)


def test_what_is_uncommon_is_declined() -> None:
    table = pa.table({"n": range(1025), "s": ["x" * 200] * 1025})
    ingest, batch = flat(table)
    writer = flat_writer(ingest.schema, EncoderOptions().chunk_options(ingest.schema))
    assert writer.chunks(batch.flat, 0, 1025, 0, 2, bytes(2)) == [None, None]
    made = writer.chunks(batch.flat, 1, 1000, 0, 2, bytes(2))
    assert made[0] is not None and made[1] is None, "values of more than 128 KiB"
    for options in ({"page_bytes": 10}, {"encodings": "PLAIN"}, {"encodings": "compact"}, {"compression": "gzip"}):
        small = flat_writer(ingest.schema, EncoderOptions(**options).chunk_options(ingest.schema))
        assert small is None or small.chunks(batch.flat, 0, 9, 0, 2, bytes(2)) == [None, None]


@pytest.mark.parametrize(
    ("array", "leaf"),
    [
        (pa.array([1, None]), (*INT64[:4], 0, 0)),  # a null where none may be
        (pa.array([1, 2]), (1, *INT64[1:])),  # no such column
        (pa.array([1, 2]), (-2, *INT64[1:])),
        (pa.array([1, 2]), TEXT),  # without bytes
        (pa.array(["a", "b"]), INT64),
        (pa.array(["a", "b"]).dictionary_encode(), (0, 1, 4, 0, 1, 0)),
        (pa.array([], pa.int64()), INT64),
        (pa.array([1, 2]), (0, 2, 16, 0, 1, 0)),  # a width that the type has not
        (pa.array([1, 2]), (0, 2, 0, 0, 1, 0)),
        (pa.array([1, 2]), (0, 7, 8, 0, 1, 0)),
        (falling(nanoarrow.string(), "i4", 5, 5, 3), TEXT),
        (falling(nanoarrow.large_string(), "i8", 0, 1 << 40), (0, 6, 0, 8, 1, 0)),
    ],
)  # fmt: skip
def test_arrays_that_are_no_flat_rows(array: Any, leaf: tuple[int, ...]) -> None:
    rows = rows_of(array, leaf)
    assert not rows.simple
    writer = kernels.FlatWriter(np.ones((1, 6), np.int64), [b""], None, None, None, None, None, None)
    with pytest.raises(ValueError, match="are not there"):
        writer.chunks(rows, 0, 1, 0, 1, bytes(1))


def test_offsets_that_fall_among_others_are_declined() -> None:
    rows = rows_of(falling(nanoarrow.string(), "i4", 0, 4, 2, 5, 1 << 30, 5), TEXT)
    table = pa.table({"s": ["a"]})
    ingest, _ = flat(table)
    writer = flat_writer(ingest.schema, EncoderOptions().chunk_options(ingest.schema))
    assert rows.simple
    assert writer.chunks(rows, 0, 5, 0, 1, bytes(1)) == [None]
    assert writer.chunks(rows, 3, 1, 0, 1, bytes(1)) == [None]


def test_descriptions_that_do_not_fit_one_another() -> None:
    ingest, batch = flat(pa.table({"n": [1, 2, 3]}))
    writer = flat_writer(ingest.schema, EncoderOptions().chunk_options(ingest.schema))
    for start, count, first, last, choices in (
        (0, 4, 0, 1, bytes(1)), (-1, 1, 0, 1, bytes(1)), (3, 1, 0, 1, bytes(1)), (0, 0, 0, 1, bytes(1)),
        (0, 1, 0, 2, bytes(1)), (0, 1, -1, 1, bytes(1)), (0, 1, 1, 0, bytes(1)), (0, 1, 0, 1, b""),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"not there|for each leaf"):
            writer.chunks(batch.flat, start, count, first, last, choices)
    owner = nanoarrow.c_array(pa.array([1, 2, 3]))
    for start, length in ((-1, 1), (1, 3), (1 << 62, 1)):
        assert not kernels.FlatRows(owner, 0, np.array([INT64]), [owner._addr()], [start], length).simple
    with pytest.raises(ValueError, match="there must be"):
        kernels.FlatRows(owner, 0, np.zeros((1, 5), np.int64), [owner._addr()], [0], 3)
    with pytest.raises(ValueError, match="there must be"):
        kernels.FlatRows(owner, 0, np.array([INT64]), [owner._addr()], [], 3)
    wrong = kernels.FlatWriter(np.array([[3, 0, 0, 0, 99, 99]]), [b""], None, None, None, None, None, None)
    with pytest.raises(ValueError, match="do not compare"):
        wrong.chunks(batch.flat, 0, 1, 0, 1, bytes(1))
    with pytest.raises(ValueError, match="there must be"):
        kernels.FlatWriter(np.zeros((2, 6), np.int64), [b""], None, None, None, None, None, None)


def test_an_error_while_a_chunk_is_made_is_raised() -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no room")

    _, batch = flat(pa.table({"n": [1.5, 2.5, 3.5]}))
    numbers = np.array([[3, 6, 3, 0, 1 << 20, 1 << 20]], np.int64)
    writer = kernels.FlatWriter(numbers, [b""], broken, broken, broken, broken, broken, broken)
    for _ in range(2):
        with pytest.raises(OSError, match="no room"):
            writer.chunks(batch.flat, 0, 3, 0, 1, bytes(1))
    assert flat_chunk.MOST_ROWS == 1024


def test_schemas_that_say_the_same_have_one_key(native: ModuleType) -> None:
    def key(*fields: Any, metadata: Any = None, depth: int = 9) -> Any:
        schema = nanoarrow.c_schema(pa.schema(fields, metadata))
        return native.schema_key(schema._addr(), depth)

    one = pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))
    assert key(*one) == key(*one) and key(*one, depth=1) is None
    others = [
        key(*one[::-1]), key(one[0]), key(one[0].with_nullable(False), one[1]), key(*one, metadata={"k": "v"}),
        key(*one, metadata={"k": ""}), key(one[0].with_metadata({"k": "v"}), one[1]), key(one[0].with_name("ab"), one[1]),
        key(pa.field("a", pa.dictionary(pa.int32(), pa.string())), one[1]),
    ]  # fmt: skip
    assert len({key(*one), *others}) == len(others) + 1
