# What all kernels share. Included first, by `_native.pyx` and `_native_avx2.pyx`.

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport ptrdiff_t
from libc.stdint cimport PTRDIFF_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset, strchr, strlen

import sys

import numpy as np

from resilient_pq.errors import EncodingError
from resilient_pq.memory_pool import empty
from resilient_pq.memory_pool import front as trimmed

if sys.byteorder != "little":
    raise ImportError("the compiled kernels are for little-endian machines")

cdef extern from "native/headers/words.h":
    uint64_t load64(const uint8_t* source) noexcept nogil
    uint32_t load32(const uint8_t* source) noexcept nogil
    uint64_t swapped64(uint64_t word) noexcept nogil
    void store32(uint8_t* to, uint32_t word) noexcept nogil
    void store64(uint8_t* to, uint64_t word) noexcept nogil
    void WANTED_SOON(const void* at) noexcept nogil

cdef extern from "native/headers/machine.h":
    const bint BUILT_FOR_AVX2
    bint runs_avx2() noexcept nogil

cdef extern from "native/headers/bits.h":
    const ptrdiff_t GROUP_SLACK
    void unpack_u8(const uint8_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void unpack_u32(const uint8_t* source, uint32_t* to, ptrdiff_t groups, int width) noexcept nogil
    void unpack_u64(const uint8_t* source, uint64_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u8(const uint8_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u16(const uint16_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u32(const uint32_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u64(const uint64_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil

cdef extern from "native/headers/bytes.h":
    void copy_bytes(uint8_t* to, ptrdiff_t to_room, const uint8_t* source, ptrdiff_t source_room,
                    ptrdiff_t size) noexcept nogil
    void copy_bytes_before(uint8_t* to, ptrdiff_t to_room, const uint8_t* source, ptrdiff_t source_room,
                           ptrdiff_t size) noexcept nogil
    void copy_row(uint8_t* to, const uint8_t* source, ptrdiff_t width) noexcept nogil
    void copy_rows(uint8_t* to, const uint8_t* source, ptrdiff_t width, const int32_t* numbers, ptrdiff_t step,
                   ptrdiff_t count) noexcept nogil
    ptrdiff_t shared_bytes(const uint8_t* a, const uint8_t* b, ptrdiff_t limit) noexcept nogil
    bint equal_bytes(const uint8_t* a, const uint8_t* b, ptrdiff_t size) noexcept nogil
    uint64_t masked_word(const uint8_t* source, ptrdiff_t size, int at) noexcept nogil
    void rows_min_max(const uint8_t* rows, ptrdiff_t count, ptrdiff_t width, uint64_t flipped,
                      ptrdiff_t* smallest, ptrdiff_t* largest) noexcept nogil
    uint64_t sort_prefix(const uint8_t* source, ptrdiff_t room, ptrdiff_t size) noexcept nogil

ctypedef fused Level:
    uint8_t
    int32_t

# What is bit-packed: levels, and indices to dictionaries.
ctypedef fused Packed:
    uint8_t
    uint16_t
    int32_t

ctypedef fused Offset:
    int32_t
    int64_t

ctypedef fused Code:  # beside `Offset` in one function
    int32_t
    int64_t

ctypedef fused Bits:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

cdef enum:
    VIEW_BYTES = 16

cdef int64_t LARGEST_LENGTH = 0x7FFFFFFF
#: A value of at most so many bytes stands in its view.
cdef uint32_t INLINE_VIEW = 12


cdef int malformed(const char* message) except -1 with gil:
    raise EncodingError(message.decode("ascii"))


cdef inline bint read_varint(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, int bits, uint64_t* value
) noexcept nogil:
    """Reads an unsigned LEB128 integer of at most `bits` bits; False where there is none."""
    cdef uint64_t byte
    cdef int shift = 0
    value[0] = 0
    while shift < bits and position[0] < size:
        byte = data[position[0]]
        position[0] += 1
        value[0] |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (byte << shift) >> shift == byte and (bits == 64 or value[0] >> bits == 0)
        shift += 7
    return False


cdef inline Py_ssize_t write_varint(uint8_t* out, uint64_t value) noexcept nogil:
    """Writes up to ten bytes and returns how many."""
    cdef Py_ssize_t written = 0
    while value > 0x7F:
        out[written] = <uint8_t> (value & 0x7F | 0x80)
        value >>= 7
        written += 1
    out[written] = <uint8_t> value
    return written + 1
