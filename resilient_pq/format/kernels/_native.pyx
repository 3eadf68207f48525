# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernels of `reference`, compiled: same names, same arguments, same answers, same errors.

What each one does is written there. Cython's own bounds checks are off, so everything that is read from a
buffer is checked here against the buffer's end before it is used. The loops run without the GIL. Only for
little-endian machines: elsewhere the import fails and the reference is used.
"""

from libc.stddef cimport ptrdiff_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

import sys

import numpy as np

from resilient_pq.errors import EncodingError, ThriftError

if sys.byteorder != "little":
    raise ImportError("the compiled kernels are for little-endian machines")

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define INLINED static __forceinline
    #define RESTRICT __restrict
    #else
    #define INLINED static inline __attribute__((always_inline))
    #define RESTRICT restrict
    #endif

    INLINED uint64_t load64(const uint8_t *from) { uint64_t word; memcpy(&word, from, 8); return word; }
    INLINED uint32_t load32(const uint8_t *from) { uint32_t word; memcpy(&word, from, 4); return word; }
    INLINED void store32(uint8_t *to, uint32_t word) { memcpy(to, &word, 4); }

    /* Groups of eight values of `width` bits; each is `width` bytes. Whole words are read and written: up to
       GROUP_SLACK bytes behind the last group. The inner loops unroll, as each copy has its own width. */
    #define GROUP_SLACK 8

    #define DEFINE_GROUPS(TYPE, NAME)                                                                     \\
    INLINED void unpack_##NAME##_by(const uint8_t *RESTRICT from, TYPE *RESTRICT to, ptrdiff_t groups,    \\
                                    const int width) {                                                    \\
        const uint64_t mask = ~(uint64_t)0 >> (64 - width);                                               \\
        for (; groups > 0; --groups, from += width, to += 8)                                              \\
            for (int lane = 0; lane < 8; ++lane) {                                                        \\
                const int byte = lane * width >> 3, shift = lane * width & 7;                             \\
                uint64_t word = load64(from + byte) >> shift;                                             \\
                if (shift + width > 64) word |= (uint64_t)from[byte + 8] << (64 - shift);                 \\
                to[lane] = (TYPE)(word & mask);                                                           \\
            }                                                                                             \\
    }                                                                                                     \\
    INLINED void pack_##NAME##_by(const TYPE *RESTRICT from, uint8_t *RESTRICT to, ptrdiff_t groups,      \\
                                  const int width) {                                                      \\
        for (; groups > 0; --groups, from += 8, to += width) {                                            \\
            uint64_t words[8] = {0};                                                                      \\
            for (int lane = 0; lane < 8; ++lane) {                                                        \\
                const int word = lane * width >> 6, shift = lane * width & 63;                            \\
                words[word] |= (uint64_t)from[lane] << shift;                                             \\
                if (shift + width > 64) words[word + 1] |= (uint64_t)from[lane] >> (64 - shift);          \\
            }                                                                                             \\
            for (int word = 0; 8 * word < width; ++word) memcpy(to + 8 * word, words + word, 8);          \\
        }                                                                                                 \\
    }

    /* The same for bits in bytes, which most levels are: eight of them make one word. */
    static void unpack_bits(const uint8_t *RESTRICT from, uint8_t *RESTRICT to, ptrdiff_t groups) {
        for (ptrdiff_t group = 0; group < groups; ++group) {
            const uint64_t apart = from[group] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
            const uint64_t bits = (apart + UINT64_C(0x7F7F7F7F7F7F7F7F)) >> 7 & UINT64_C(0x0101010101010101);
            memcpy(to + 8 * group, &bits, 8);
        }
    }
    static void pack_bits(const uint8_t *RESTRICT from, uint8_t *RESTRICT to, ptrdiff_t groups) {
        for (ptrdiff_t group = 0; group < groups; ++group)
            to[group] = (uint8_t)(load64(from + 8 * group) * UINT64_C(0x0102040810204080) >> 56);
    }

    DEFINE_GROUPS(uint8_t, u8)
    DEFINE_GROUPS(uint32_t, u32)
    DEFINE_GROUPS(uint64_t, u64)

    #define CASE(CALL, W) case W: CALL(from, to, groups, W); break;
    #define CASES8(CALL, W) CASE(CALL, W + 1) CASE(CALL, W + 2) CASE(CALL, W + 3) CASE(CALL, W + 4)       \\
                            CASE(CALL, W + 5) CASE(CALL, W + 6) CASE(CALL, W + 7) CASE(CALL, W + 8)
    #define CASES32(CALL, W) CASES8(CALL, W) CASES8(CALL, W + 8) CASES8(CALL, W + 16) CASES8(CALL, W + 24)

    static void unpack_u8(const uint8_t *from, uint8_t *to, ptrdiff_t groups, int width) {
        if (width == 1) unpack_bits(from, to, groups);
        else switch (width) { CASES8(unpack_u8_by, 0) }
    }
    static void unpack_u32(const uint8_t *from, uint32_t *to, ptrdiff_t groups, int width) {
        switch (width) { CASES32(unpack_u32_by, 0) }
    }
    static void unpack_u64(const uint8_t *from, uint64_t *to, ptrdiff_t groups, int width) {
        switch (width) { CASES32(unpack_u64_by, 0) CASES32(unpack_u64_by, 32) }
    }
    static void pack_u8(const uint8_t *from, uint8_t *to, ptrdiff_t groups, int width) {
        if (width == 1) pack_bits(from, to, groups);
        else switch (width) { CASES8(pack_u8_by, 0) }
    }
    static void pack_u32(const uint32_t *from, uint8_t *to, ptrdiff_t groups, int width) {
        switch (width) { CASES32(pack_u32_by, 0) }
    }
    static void pack_u64(const uint64_t *from, uint8_t *to, ptrdiff_t groups, int width) {
        switch (width) { CASES32(pack_u64_by, 0) CASES32(pack_u64_by, 32) }
    }

    /* Most strings are short: one copy of fixed size is cheaper than a call that finds out how many bytes to
       move. What it writes too much lies within the output, and the next string is written over it. */
    INLINED void copy_bytes(uint8_t *to, ptrdiff_t to_room, const uint8_t *from, ptrdiff_t from_room,
                            ptrdiff_t size) {
        if (size <= 32 && to_room >= 32 && from_room >= 32)
            memcpy(to, from, 32);
        else if (size > 0)
            memcpy(to, from, size);
    }

    /* The same where the output may begin within the 32 bytes that are read. */
    INLINED void copy_bytes_before(uint8_t *to, ptrdiff_t to_room, const uint8_t *from, ptrdiff_t from_room,
                                   ptrdiff_t size) {
        if (size <= 32 && to_room >= 32 && from_room >= 32) {
            uint8_t bytes[32];
            memcpy(bytes, from, 32);
            memcpy(to, bytes, 32);
        } else if (size > 0)
            memcpy(to, from, size);
    }

    INLINED ptrdiff_t shared_bytes(const uint8_t *a, const uint8_t *b, ptrdiff_t limit) {
        ptrdiff_t at = 0;
        while (at + 8 <= limit && load64(a + at) == load64(b + at)) at += 8;
        while (at < limit && a[at] == b[at]) ++at;
        return at;
    }

    INLINED int equal_bytes(const uint8_t *a, const uint8_t *b, ptrdiff_t size) {
        ptrdiff_t at = 0;
        if (size >= 8) {
            for (; at + 8 < size; at += 8)
                if (load64(a + at) != load64(b + at)) return 0;
            return load64(a + size - 8) == load64(b + size - 8);
        }
        if (size >= 4) return load32(a) == load32(b) && load32(a + size - 4) == load32(b + size - 4);
        for (; at < size; ++at)
            if (a[at] != b[at]) return 0;
        return 1;
    }

    /* The first eight bytes as a number that sorts as they do; a shorter string is filled up with zeros. */
    INLINED uint64_t sort_prefix(const uint8_t *from, ptrdiff_t room, ptrdiff_t size) {
        const int known = size < 8 ? (int)size : 8;
        uint64_t word = 0, prefix = 0;
        if (room >= 8) word = load64(from);
        else if (known > 0) memcpy(&word, from, known);
        for (int byte = 0; byte < 8; ++byte) prefix |= (word >> (8 * byte) & 0xFF) << (56 - 8 * byte);
        return prefix & ~(~(uint64_t)0 >> (4 * known) >> (4 * known)); /* in two halves: 64 is no shift */
    }

    /* 64 x 64 bits multiplied to 128, both halves folded into one. */
    INLINED uint64_t folded(uint64_t a, uint64_t b) {
    #if defined(__SIZEOF_INT128__)
        const unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    #else
        const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
        const uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
        const uint64_t other = a_low * b_high + (uint32_t)middle;
        return (a * b) ^ (a_high * b_high + (middle >> 32) + (other >> 32));
    #endif
    }

    INLINED uint64_t hash_bytes(const uint8_t *from, ptrdiff_t size, uint64_t secret, uint64_t other_secret) {
        uint64_t hash = secret ^ (uint64_t)size, first = 0, last = 0;
        for (; size > 16; from += 16, size -= 16)
            hash = folded(load64(from) ^ other_secret, load64(from + 8) ^ hash);
        if (size >= 8) { first = load64(from); last = load64(from + size - 8); }
        else if (size >= 4) { first = load32(from); last = load32(from + size - 4); }
        else if (size > 0) first = (uint64_t)from[0] << 16 | (uint64_t)from[size >> 1] << 8 | from[size - 1];
        return folded(first ^ other_secret, last ^ hash);
    }

    /* xxh64 with seed 0, as BloomFilter.md asks for it. */
    #define XXH_1 UINT64_C(0x9E3779B185EBCA87)
    #define XXH_2 UINT64_C(0xC2B2AE3D27D4EB4F)
    #define XXH_3 UINT64_C(0x165667B19E3779F9)
    #define XXH_4 UINT64_C(0x85EBCA77C2B2AE63)
    #define XXH_5 UINT64_C(0x27D4EB2F165667C5)

    INLINED uint64_t rotated(uint64_t word, int by) { return word << by | word >> (64 - by); }
    INLINED uint64_t xxh_round(uint64_t lane, uint64_t word) { return rotated(lane + word * XXH_2, 31) * XXH_1; }

    INLINED uint64_t xxh64(const uint8_t *from, ptrdiff_t size) {
        uint64_t hash = XXH_5;
        const uint64_t length = (uint64_t)size;
        if (size >= 32) {
            uint64_t lanes[4] = {XXH_1 + XXH_2, XXH_2, 0, 0 - XXH_1};
            for (; size >= 32; from += 32, size -= 32)
                for (int lane = 0; lane < 4; ++lane) lanes[lane] = xxh_round(lanes[lane], load64(from + 8 * lane));
            hash = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
            for (int lane = 0; lane < 4; ++lane) hash = (hash ^ xxh_round(0, lanes[lane])) * XXH_1 + XXH_4;
        }
        hash += length;
        for (; size >= 8; from += 8, size -= 8) hash = rotated(hash ^ xxh_round(0, load64(from)), 27) * XXH_1 + XXH_4;
        if (size >= 4) {
            hash = rotated(hash ^ load32(from) * XXH_1, 23) * XXH_2 + XXH_3;
            from += 4;
            size -= 4;
        }
        for (; size > 0; ++from, --size) hash = rotated(hash ^ *from * XXH_5, 11) * XXH_1;
        hash = (hash ^ hash >> 33) * XXH_2;
        hash = (hash ^ hash >> 29) * XXH_3;
        return hash ^ hash >> 32;
    }

    /* One bit in each of the eight words of a block of a split-block bloom filter. */
    static const uint32_t BLOOM_SALTS[8] = {0x47B6137BU, 0x44974D91U, 0x8824AD5BU, 0xA2B7289DU,
                                            0x705495C7U, 0x2DF1424BU, 0x9EFC4947U, 0x5C6BFB31U};

    INLINED void bloom_set(uint32_t *block, uint32_t hash) {
        for (int word = 0; word < 8; ++word) block[word] |= UINT32_C(1) << (hash * BLOOM_SALTS[word] >> 27);
    }
    INLINED int bloom_has(const uint32_t *block, uint32_t hash) {
        uint32_t missing = 0;
        for (int word = 0; word < 8; ++word)
            missing |= ~block[word] & UINT32_C(1) << (hash * BLOOM_SALTS[word] >> 27);
        return !missing;
    }
    """
    const ptrdiff_t GROUP_SLACK
    uint32_t load32(const uint8_t* source) noexcept nogil
    void store32(uint8_t* to, uint32_t word) noexcept nogil
    void unpack_u8(const uint8_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void unpack_u32(const uint8_t* source, uint32_t* to, ptrdiff_t groups, int width) noexcept nogil
    void unpack_u64(const uint8_t* source, uint64_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u8(const uint8_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u32(const uint32_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void pack_u64(const uint64_t* source, uint8_t* to, ptrdiff_t groups, int width) noexcept nogil
    void copy_bytes(uint8_t* to, ptrdiff_t to_room, const uint8_t* source, ptrdiff_t source_room,
                    ptrdiff_t size) noexcept nogil
    void copy_bytes_before(uint8_t* to, ptrdiff_t to_room, const uint8_t* source, ptrdiff_t source_room,
                           ptrdiff_t size) noexcept nogil
    ptrdiff_t shared_bytes(const uint8_t* a, const uint8_t* b, ptrdiff_t limit) noexcept nogil
    bint equal_bytes(const uint8_t* a, const uint8_t* b, ptrdiff_t size) noexcept nogil
    uint64_t sort_prefix(const uint8_t* source, ptrdiff_t room, ptrdiff_t size) noexcept nogil
    uint64_t folded(uint64_t a, uint64_t b) noexcept nogil
    uint64_t hash_bytes(const uint8_t* source, ptrdiff_t size, uint64_t secret,
                        uint64_t other_secret) noexcept nogil
    uint64_t xxh64(const uint8_t* source, ptrdiff_t size) noexcept nogil
    void bloom_set(uint32_t* block, uint32_t hash) noexcept nogil
    bint bloom_has(const uint32_t* block, uint32_t hash) noexcept nogil

ctypedef fused Level:
    uint8_t
    int32_t

ctypedef fused Offset:
    int32_t
    int64_t

ctypedef fused Bits:
    uint8_t
    uint16_t
    uint32_t
    uint64_t

cdef int64_t LARGEST_LENGTH = 0x7FFFFFFF
cdef int LARGEST_DEPTH = 128


cdef int malformed(const char* message) except -1 with gil:
    raise EncodingError(message.decode("ascii"))


cdef int broken(const char* message) except -1 with gil:
    raise ThriftError(message.decode("ascii"))


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


cdef object bits_of(array):
    """The array as unsigned integers of the same size, in the same memory."""
    if array.ndim != 1 or array.itemsize not in (1, 2, 4, 8):
        raise ValueError("values must be one-dimensional with 1, 2, 4 or 8 bytes each, or rows of uint8")
    return array.view(f"u{array.itemsize}")


cdef object trimmed(array, Py_ssize_t size):
    """The front of an array, without holding on to much memory behind it."""
    front = array[:size]
    return front if 2 * size >= len(array) else front.copy()


# --- the RLE / bit-packed hybrid ---------------------------------------------------------------------------


def rle_decode(const uint8_t[::1] buffer not None, int bit_width, out not None):
    """See `reference.rle_decode`."""
    cdef uint8_t[::1] narrow
    cdef int32_t[::1] wide
    cdef Py_ssize_t end
    if bit_width < 0 or bit_width > 32:
        raise EncodingError(f"the bit width is {bit_width}, not 0 to 32")
    if out.itemsize == 1:
        narrow = out
        with nogil:
            end = decode_runs(&buffer[0], buffer.shape[0], bit_width, &narrow[0], narrow.shape[0])
    else:
        wide = out
        with nogil:
            end = decode_runs(&buffer[0], buffer.shape[0], bit_width, &wide[0], wide.shape[0])
    return end


cdef Py_ssize_t decode_runs(
    const uint8_t* data, Py_ssize_t size, int width, Level* out, Py_ssize_t n
) except -1 nogil:
    cdef Py_ssize_t position = 0, filled = 0, wanted, end, i
    cdef uint64_t header, value, count
    cdef uint64_t largest = (<uint64_t> 1 << width) - 1
    if width == 0:
        if n:
            memset(out, 0, n * sizeof(Level))
        return 0
    if Level is uint8_t:
        largest = min(largest, <uint64_t> 0xFF)
    else:
        largest = min(largest, <uint64_t> 0x7FFFFFFF)
    while filled < n:
        if not read_varint(data, size, &position, 32, &header):
            return malformed(b"a run header ends behind the end of its buffer or has more than 32 bits")
        count = header >> 1
        if header & 1:
            wanted = <Py_ssize_t> min(8 * count, <uint64_t> (n - filled))
            end = <Py_ssize_t> min(position + count * width, <uint64_t> size)
            if (<uint64_t> wanted * width + 7) // 8 > <uint64_t> (end - position):
                return malformed(b"a bit-packed run ends behind the end of its buffer")
            if not unpack_run(data + position, size - position, width, out + filled, wanted, largest):
                return malformed(b"a bit-packed value does not fit the type of the output")
        else:
            wanted = <Py_ssize_t> min(count, <uint64_t> (n - filled))
            end = position + (width + 7) // 8
            if end > size:
                return malformed(b"an RLE run ends behind the end of its buffer")
            value = 0
            for i in range(end - position):
                value |= <uint64_t> data[position + i] << (8 * i)
            if value > largest:
                return malformed(b"the value of an RLE run has more bits than it may have")
            for i in range(wanted):
                out[filled + i] = <Level> value
        position = end
        filled += wanted
    return position


cdef inline bint unpack_run(
    const uint8_t* data, Py_ssize_t room, int width, Level* out, Py_ssize_t n, uint64_t largest
) noexcept nogil:
    """Unpacks n values that lie wholly within `room` bytes; False where one is above `largest`."""
    cdef uint32_t chunk[32]
    cdef uint8_t padded[4 * 32 + 8]
    cdef Py_ssize_t done = 0, groups, i, taken
    cdef uint32_t highest = 0
    if Level is int32_t or width <= 8:
        groups = min(n // 8, max(room - GROUP_SLACK, 0) // width)
        done = 8 * groups
        if Level is int32_t:
            unpack_u32(data, <uint32_t*> out, groups, width)
            if width == 32:
                for i in range(done):
                    highest |= <uint32_t> out[i]
        else:
            unpack_u8(data, out, groups, width)
    while done < n:  # what reading whole words would leave the buffer at, and values wider than their type
        taken = min(<Py_ssize_t> 32, n - done)
        memset(padded, 0, sizeof(padded))
        memcpy(padded, data + done // 8 * width, min(<Py_ssize_t> 4 * width, room - done // 8 * width))
        unpack_u32(padded, chunk, 4, width)
        for i in range(taken):
            if chunk[i] > largest:
                return False
            out[done + i] = <Level> chunk[i]
        done += taken
    return highest <= largest or width < 32


def rle_encode(values not None, int bit_width):
    """See `reference.rle_encode`."""
    cdef const uint8_t[::1] narrow
    cdef const int32_t[::1] wide
    cdef uint8_t[::1] out
    cdef Py_ssize_t written
    if bit_width < 0 or bit_width > 32:
        raise EncodingError(f"the bit width is {bit_width}, not 0 to 32")
    if len(values) > LARGEST_LENGTH:
        raise ValueError("a page holds fewer than 2**31 values")
    # Each group of eight values costs at most a header of 5 bytes and its bits, or an RLE run of 5 + 4 bytes;
    # the last run of each kind may have fewer than eight.
    array = np.empty((len(values) // 8 + 2) * (bit_width + 9) + GROUP_SLACK, np.uint8)
    out = array
    if values.itemsize == 1:
        narrow = values
        with nogil:
            written = encode_runs(&narrow[0], narrow.shape[0], bit_width, &out[0])
    else:
        wide = values
        with nogil:
            written = encode_runs(&wide[0], wide.shape[0], bit_width, &out[0])
    return trimmed(array, written)


cdef Py_ssize_t encode_runs(const Level* values, Py_ssize_t n, int width, uint8_t* out) except -1 nogil:
    cdef Py_ssize_t position = 0, packed = 0, written = 0, end, i
    cdef Py_ssize_t shortest = 8  # of the runs that can pay where they are not the last
    cdef Level seen = 0
    for i in range(n):
        seen |= values[i]
    if <uint64_t> <int64_t> seen >> width:  # a negative value sets the highest bits
        return malformed(b"a value has more bits than the bit width")
    while width and not rle_pays(shortest, width, True, False):
        shortest += 8
    while position < n:  # whole groups behind `packed`, where the values begin that no run holds so far
        if n - position > shortest and not all_equal(values + position, shortest):
            position += 8
            continue
        end = equal_end(values, position, n)
        if end < min(position + 8, n) or not rle_pays(end - position, width, position == packed, end == n):
            position += 8
            continue
        if position > packed:
            written += write_packed_run(values + packed, position - packed, width, out + written)
        written += write_varint(out + written, <uint64_t> (end - position) << 1)
        for i in range((width + 7) // 8):
            out[written + i] = <uint8_t> (<uint32_t> values[position] >> (8 * i))
        written += (width + 7) // 8
        position = packed = end
    if packed < n:
        written += write_packed_run(values + packed, n - packed, width, out + written)
    return written


cdef inline bint all_equal(const Level* values, Py_ssize_t n) noexcept nogil:
    """Whether n values, a multiple of 8, are the same."""
    cdef Level different = 0
    cdef Py_ssize_t i, lane
    for i in range(0, n, 8):
        for lane in range(8):
            different |= values[i + lane] ^ values[0]
    return different == 0


cdef inline Py_ssize_t equal_end(const Level* values, Py_ssize_t position, Py_ssize_t n) noexcept nogil:
    """Where the values end that equal the one at `position`."""
    cdef Level value = values[position]
    while position + 8 <= n and values[position] == value and all_equal(values + position, 8):
        position += 8
    while position < n and values[position] == value:
        position += 1
    return position


cdef inline bint rle_pays(Py_ssize_t n, int width, bint follows_run, bint last) noexcept nogil:
    """Whether an RLE run is no longer than the same values bit-packed, headers counted as one byte each."""
    cdef Py_ssize_t groups = (n + 7) // 8 if last else n // 8
    return groups * width + follows_run >= 1 + (width + 7) // 8 + (not last)


cdef Py_ssize_t write_packed_run(const Level* values, Py_ssize_t n, int width, uint8_t* out) noexcept nogil:
    cdef Py_ssize_t groups = n // 8
    cdef Py_ssize_t written = write_varint(out, <uint64_t> (n + 7) // 8 << 1 | 1)
    cdef uint32_t group[8]
    cdef Py_ssize_t done = 0, i
    if Level is int32_t:
        pack_u32(<const uint32_t*> values, out + written, groups, width)
        done = groups
    elif width <= 8:
        pack_u8(values, out + written, groups, width)
        done = groups
    while 8 * done < n:
        memset(group, 0, sizeof(group))
        for i in range(min(<Py_ssize_t> 8, n - 8 * done)):
            group[i] = <uint32_t> values[8 * done + i]
        pack_u32(group, out + written + done * width, 1, width)
        done += 1
    return written + done * width


def unpack_bits_msb(const uint8_t[::1] buffer not None, int bit_width, out not None):
    """See `reference.unpack_bits_msb`."""
    cdef uint8_t[::1] narrow
    cdef int32_t[::1] wide
    cdef Py_ssize_t size
    if bit_width < 0 or bit_width > 32:
        raise EncodingError(f"the bit width is {bit_width}, not 0 to 32")
    if out.itemsize == 1:
        narrow = out
        with nogil:
            size = unpack_msb(&buffer[0], buffer.shape[0], bit_width, &narrow[0], narrow.shape[0])
    else:
        wide = out
        with nogil:
            size = unpack_msb(&buffer[0], buffer.shape[0], bit_width, &wide[0], wide.shape[0])
    return size


cdef Py_ssize_t unpack_msb(
    const uint8_t* data, Py_ssize_t size, int width, Level* out, Py_ssize_t n
) except -1 nogil:
    cdef Py_ssize_t position = 0, i
    cdef uint64_t window = 0, value, seen = 0
    cdef uint64_t mask = (<uint64_t> 1 << width) - 1
    cdef uint64_t largest = 0x7FFFFFFF
    cdef int known = 0  # bits of the window that are not used yet
    if Level is uint8_t:
        largest = 0xFF
    if (n * width + 7) // 8 > size:
        return malformed(b"bit-packed values end behind the end of their buffer")
    for i in range(n):
        while known < width:
            window = window << 8 | data[position]
            position += 1
            known += 8
        known -= width
        value = window >> known & mask
        seen |= value
        out[i] = <Level> value
    if seen > largest:
        return malformed(b"a bit-packed value does not fit the type of the output")
    return position


# --- PLAIN byte arrays -------------------------------------------------------------------------------------


def byte_array_lengths(const uint8_t[::1] buffer not None, int32_t[::1] lengths not None):
    """See `reference.byte_array_lengths`."""
    cdef Py_ssize_t total
    with nogil:
        total = read_lengths(&buffer[0], buffer.shape[0], &lengths[0], lengths.shape[0])
    return total


cdef Py_ssize_t read_lengths(
    const uint8_t* data, Py_ssize_t size, int32_t* lengths, Py_ssize_t n
) except -1 nogil:
    cdef Py_ssize_t position = 0, i
    cdef uint32_t length
    for i in range(n):
        if size - position < 4:
            return malformed(b"a BYTE_ARRAY value ends behind the end of its buffer")
        length = load32(data + position)
        position += 4
        if length > LARGEST_LENGTH or <Py_ssize_t> length > size - position:
            return malformed(b"a BYTE_ARRAY value ends behind the end of its buffer")
        position += length
        lengths[i] = <int32_t> length
    return position - 4 * n


def byte_array_split(
    const uint8_t[::1] buffer not None, const int32_t[::1] lengths not None, uint8_t[::1] out not None
):
    """See `reference.byte_array_split`."""
    with nogil:
        split(&buffer[0], buffer.shape[0], &lengths[0], lengths.shape[0], &out[0], out.shape[0])


cdef int split(
    const uint8_t* data, Py_ssize_t size, const int32_t* lengths, Py_ssize_t n,
    uint8_t* out, Py_ssize_t out_size
) except -1 nogil:
    cdef Py_ssize_t position = 0, written = 0, length, i
    for i in range(n):
        length = lengths[i]
        position += 4
        if length < 0:
            return malformed(b"a BYTE_ARRAY value has a negative length")
        if length > size - position or length > out_size - written:
            return malformed(b"the lengths of BYTE_ARRAY values do not fit their buffers")
        copy_bytes(out + written, out_size - written, data + position, size - position, length)
        position += length
        written += length
    if written != out_size:
        return malformed(b"the lengths of BYTE_ARRAY values do not fit their buffers")
    return 0


def byte_array_join(offsets not None, const uint8_t[::1] data not None):
    """See `reference.byte_array_join`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if offsets.itemsize == 4:
        narrow = offsets
        return join(&narrow[0], narrow.shape[0], &data[0], data.shape[0])
    wide = offsets
    return join(&wide[0], wide.shape[0], &data[0], data.shape[0])


cdef object join(const Offset* offsets, Py_ssize_t num_offsets, const uint8_t* data, Py_ssize_t size):
    cdef Py_ssize_t i, length, written = 0, out_size
    cdef uint8_t[::1] view
    cdef uint8_t* out
    check_offsets(offsets, num_offsets, size)
    array = np.empty(<Py_ssize_t> (offsets[num_offsets - 1] - offsets[0]) + 4 * (num_offsets - 1), np.uint8)
    view = array
    out = &view[0]
    out_size = view.shape[0]
    with nogil:
        for i in range(num_offsets - 1):
            length = <Py_ssize_t> (offsets[i + 1] - offsets[i])
            store32(out + written, <uint32_t> length)
            written += 4
            copy_bytes(out + written, out_size - written, data + offsets[i], size - offsets[i], length)
            written += length
    return array


cdef int check_offsets(const Offset* offsets, Py_ssize_t num_offsets, Py_ssize_t size) except -1 nogil:
    """Refuses offsets that are not ``0 <= offsets[i] <= offsets[i + 1] <= size`` throughout."""
    cdef Py_ssize_t i
    cdef bint falls = False, long = False
    if num_offsets == 0:
        return malformed(b"there must be one offset more than values")
    for i in range(num_offsets - 1):
        falls |= offsets[i + 1] < offsets[i]
    if falls or offsets[0] < 0 or offsets[num_offsets - 1] > size:
        return malformed(b"offsets fall or lead out of the data")
    if Offset is int64_t:
        for i in range(num_offsets - 1):
            long |= offsets[i + 1] - offsets[i] > LARGEST_LENGTH
        if long:
            return malformed(b"a value has 2**31 bytes or more")
    return 0


def byte_array_gather_lengths(
    offsets not None, const int32_t[::1] indices not None, int32_t[::1] lengths not None
):
    """See `reference.byte_array_gather_lengths`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef int64_t total
    cdef Py_ssize_t n = indices.shape[0]
    if lengths.shape[0] != n:
        raise ValueError("there must be as many lengths as indices")
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            total = gather_lengths(&narrow[0], narrow.shape[0] - 1, &indices[0], n, &lengths[0])
    else:
        wide = offsets
        with nogil:
            total = gather_lengths(&wide[0], wide.shape[0] - 1, &indices[0], n, &lengths[0])
    return total


cdef inline int check_chosen(const Offset* offsets, Py_ssize_t num_values, int32_t index) except -1 nogil:
    """Refuses an index without a value, a value with a negative start, or a length outside 0 to 2**31 - 1."""
    if index < 0 or index >= num_values:
        return malformed(b"an index lies outside of its dictionary")
    if offsets[index] < 0 or offsets[index + 1] < offsets[index]:
        return malformed(b"offsets fall, or a value has 2**31 bytes or more")
    if Offset is int64_t and offsets[index + 1] - offsets[index] > LARGEST_LENGTH:
        return malformed(b"offsets fall, or a value has 2**31 bytes or more")
    return 0


cdef int64_t gather_lengths(
    const Offset* offsets, Py_ssize_t num_values, const int32_t* indices, Py_ssize_t n, int32_t* lengths
) except -1 nogil:
    cdef Py_ssize_t i
    cdef int64_t total = 0
    for i in range(n):
        check_chosen(offsets, num_values, indices[i])
        lengths[i] = <int32_t> (offsets[indices[i] + 1] - offsets[indices[i]])
        total += lengths[i]
    return total


def byte_array_gather(
    offsets not None,
    const uint8_t[::1] data not None,
    const int32_t[::1] indices not None,
    uint8_t[::1] out not None,
):
    """See `reference.byte_array_gather`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            gather_byte_arrays(&narrow[0], narrow.shape[0] - 1, &data[0], data.shape[0],
                               &indices[0], indices.shape[0], &out[0], out.shape[0])
    else:
        wide = offsets
        with nogil:
            gather_byte_arrays(&wide[0], wide.shape[0] - 1, &data[0], data.shape[0],
                               &indices[0], indices.shape[0], &out[0], out.shape[0])


cdef int gather_byte_arrays(
    const Offset* offsets, Py_ssize_t num_values, const uint8_t* data, Py_ssize_t size,
    const int32_t* indices, Py_ssize_t n, uint8_t* out, Py_ssize_t out_size
) except -1 nogil:
    cdef Py_ssize_t i, start, length, written = 0
    for i in range(n):
        check_chosen(offsets, num_values, indices[i])
        start = <Py_ssize_t> offsets[indices[i]]
        length = <Py_ssize_t> offsets[indices[i] + 1] - start
        if start + length > size:
            return malformed(b"an offset leads out of the data")
        if length > out_size - written:
            return malformed(b"the chosen values do not fill the output exactly")
        copy_bytes(out + written, out_size - written, data + start, size - start, length)
        written += length
    if written != out_size:
        return malformed(b"the chosen values do not fill the output exactly")
    return 0


def byte_array_min_max(offsets not None, const uint8_t[::1] data not None):
    """See `reference.byte_array_min_max`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef Py_ssize_t smallest = 0, largest = 0
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            check_offsets(&narrow[0], narrow.shape[0], data.shape[0])
            find_min_max(&narrow[0], narrow.shape[0] - 1, &data[0], data.shape[0], &smallest, &largest)
    else:
        wide = offsets
        with nogil:
            check_offsets(&wide[0], wide.shape[0], data.shape[0])
            find_min_max(&wide[0], wide.shape[0] - 1, &data[0], data.shape[0], &smallest, &largest)
    if len(offsets) == 1:
        raise ValueError("there are no values to compare")
    return smallest, largest


cdef void find_min_max(
    const Offset* offsets, Py_ssize_t n, const uint8_t* data, Py_ssize_t size,
    Py_ssize_t* smallest, Py_ssize_t* largest
) noexcept nogil:
    cdef uint64_t prefix, low = 0, high = 0
    cdef Py_ssize_t i
    for i in range(n):
        prefix = sort_prefix(data + offsets[i], size - offsets[i], <ptrdiff_t> (offsets[i + 1] - offsets[i]))
        if i == 0:
            low = high = prefix
            continue
        # Equal prefixes decide nothing: the strings may go on, or one may end where the other has zeros.
        if prefix < low or (prefix == low and sorts_before(offsets, data, i, smallest[0])):
            low = prefix
            smallest[0] = i
        if prefix > high or (prefix == high and sorts_before(offsets, data, largest[0], i)):
            high = prefix
            largest[0] = i


cdef inline bint sorts_before(
    const Offset* offsets, const uint8_t* data, Py_ssize_t a, Py_ssize_t b
) noexcept nogil:
    cdef Py_ssize_t a_size = <Py_ssize_t> (offsets[a + 1] - offsets[a])
    cdef Py_ssize_t b_size = <Py_ssize_t> (offsets[b + 1] - offsets[b])
    cdef Py_ssize_t common = min(a_size, b_size)
    cdef int order = memcmp(data + offsets[a], data + offsets[b], common) if common else 0
    return order < 0 or (order == 0 and a_size < b_size)


# --- byte arrays that share prefixes -----------------------------------------------------------------------


def shared_prefixes(offsets not None, const uint8_t[::1] data not None):
    """See `reference.shared_prefixes`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if offsets.itemsize == 4:
        narrow = offsets
        return compare_neighbours(&narrow[0], narrow.shape[0], &data[0], data.shape[0])
    wide = offsets
    return compare_neighbours(&wide[0], wide.shape[0], &data[0], data.shape[0])


cdef object compare_neighbours(
    const Offset* offsets, Py_ssize_t num_offsets, const uint8_t* data, Py_ssize_t size
):
    cdef int32_t[::1] shared
    cdef Offset limit
    cdef Py_ssize_t i
    check_offsets(offsets, num_offsets, size)
    array = np.zeros(num_offsets - 1, np.int32)
    shared = array
    with nogil:
        for i in range(1, num_offsets - 1):
            limit = min(offsets[i + 1] - offsets[i], offsets[i] - offsets[i - 1])
            shared[i] = <int32_t> shared_bytes(data + offsets[i], data + offsets[i - 1], <ptrdiff_t> limit)
    return array


def join_prefixes(
    const int32_t[::1] prefixes not None,
    const int32_t[::1] suffix_lengths not None,
    const uint8_t[::1] suffixes not None,
    int32_t[::1] lengths not None,
    const uint8_t[::1] previous not None = b"",
):
    """See `reference.join_prefixes`."""
    cdef Py_ssize_t n = prefixes.shape[0]
    cdef int64_t total
    cdef uint8_t[::1] out
    if suffix_lengths.shape[0] != n or lengths.shape[0] != n:
        raise ValueError("there must be as many lengths as prefixes")
    with nogil:
        total = joined_lengths(
            &prefixes[0], &suffix_lengths[0], suffixes.shape[0], &lengths[0], n, previous.shape[0]
        )
    array = np.empty(total, np.uint8)
    out = array
    with nogil:
        join_suffixes(&prefixes[0], &suffix_lengths[0], &suffixes[0], suffixes.shape[0], n,
                      &previous[0], previous.shape[0], &out[0], out.shape[0])
    return array


cdef int64_t joined_lengths(
    const int32_t* prefixes, const int32_t* suffix_lengths, Py_ssize_t suffixes_size, int32_t* lengths,
    Py_ssize_t n, int64_t length
) except -1 nogil:
    """Fills the lengths of n values, the one before which has `length` bytes, and returns their sum."""
    cdef int64_t total = 0, suffixes_end = 0
    cdef Py_ssize_t i
    for i in range(n):
        if prefixes[i] < 0 or suffix_lengths[i] < 0:
            return malformed(b"a prefix or a suffix has a negative length")
        if prefixes[i] > length:
            return malformed(b"a prefix is longer than the value before")
        length = <int64_t> prefixes[i] + suffix_lengths[i]
        suffixes_end += suffix_lengths[i]
        total += length
        if suffixes_end > suffixes_size:
            return malformed(b"the suffixes end behind the end of their buffer")
        if total > LARGEST_LENGTH:
            return malformed(b"the values of a page have 2**31 bytes or more")
        lengths[i] = <int32_t> length
    return total


cdef void join_suffixes(
    const int32_t* prefixes, const int32_t* suffix_lengths, const uint8_t* suffixes, Py_ssize_t size,
    Py_ssize_t n, const uint8_t* previous, Py_ssize_t previous_size, uint8_t* out, Py_ssize_t out_size
) noexcept nogil:
    cdef Py_ssize_t position = 0, written = 0, start, i
    for i in range(n):
        start = written
        if i == 0:
            copy_bytes(out, out_size, previous, previous_size, prefixes[0])
        else:
            copy_bytes_before(out + written, out_size - written, previous, out_size - (previous - out),
                              prefixes[i])
        written += prefixes[i]
        copy_bytes(out + written, out_size - written, suffixes + position, size - position, suffix_lengths[i])
        written += suffix_lengths[i]
        position += suffix_lengths[i]
        previous = out + start


# --- dictionaries, nulls -----------------------------------------------------------------------------------


def gather(dictionary not None, const int32_t[::1] indices not None, out not None):
    """See `reference.gather`."""
    cdef const uint8_t[:, ::1] rows
    cdef uint8_t[:, ::1] out_rows
    cdef Py_ssize_t n = indices.shape[0]
    if out.dtype != dictionary.dtype or out.shape != (n, *dictionary.shape[1:]):
        raise ValueError("the output must have the type of the dictionary and the length of the indices")
    if dictionary.ndim == 2:
        rows = dictionary
        out_rows = out
        with nogil:
            gather_rows(&rows[0, 0], rows.shape[0], rows.shape[1], &indices[0], n, &out_rows[0, 0])
        return
    source, target = bits_of(dictionary), bits_of(out)
    if source.itemsize == 1:
        gather_numbers[uint8_t](source, indices, target)
    elif source.itemsize == 2:
        gather_numbers[uint16_t](source, indices, target)
    elif source.itemsize == 4:
        gather_numbers[uint32_t](source, indices, target)
    else:
        gather_numbers[uint64_t](source, indices, target)


cdef int check_indices(const int32_t* indices, Py_ssize_t n, Py_ssize_t length) except -1 nogil:
    """Refuses indices that are not 0 to `length` - 1."""
    cdef Py_ssize_t i
    cdef uint32_t highest = 0
    for i in range(n):
        highest = max(highest, <uint32_t> indices[i])  # a negative one becomes the highest
    if n and <int64_t> highest >= length:
        return malformed(b"an index lies outside of its dictionary")
    return 0


cdef int gather_numbers(const Bits[::1] dictionary, const int32_t[::1] indices, Bits[::1] out) except -1:
    cdef const Bits* source = &dictionary[0]
    cdef const int32_t* chosen = &indices[0]
    cdef Bits* target = &out[0]
    cdef Py_ssize_t n = indices.shape[0], length = dictionary.shape[0], begin, end, i
    with nogil:
        for begin in range(0, n, 1024):  # checked by the block, so that they are read from memory once
            end = min(begin + 1024, n)
            check_indices(chosen + begin, end - begin, length)
            for i in range(begin, end):
                target[i] = source[chosen[i]]
    return 0


cdef int gather_rows(
    const uint8_t* source, Py_ssize_t length, Py_ssize_t width, const int32_t* indices, Py_ssize_t n,
    uint8_t* out
) except -1 nogil:
    cdef Py_ssize_t i
    check_indices(indices, n, length)
    if width == 16:  # UUID, DECIMAL of 128 bits
        for i in range(n):
            memcpy(out + 16 * i, source + 16 * <Py_ssize_t> indices[i], 16)
    elif width:
        for i in range(n):
            memcpy(out + width * i, source + width * indices[i], width)
    return 0


cdef struct Slot:
    uint64_t key
    int64_t number  # of the distinct value, from 1; 0 where the slot is free


# Where a value hashes to depends on two secrets that differ between processes (unless PYTHONHASHSEED fixes
# them): the hash of a bytes object is a SipHash under the process's own key. So nobody can choose values that
# collide and make a dictionary take quadratic time.
cdef uint64_t SECRET = <uint64_t> <int64_t> hash(b"resilient_pq dictionary slots")
cdef uint64_t OTHER_SECRET = <uint64_t> <int64_t> hash(b"resilient_pq dictionary bytes")


cdef class Numbers:
    """A hash table with open addressing that numbers distinct keys in the order they appear."""

    cdef Slot* slots
    cdef int64_t* first  # position of each number
    cdef Py_ssize_t num_slots
    cdef Py_ssize_t room  # numbers until it grows
    cdef Py_ssize_t count

    def __cinit__(self):
        self.allocate(1024)

    def __dealloc__(self):
        free(self.slots)
        free(self.first)

    cdef int allocate(self, Py_ssize_t num_slots) except -1 nogil:
        """Takes empty slots; while they fit a cache most stay empty, as what costs is a probe that fails."""
        cdef Py_ssize_t room = num_slots // 8 if num_slots <= 1 << 18 else num_slots // 2
        cdef int64_t* first = <int64_t*> realloc(self.first, room * sizeof(int64_t))
        if first != NULL:
            self.first = first
            self.slots = <Slot*> calloc(num_slots, sizeof(Slot))
        if first == NULL or self.slots == NULL:
            with gil:
                raise MemoryError
        self.num_slots = num_slots
        self.room = room
        return 0

    cdef inline int add(self, Slot* slot, uint64_t key, int64_t position) except -1 nogil:
        """Numbers a new key in a free slot, and makes room for the next."""
        self.first[self.count] = position
        self.count += 1
        slot.key = key
        slot.number = self.count
        if self.count == self.room:
            self.grow()
        return 0

    cdef int grow(self) except -1 nogil:
        cdef Slot* slots = self.slots
        cdef Py_ssize_t num_slots = self.num_slots, i, at
        self.slots = NULL
        try:
            self.allocate(4 * num_slots if num_slots < 1 << 18 else 2 * num_slots)
            for i in range(num_slots):
                if slots[i].number:
                    at = slot_of(slots[i].key, self.num_slots)
                    while self.slots[at].number:
                        at = (at + 1) & (self.num_slots - 1)
                    self.slots[at] = slots[i]
        finally:
            free(slots)
        return 0

    cdef object positions(self):
        """The first position of each number."""
        cdef int64_t[::1] view
        array = np.empty(self.count, np.int64)
        view = array
        if self.count:
            memcpy(&view[0], self.first, self.count * sizeof(int64_t))
        return array


cdef inline Py_ssize_t slot_of(uint64_t key, Py_ssize_t num_slots) noexcept nogil:
    return <Py_ssize_t> (folded(key ^ SECRET, OTHER_SECRET) & <uint64_t> (num_slots - 1))


def dictionary_build(values not None, Py_ssize_t limit):
    """See `reference.dictionary_build`."""
    cdef const uint8_t[:, ::1] rows
    cdef const uint32_t[::1] narrow
    cdef const uint64_t[::1] wide
    cdef int32_t[::1] indices
    cdef Numbers numbers = Numbers()
    cdef bint fits
    array = np.empty(len(values), np.int32)
    indices = array
    if values.ndim == 2:
        rows = values
        with nogil:
            fits = number_bytes[int64_t](numbers, NULL, rows.shape[1], rows.shape[0], &rows[0, 0], limit, -1,
                                         &indices[0])
    elif values.itemsize == 4:
        narrow = bits_of(values)
        with nogil:
            fits = number_values(numbers, &narrow[0], narrow.shape[0], limit, &indices[0])
    elif values.itemsize == 8:
        wide = bits_of(values)
        with nogil:
            fits = number_values(numbers, &wide[0], wide.shape[0], limit, &indices[0])
    else:
        raise ValueError("values must have 4 or 8 bytes")
    return (array, numbers.positions()) if fits else None


cdef int number_values(
    Numbers numbers, const Bits* values, Py_ssize_t n, Py_ssize_t limit, int32_t* indices
) except -1 nogil:
    """Numbers values by their bits; 0 where there are more than `limit`."""
    cdef Slot* slots = numbers.slots
    cdef Py_ssize_t num_slots = numbers.num_slots, i, at
    for i in range(n):
        at = slot_of(values[i], num_slots)
        while slots[at].number and slots[at].key != values[i]:
            at = (at + 1) & (num_slots - 1)
        if slots[at].number == 0:
            if numbers.count >= limit:
                return 0
            indices[i] = <int32_t> numbers.count
            numbers.add(&slots[at], values[i], i)
            slots = numbers.slots
            num_slots = numbers.num_slots
        else:
            indices[i] = <int32_t> (slots[at].number - 1)
    return 1


def dictionary_build_byte_arrays(
    offsets not None, const uint8_t[::1] data not None, Py_ssize_t limit, Py_ssize_t limit_bytes
):
    """See `reference.dictionary_build_byte_arrays`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef int32_t[::1] indices
    cdef Numbers numbers = Numbers()
    cdef bint fits
    array = np.empty(max(len(offsets) - 1, 0), np.int32)
    indices = array
    limit_bytes = max(limit_bytes, 0)
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            check_offsets(&narrow[0], narrow.shape[0], data.shape[0])
            fits = number_bytes(numbers, &narrow[0], 0, narrow.shape[0] - 1, &data[0], limit, limit_bytes,
                                &indices[0])
    else:
        wide = offsets
        with nogil:
            check_offsets(&wide[0], wide.shape[0], data.shape[0])
            fits = number_bytes(numbers, &wide[0], 0, wide.shape[0] - 1, &data[0], limit, limit_bytes,
                                &indices[0])
    return (array, numbers.positions()) if fits else None


cdef inline Py_ssize_t start_of(const Offset* offsets, Py_ssize_t width, Py_ssize_t i) noexcept nogil:
    """Where value i starts; without offsets all have the same width."""
    return <Py_ssize_t> offsets[i] if offsets != NULL else i * width


cdef int number_bytes(
    Numbers numbers, const Offset* offsets, Py_ssize_t width, Py_ssize_t n, const uint8_t* data,
    Py_ssize_t limit, Py_ssize_t limit_bytes, int32_t* indices
) except -1 nogil:
    """Numbers byte arrays; 0 where there are more than `limit`, or than `limit_bytes` unless that is -1."""
    cdef Slot* slots = numbers.slots
    cdef Py_ssize_t num_slots = numbers.num_slots, i, at, start, size, other, known, num_bytes = 0
    cdef uint64_t key
    for i in range(n):
        start = start_of(offsets, width, i)
        size = start_of(offsets, width, i + 1) - start
        key = hash_bytes(data + start, size, SECRET, OTHER_SECRET)
        at = slot_of(key, num_slots)
        while slots[at].number:
            if slots[at].key == key:
                other = numbers.first[slots[at].number - 1]
                known = start_of(offsets, width, other)
                if start_of(offsets, width, other + 1) - known == size and equal_bytes(
                    data + known, data + start, size
                ):
                    break
            at = (at + 1) & (num_slots - 1)
        if slots[at].number == 0:
            num_bytes += 4 + size
            if numbers.count >= limit or (limit_bytes >= 0 and num_bytes > limit_bytes):
                return 0
            indices[i] = <int32_t> numbers.count
            numbers.add(&slots[at], key, i)
            slots = numbers.slots
            num_slots = numbers.num_slots
        else:
            indices[i] = <int32_t> (slots[at].number - 1)
    return 1


def spread(values not None, present not None):
    """See `reference.spread`."""
    cdef const uint8_t[::1] flags = present.view(np.uint8)
    cdef uint8_t[:, ::1] rows
    if len(values) != flags.shape[0]:
        raise ValueError("there must be one flag per value")
    if values.ndim == 2:
        rows = values
        with nogil:
            spread_rows(&rows[0, 0], rows.shape[1], &flags[0], flags.shape[0])
        return
    slots = bits_of(values)
    if slots.itemsize == 1:
        spread_numbers[uint8_t](slots, flags)
    elif slots.itemsize == 2:
        spread_numbers[uint16_t](slots, flags)
    elif slots.itemsize == 4:
        spread_numbers[uint32_t](slots, flags)
    else:
        spread_numbers[uint64_t](slots, flags)


cdef inline Py_ssize_t count_present(const uint8_t* present, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t count = 0, i
    for i in range(n):
        count += present[i] != 0
    return count


cdef int spread_numbers(Bits[::1] values, const uint8_t[::1] present) except -1:
    cdef Bits* slots = &values[0]
    cdef const uint8_t* flags = &present[0]
    cdef Py_ssize_t i = present.shape[0] - 1, source, lane
    cdef Bits here
    with nogil:
        source = count_present(flags, i + 1) - 1
        # From behind, so that a value is read before its slot is written, and without branches, which nulls
        # here and there would defeat: eight at a time while there are eight.
        while 8 <= source < i:
            for lane in range(8):
                here = flags[i - lane] != 0
                slots[i - lane] = slots[source] & <Bits> (0 - here)
                source -= here
            i -= 8
        while 0 <= source < i:
            here = flags[i] != 0
            slots[i] = slots[source] & <Bits> (0 - here)
            source -= here
            i -= 1
        if source < 0 <= i:
            memset(slots, 0, (i + 1) * sizeof(Bits))
    return 0


cdef void spread_rows(uint8_t* rows, Py_ssize_t width, const uint8_t* present, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i = n - 1, source = count_present(present, n) - 1
    if width == 0:
        return
    while source < i:
        if present[i]:
            memcpy(rows + i * width, rows + source * width, width)
            source -= 1
        else:
            memset(rows + i * width, 0, width)
        i -= 1


# --- Thrift ------------------------------------------------------------------------------------------------

cdef enum:
    STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID


def thrift_end(const uint8_t[::1] buffer not None, Py_ssize_t start, Py_ssize_t max_depth):
    """See `reference.thrift_end`."""
    cdef Py_ssize_t end
    if not 1 <= max_depth <= LARGEST_DEPTH:
        raise ValueError(f"max_depth must be 1 to {LARGEST_DEPTH}")
    if not 0 <= start <= buffer.shape[0]:
        raise ThriftError("a struct starts outside of its buffer")
    with nogil:
        end = struct_end(&buffer[0], buffer.shape[0], start, <int> max_depth)
    return end


cdef Py_ssize_t struct_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t field_id
    cdef int header, kind
    if depth == 0:
        return broken(b"structs lie too deep within each other")
    while position < size:
        header = data[position]
        position += 1
        if header == STOP:
            return position
        kind = header & 0x0F
        if header >> 4 == 0 and not read_varint(data, size, &position, 64, &field_id):
            return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
        if kind != TRUE and kind != FALSE:
            position = value_end(data, size, position, kind, depth - 1)
    return broken(b"a struct ends behind the end of its buffer")


cdef Py_ssize_t value_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int kind, int depth
) except -1 nogil:
    """The offset behind one value; it may lie `depth` levels deep, so the stack cannot overflow."""
    cdef uint64_t length
    if kind == STRUCT:
        return struct_end(data, size, position, depth)
    if kind == LIST or kind == SET:
        return list_end(data, size, position, depth)
    if kind == MAP:
        return map_end(data, size, position, depth)
    if kind == I16 or kind == I32 or kind == I64 or kind == BINARY:
        if not read_varint(data, size, &position, 64, &length):
            return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
        if kind != BINARY:
            return position
    elif kind == TRUE or kind == FALSE or kind == I8:
        length = 1
    elif kind == DOUBLE:
        length = 8
    elif kind == UUID:
        length = 16
    else:
        return broken(b"the Thrift compact protocol has no such type")
    if length > <uint64_t> (size - position):
        return broken(b"a struct ends behind the end of its buffer")
    return position + <Py_ssize_t> length


cdef Py_ssize_t list_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t count
    cdef int kind
    if depth == 0:
        return broken(b"lists lie too deep within each other")
    if position >= size:
        return broken(b"a struct ends behind the end of its buffer")
    kind = data[position] & 0x0F
    count = data[position] >> 4
    position += 1
    if count == 0x0F and not read_varint(data, size, &position, 64, &count):
        return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
    if count > <uint64_t> (size - position):  # every element takes at least a byte
        return broken(b"a struct ends behind the end of its buffer")
    while count:
        position = value_end(data, size, position, kind, depth - 1)
        count -= 1
    return position


cdef Py_ssize_t map_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t count
    cdef int kinds
    if depth == 0:
        return broken(b"maps lie too deep within each other")
    if not read_varint(data, size, &position, 64, &count):
        return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
    if count == 0:
        return position
    if count >= <uint64_t> (size - position):
        return broken(b"a struct ends behind the end of its buffer")
    kinds = data[position]
    position += 1
    while count:
        position = value_end(data, size, position, kinds >> 4, depth - 1)
        position = value_end(data, size, position, kinds & 0x0F, depth - 1)
        count -= 1
    return position


# --- DELTA_BINARY_PACKED -----------------------------------------------------------------------------------

cdef enum:
    BLOCK = 128
    MINIBLOCK = 32
    WIDEST = 64


cdef inline bint read_zigzag(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, uint64_t* value
) noexcept nogil:
    """Reads a zigzag integer of 64 bits as its two's complement; False where there is none."""
    if not read_varint(data, size, position, 64, value):
        return False
    value[0] = (value[0] >> 1) ^ (0 - (value[0] & 1))
    return True


def delta_binary_decode(const uint8_t[::1] buffer not None, out not None):
    """See `reference.delta_binary_decode`."""
    cdef int32_t[::1] narrow
    cdef int64_t[::1] wide
    cdef Py_ssize_t end
    if out.itemsize == 4:
        narrow = out
        with nogil:
            end = decode_delta(&buffer[0], buffer.shape[0], &narrow[0], narrow.shape[0])
    else:
        wide = out
        with nogil:
            end = decode_delta(&buffer[0], buffer.shape[0], &wide[0], wide.shape[0])
    return end


cdef Py_ssize_t decode_delta(const uint8_t* data, Py_ssize_t size, Offset* out, Py_ssize_t n) except -1 nogil:
    cdef Py_ssize_t position = 0, filled = 1, per_miniblock, wanted, end, i
    cdef uint64_t block_size, miniblocks, count, value, minimum
    cdef const uint8_t* widths
    if not (
        read_varint(data, size, &position, 32, &block_size)
        and read_varint(data, size, &position, 32, &miniblocks)
        and read_varint(data, size, &position, 32, &count)
        and read_zigzag(data, size, &position, &value)
    ):
        return malformed(b"an integer ends behind the end of its buffer or has too many bits")
    if block_size == 0 or block_size % 128 or block_size > <uint64_t> LARGEST_LENGTH:
        return malformed(b"the values per block are not a multiple of 128")
    if miniblocks == 0 or block_size % miniblocks or block_size // miniblocks % 32:
        return malformed(b"the values per miniblock are not a multiple of 32")
    if count != <uint64_t> n:
        return malformed(b"another number of values is encoded than expected")
    if n == 0:
        return position
    per_miniblock = <Py_ssize_t> (block_size // miniblocks)
    out[0] = <Offset> value
    while filled < n:
        if not read_zigzag(data, size, &position, &minimum):
            return malformed(b"an integer ends behind the end of its buffer or has too many bits")
        if miniblocks > <uint64_t> (size - position):
            return malformed(b"a block ends behind the end of its buffer")
        widths = data + position
        position += <Py_ssize_t> miniblocks
        for i in range(<Py_ssize_t> miniblocks):
            wanted = min(per_miniblock, n - filled)
            if wanted == 0:
                break
            end = min(position + per_miniblock // 8 * widths[i], size)
            if widths[i] > WIDEST or (wanted * widths[i] + 7) // 8 > end - position:
                return malformed(b"a miniblock is wider than 64 bits or ends behind the end of its buffer")
            value = add_deltas(
                data + position, size - position, widths[i], minimum, value, out + filled, wanted
            )
            position = end
            filled += wanted
    return position


cdef inline uint64_t add_deltas(
    const uint8_t* data, Py_ssize_t room, int width, uint64_t minimum, uint64_t value,
    Offset* out, Py_ssize_t n
) noexcept nogil:
    """Unpacks n deltas that lie wholly within `room` bytes, adds them up from `value`; returns the sum."""
    cdef uint64_t deltas[32]
    cdef uint8_t padded[4 * 64 + 16]
    cdef Py_ssize_t done = 0, at, i
    cdef const uint8_t* source
    if width == 0:
        for i in range(n):
            value += minimum
            out[i] = <Offset> value
        return value
    while done < n:
        at = done // 8 * width
        source = data + at
        if room - at < 4 * width + GROUP_SLACK:  # reading whole words would leave the buffer
            memset(padded, 0, sizeof(padded))
            memcpy(padded, source, min(<Py_ssize_t> 4 * width, room - at))
            source = padded
        unpack_u64(source, deltas, 4, width)
        for i in range(min(<Py_ssize_t> 32, n - done)):
            value += minimum + deltas[i]
            out[done + i] = <Offset> value
        done += 32
    return value


def delta_binary_encode(values not None):
    """See `reference.delta_binary_encode`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef uint8_t[::1] out
    cdef Py_ssize_t written
    # A header of up to 2 + 1 + 10 + 10 bytes; per block a minimum of up to 10, 4 widths and 128 whole values.
    array = np.empty(32 + (len(values) // BLOCK + 1) * (16 + BLOCK * values.itemsize) + GROUP_SLACK, np.uint8)
    out = array
    if values.itemsize == 4:
        narrow = values
        with nogil:
            written = encode_delta(&narrow[0], narrow.shape[0], &out[0])
    else:
        wide = values
        with nogil:
            written = encode_delta(&wide[0], wide.shape[0], &out[0])
    return trimmed(array, written)


cdef inline Py_ssize_t write_zigzag(uint8_t* out, int64_t value) noexcept nogil:
    return write_varint(out, (<uint64_t> value << 1) ^ (0 - <uint64_t> (value < 0)))


cdef Py_ssize_t encode_delta(const Offset* values, Py_ssize_t n, uint8_t* out) noexcept nogil:
    cdef Py_ssize_t written, begin = 1
    written = write_varint(out, BLOCK)
    written += write_varint(out + written, BLOCK // MINIBLOCK)
    written += write_varint(out + written, <uint64_t> n)
    written += write_zigzag(out + written, values[0] if n else 0)
    while begin < n:
        written += write_block(values + begin, min(<Py_ssize_t> BLOCK, n - begin), out + written)
        begin += BLOCK
    return written


cdef inline Py_ssize_t write_block(const Offset* values, Py_ssize_t n, uint8_t* out) noexcept nogil:
    """Writes a block of n values, 1 to 128, that follow ``values[-1]``, and returns its size."""
    cdef uint64_t deltas[BLOCK]
    cdef uint64_t above
    cdef Offset delta, minimum = 0
    cdef Py_ssize_t written, miniblock, i
    cdef uint8_t* widths
    cdef int width
    for i in range(n):
        delta = <Offset> (<uint64_t> values[i] - <uint64_t> values[i - 1])
        deltas[i] = <uint64_t> delta
        minimum = delta if i == 0 else min(minimum, delta)
    for i in range(n):
        deltas[i] -= <uint64_t> minimum
        if Offset is int32_t:
            deltas[i] = <uint32_t> deltas[i]
    memset(deltas + n, 0, (BLOCK - n) * sizeof(uint64_t))
    written = write_zigzag(out, minimum)
    widths = out + written
    written += BLOCK // MINIBLOCK
    for miniblock in range(BLOCK // MINIBLOCK):
        above = 0
        for i in range(MINIBLOCK):
            above |= deltas[MINIBLOCK * miniblock + i]
        width = 0
        while above:
            above >>= 1
            width += 1
        widths[miniblock] = <uint8_t> width
        pack_u64(deltas + MINIBLOCK * miniblock, out + written, MINIBLOCK // 8, width)
        written += MINIBLOCK // 8 * width
    return written


# --- bloom filters -----------------------------------------------------------------------------------------


def byte_array_hashes(offsets not None, const uint8_t[::1] data not None):
    """See `reference.byte_array_hashes`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if offsets.itemsize == 4:
        narrow = offsets
        return hash_byte_arrays(&narrow[0], narrow.shape[0], &data[0], data.shape[0])
    wide = offsets
    return hash_byte_arrays(&wide[0], wide.shape[0], &data[0], data.shape[0])


cdef object hash_byte_arrays(const Offset* offsets, Py_ssize_t num_offsets, const uint8_t* data, Py_ssize_t size):
    cdef uint64_t[::1] hashes
    cdef Py_ssize_t i
    check_offsets(offsets, num_offsets, size)
    array = np.empty(num_offsets - 1, np.uint64)
    hashes = array
    with nogil:
        for i in range(num_offsets - 1):
            hashes[i] = xxh64(data + offsets[i], <ptrdiff_t> (offsets[i + 1] - offsets[i]))
    return array


def row_hashes(const uint8_t[:, ::1] rows not None):
    """See `reference.row_hashes`."""
    cdef uint64_t[::1] hashes
    cdef Py_ssize_t i, width = rows.shape[1]
    array = np.empty(rows.shape[0], np.uint64)
    hashes = array
    with nogil:
        if width == 8:  # a constant size: the compiler leaves out what no value of eight bytes needs
            for i in range(rows.shape[0]):
                hashes[i] = xxh64(&rows[i, 0], 8)
        else:
            for i in range(rows.shape[0]):
                hashes[i] = xxh64(&rows[0, 0] + i * width, width)
    return array


def bloom_insert(uint32_t[:, ::1] blocks not None, const uint64_t[::1] hashes not None):
    """See `reference.bloom_insert`."""
    cdef uint64_t num_blocks = filter_blocks(blocks.shape[0], blocks.shape[1])
    cdef Py_ssize_t i
    with nogil:
        for i in range(hashes.shape[0]):
            bloom_set(&blocks[<Py_ssize_t> ((hashes[i] >> 32) * num_blocks >> 32), 0], <uint32_t> hashes[i])


def bloom_contains(const uint32_t[:, ::1] blocks not None, const uint64_t[::1] hashes not None):
    """See `reference.bloom_contains`."""
    cdef uint64_t num_blocks = filter_blocks(blocks.shape[0], blocks.shape[1])
    cdef uint8_t[::1] found
    cdef Py_ssize_t i
    array = np.empty(hashes.shape[0], np.bool_)
    found = array.view(np.uint8)
    with nogil:
        for i in range(hashes.shape[0]):
            found[i] = bloom_has(&blocks[<Py_ssize_t> ((hashes[i] >> 32) * num_blocks >> 32), 0],
                                 <uint32_t> hashes[i])
    return array


cdef uint64_t filter_blocks(Py_ssize_t num_blocks, Py_ssize_t words) except 0:
    if words != 8 or not 0 < num_blocks < <Py_ssize_t> 1 << 31:
        raise ValueError("a filter has blocks of eight words, and one block at least")
    return <uint64_t> num_blocks


# --- search ------------------------------------------------------------------------------------------------

def find_all(const uint8_t[::1] buffer not None, const uint8_t[::1] needle not None):
    """See `reference.find_all`."""
    cdef Py_ssize_t length = needle.shape[0], size = buffer.shape[0], at = 0
    if length < 2:
        raise ValueError("what is searched for has at least two bytes")
    found = []
    while size - at >= length:
        with nogil:
            at = next_match(&buffer[0], size, at, &needle[0], length)
        if at < 0:
            break
        found.append(at)
        at += 1
    return np.array(found, np.int64)


cdef Py_ssize_t next_match(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t at, const uint8_t* needle, Py_ssize_t length
) noexcept nogil:
    """The first place from `at` on where all of the needle stands; -1 if there is none."""
    cdef const uint8_t* place
    while at + length <= size:
        place = <const uint8_t*> memchr(data + at, needle[0], <size_t> (size - length + 1 - at))
        if place == NULL:
            return -1
        if place[1] == needle[1] and memcmp(place, needle, <size_t> length) == 0:
            return place - data
        at = place - data + 1
    return -1
