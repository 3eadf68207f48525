"""Every place where some bytes stand in others, against Python's own search."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st


def places(data: bytes, needle: bytes) -> list[int]:
    return [at for at in range(len(data)) if data.startswith(needle, at)]


@given(
    data=st.lists(st.sampled_from([b"a", b"ab", b"aab", b"b", b"\xd7", b"\x00"]), max_size=40).map(b"".join),
    needle=st.sampled_from([b"ab", b"aa", b"aab", b"\xd7a", b"bab\x00", b"\x00\x00", b"aaaaaaaaa"]),
)
@example(data=b"", needle=b"ab")
@example(data=b"a", needle=b"ab")
@example(data=b"ab", needle=b"ab")
@example(data=b"aaaa", needle=b"aa")
def test_every_place_in_order(kernels: ModuleType, data: bytes, needle: bytes) -> None:
    for cut in (0, 1):  # at an odd address too
        view = memoryview(b"\x01" * cut + data)[cut:]
        assert kernels.find_all(view, needle).tolist() == places(data, needle)


def test_no_place_across_the_end(kernels: ModuleType) -> None:
    data = b"xxabcabcab"
    for end in range(len(data) + 1):
        assert kernels.find_all(data[:end], b"abc").tolist() == places(data[:end], b"abc")


def test_many_bytes(kernels: ModuleType) -> None:
    data = bytes(range(256)) * 4096
    found = kernels.find_all(bytearray(data), bytes([255, 0, 1]))
    assert found.tolist() == list(range(255, len(data) - 256, 256))


def test_one_byte_is_too_few(kernels: ModuleType) -> None:
    for needle in (b"", b"a"):
        with pytest.raises(ValueError, match="at least two"):
            kernels.find_all(b"aaa", needle)
