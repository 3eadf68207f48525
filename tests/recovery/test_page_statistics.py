"""Statistics in page headers, and what stands behind a page, as evidence where pages of others have no checksum."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpus_of_others import CORPUS, absent
from footers_of_others import chunks_of, footer_of
from writers_of_others import WriteTable, by_duckdb, by_polars, by_pyarrow

from resilient_pq import NothingToRecoverError
from resilient_pq import sync as rpq
from resilient_pq.damage.page_statistics import check_page_statistics
from resilient_pq.errors import FormatError
from resilient_pq.format.encodings import DICTIONARY_ENCODINGS
from resilient_pq.format.file_metadata import PageType
from resilient_pq.format.pages.page import Page, pages_of
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.reader.contents import chunk_range

ROWS = 500


def _table(row_groups: int, seed: int = 1) -> pa.Table:
    """An id, and other numbers of its size that ascend, so that all chunks have as many bytes."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {"id": range(ROWS * row_groups)} | {name: np.cumsum(draw.random(ROWS * row_groups)) for name in "ab"}
    )


def _body(data: bytes) -> bytes:
    """A file without its footer."""
    return data[: len(data) - 8 - int.from_bytes(data[-8:-4], "little")]


def _wrong_rows(path: Path, table: pa.Table, **options: Any) -> tuple[int, int]:
    """How many rows are kept, and how many of them have values of several rows."""
    try:
        rpq.recover(path, path.with_name("saved"), overwrite=True, **options)
    except NothingToRecoverError:
        return 0, 0
    found = pa.table(rpq.read(path.with_name("saved")))
    places = [{value: row for row, value in enumerate(column.to_pylist())} for column in table.columns]
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    rows_of = [{at.get(v, -1) for at, v in zip(places, row, strict=True) if v is not None} for row in rows]
    return len(rows), sum(len(each) > 1 or -1 in each for each in rows_of)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("on_damage", ["drop", "null"])
