"""`format.pages.thread_count`: small chunks are encoded together and by one thread, large ones by as many as there are."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.format.file_metadata import CompressionCodec
from resilient_pq.format.pages.thread_count import WRITING, pieces_of_work

KiB, MiB = 1024, 1024 * 1024
NONE, ZSTD = CompressionCodec.UNCOMPRESSED, CompressionCodec.ZSTD


def test_small_chunks_are_worth_one_thread() -> None:
    assert WRITING.threads_worth([]) == 1
    assert WRITING.threads_worth([(8 * KiB, NONE)] * 50) == 1
    assert WRITING.threads_worth([(8 * KiB, ZSTD)] * 50) == 1
    assert WRITING.threads_worth([(2 * MiB, NONE)] * 50) >= 2
    assert WRITING.threads_worth([(400 * KiB, ZSTD)] * 50) >= 2
    assert WRITING.threads_worth([(8 * KiB, NONE)] * 50 + [(200 * MiB, NONE)]) >= 2, (
        "most of the time is the large one's"
    )


def test_chunks_in_batches_are_worth_more_threads() -> None:
    chunks = [(200 * KiB, NONE)] * 50
    assert (WRITING.threads_worth(chunks), WRITING.threads_worth([], chunks)) == (1, 4)


@given(st.lists(st.integers(0, 600 * KiB), max_size=60))
def test_every_chunk_is_in_one_piece_of_work_and_in_order(sizes: list[int]) -> None:
    pieces = list(pieces_of_work(sizes))
    assert [index for piece in pieces for index in piece] == list(range(len(sizes)))
    for piece in pieces:
        assert len(piece) == 1 or sum(sizes[index] for index in piece) <= 256 * KiB
    for piece, following in pairwise(pieces):
        assert sum(sizes[index] for index in piece) + sizes[following[0]] > 256 * KiB
