# Byte arrays that share prefixes with their neighbours. Included by `_native.pyx`.

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
    array = empty((total,), np.uint8)
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