@pytest.mark.parametrize("part", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("leaf", range(3))
@pytest.mark.ways_in_quick(12)
def test_a_row_group_of_bytes_deleted(tmp_path: Path, version: str, on_damage: str, part: float, leaf: int) -> None:
    """A page has the front of one and the end of another; only the statistics in its header tell."""
    table, whole, torn = _table(6), tmp_path / "whole", tmp_path / "torn"
    pq.write_table(table, whole, row_group_size=ROWS, use_dictionary=False, compression="none",
                   data_page_version=version)  # fmt: skip
    data = whole.read_bytes()
    chunks = chunks_of(footer_of(data))
    size = chunks[3].data_page_offset - chunks[0].data_page_offset
    start = chunks[3 + leaf].data_page_offset + int(part * chunks[3 + leaf].total_compressed_size)
    torn.write_bytes(_body(data[:start] + data[start + size :]))
    kept, wrong = _wrong_rows(torn, table, schema_from=whole, on_damage=on_damage)
    assert kept
    assert not wrong


MAKES: dict[str, WriteTable] = {
    "pyarrow, indexes": by_pyarrow(use_dictionary=False, compression="none", write_page_index=True),
    "pyarrow, snappy": by_pyarrow(use_dictionary=False, write_page_index=True),
    "Polars": by_polars("uncompressed", statistics=False),
    "DuckDB": by_duckdb("uncompressed"),
}


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.ways_in_quick(10)
def test_the_last_page_before_missing_bytes(tmp_path: Path, make: str, seed: int) -> None:
    """It takes the bytes that follow for its own: values of a fixed size decode whatever they are."""
    table, whole, torn = _table(20, seed), tmp_path / "whole", tmp_path / "torn"
    MAKES[make](table, 2048, whole)
    data, draw = whole.read_bytes(), random.Random(seed)
    chunks = chunks_of(footer_of(data))
    start = draw.randrange(chunks[3].data_page_offset, chunks[6].data_page_offset)
    torn.write_bytes(_body(data[:start] + data[start + draw.randrange(100, 20_000) :]))
    kept, wrong = _wrong_rows(torn, table, schema_from=whole, on_damage="null")
    assert kept
    assert not wrong


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("seed", range(4))
def test_bytes_missing_across_the_beginning_of_the_footer(tmp_path: Path, make: str, seed: int) -> None:
    """The last page ends within what is left of the footer, whose length shows that it began before."""
    table, whole, torn = _table(20, seed), tmp_path / "whole", tmp_path / "torn"
    MAKES[make](table, 2048, whole)
    data, draw = whole.read_bytes(), random.Random(seed)
    last, end = chunks_of(footer_of(data))[-1], len(_body(data))
    start = last.data_page_offset + last.total_compressed_size - draw.randrange(20, 200)
    torn.write_bytes(data[:start] + data[end + draw.randrange(20, 60) :])
    kept, wrong = _wrong_rows(torn, table, schema_from=whole, on_damage="null")
    assert kept
    assert not wrong


def _stated_pages(data: bytes) -> list[tuple[Leaf, int, Page, Page | None]]:
    """The pages with statistics in a file, each with its column, its codec and its dictionary page."""
    metadata, found = footer_of(data), []
    for row_group in metadata.row_groups:
        for leaf, chunk in zip(Schema.from_elements(metadata.schema).leaves, row_group.columns, strict=True):
            assert chunk.meta_data is not None
            start, end = chunk_range(chunk.meta_data, len(data))
            dictionary: Page | None = None
            for page in pages_of(memoryview(data)[start:end], start):
                if page.header.type == PageType.DICTIONARY_PAGE:
                    dictionary = page
                elif page.data_header is not None and page.data_header.statistics is not None:
                    used = dictionary if page.data_header.encoding in DICTIONARY_ENCODINGS else None
                    found.append((leaf, chunk.meta_data.codec, page, used))
    return found


def test_no_writer_of_the_corpus_is_contradicted() -> None:
    """Of files that are as they were written; those for fuzzing and `bad_data` are not."""
    if not CORPUS.exists():
        absent()
    exact = 0
    for path in sorted(CORPUS.rglob("*.parquet")):
        data = path.read_bytes() if path.is_file() and 12 < path.stat().st_size < 1 << 20 else b""
        if data[-4:] != b"PAR1" or {"fuzzing", "bad_data"} & set(path.parts):
            continue
        try:
            pages = _stated_pages(data)
        except FormatError:
            continue
        exact += sum(check_page_statistics(page, leaf, codec, used) for leaf, codec, page, used in pages)
    assert exact > 100


VALUES: dict[str, list[Any]] = {
    "unsigned": list(np.array([1, 1 << 63, 5, 7], np.uint64)),
    "zeros": [-0.0, 0.0, -1.0, 0.0],
    "not a number": [float("nan"), 1.0, 2.0, float("nan")],
    "nulls": [None, None, 3, 4],
    "text": ["ab", "abc", "é" * 40, ""],
    "bytes": [b"\xff" * 20, b"\0", b"", b"\x80"],
    "bools": [True, False, None, True],
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("dictionary", [False, True])
def test_statistics_hold_of_their_own_pages_and_not_of_others(name: str, dictionary: bool) -> None:
    out = io.BytesIO()
    values = pa.array(VALUES[name])
    pq.write_table(pa.table({"v": values}), out, use_dictionary=dictionary)
    [(leaf, codec, page, used)] = _stated_pages(out.getvalue())
    check_page_statistics(page, leaf, codec, used)


def test_one_value_beyond_the_statistics_of_a_page_is_found() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"v": [5, 3, 9]}), out, use_dictionary=False, compression="none")
    data = bytearray(out.getvalue())
    [(leaf, codec, page, used)] = _stated_pages(bytes(data))
    assert check_page_statistics(page, leaf, codec, used)
    data[page.end - 8] = 8  # within the bounds, and the greatest is no longer there
    [(leaf, codec, page, used)] = _stated_pages(bytes(data))
    with pytest.raises(FormatError, match="statistics in its header"):
        check_page_statistics(page, leaf, codec, used)
