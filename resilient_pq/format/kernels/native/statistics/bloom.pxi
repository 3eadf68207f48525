# Bloom filters, and the hashes they hold. Included by `_native.pyx`.

cdef extern from "native/headers/bloom.h":
    void bloom_set(uint32_t* block, uint32_t hash) noexcept nogil
    bint bloom_has(const uint32_t* block, uint32_t hash) noexcept nogil


def byte_array_hashes(offsets, data):
    """See `reference.byte_array_hashes`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data)
    check_all_offsets(starts, source)
    array = empty((starts.count - 1,), np.uint64)
    cdef Array to = writable(array, UNSIGNED | 8)
    with nogil:
        if starts.width == 4:
            hash_byte_arrays(<const int32_t*> starts.at, source.at, <uint64_t*> to.at, to.count)
        else:
            hash_byte_arrays(<const int64_t*> starts.at, source.at, <uint64_t*> to.at, to.count)
    return array


cdef void hash_byte_arrays(const Offset* offsets, const uint8_t* data, uint64_t* hashes, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        hashes[i] = xxh64(data + offsets[i], <ptrdiff_t> (offsets[i + 1] - offsets[i]))


def row_hashes(rows):
    """See `reference.row_hashes`."""
    cdef Array source = readable(rows, 1, 2)
    array = empty((source.count,), np.uint64)
    cdef Array to = writable(array, UNSIGNED | 8)
    cdef uint64_t* hashes = <uint64_t*> to.at
    cdef Py_ssize_t i, n = source.count, width = source.columns
    cdef const uint8_t* row = source.at
    with nogil:
        if width == 8:  # a constant size: the compiler leaves out what no value of eight bytes needs
            for i in range(n):
                hashes[i] = xxh64(row + 8 * i, 8)
        else:
            for i in range(n):
                hashes[i] = xxh64(row + width * i, width)
    return array


def bloom_insert(blocks, hashes):
    """See `reference.bloom_insert`."""
    cdef Array words = writable(blocks, UNSIGNED | 4, 2), values = readable(hashes, UNSIGNED | 8)
    cdef uint64_t num_blocks = filter_blocks(words)
    cdef const uint64_t* hash = <const uint64_t*> values.at
    cdef uint32_t* block = <uint32_t*> words.at
    cdef Py_ssize_t i, n = values.count
    with nogil:
        for i in range(n):
            bloom_set(block + 8 * ((hash[i] >> 32) * num_blocks >> 32), <uint32_t> hash[i])


def bloom_contains(blocks, hashes):
    """See `reference.bloom_contains`."""
    cdef Array words = readable(blocks, UNSIGNED | 4, 2), values = readable(hashes, UNSIGNED | 8)
    cdef uint64_t num_blocks = filter_blocks(words)
    array = empty((values.count,), np.bool_)
    cdef Array to = writable(array)
    cdef const uint64_t* hash = <const uint64_t*> values.at
    cdef const uint32_t* block = <const uint32_t*> words.at
    cdef uint8_t* found = to.at
    cdef Py_ssize_t i, n = values.count
    with nogil:
        for i in range(n):
            found[i] = bloom_has(block + 8 * ((hash[i] >> 32) * num_blocks >> 32), <uint32_t> hash[i])
    return array


cdef uint64_t filter_blocks(Array blocks) except 0:
    if blocks.columns != 8 or not 0 < blocks.count < <Py_ssize_t> 1 << 31:
        raise ValueError("a filter has blocks of eight words, and one block at least")
    return <uint64_t> blocks.count
