# Bloom filters, and the hashes they hold. Included by `_native.pyx`.

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
    array = empty((num_offsets - 1,), np.uint64)
    hashes = array
    with nogil:
        for i in range(num_offsets - 1):
            hashes[i] = xxh64(data + offsets[i], <ptrdiff_t> (offsets[i + 1] - offsets[i]))
    return array


def row_hashes(const uint8_t[:, ::1] rows not None):
    """See `reference.row_hashes`."""
    cdef uint64_t[::1] hashes
    cdef Py_ssize_t i, width = rows.shape[1]
    array = empty((rows.shape[0],), np.uint64)
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
    array = empty((hashes.shape[0],), np.bool_)
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
