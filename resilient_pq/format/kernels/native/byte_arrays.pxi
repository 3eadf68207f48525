# Byte arrays: their lengths, bytes and order. Included by `_native.pyx`.

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


def byte_array_join(offsets not None, const uint8_t[::1] data not None, uint8_t[::1] out not None):
    """See `reference.byte_array_join`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            join(&narrow[0], narrow.shape[0], &data[0], data.shape[0], &out[0], out.shape[0])
    else:
        wide = offsets
        with nogil:
            join(&wide[0], wide.shape[0], &data[0], data.shape[0], &out[0], out.shape[0])


cdef int join(
    const Offset* offsets, Py_ssize_t num_offsets, const uint8_t* data, Py_ssize_t size, uint8_t* out,
    Py_ssize_t out_size
) except -1 nogil:
    cdef Py_ssize_t i, start, end, length, written = 0
    check_offsets(offsets, num_offsets, size)
    if <Py_ssize_t> (offsets[num_offsets - 1] - offsets[0]) + 4 * (num_offsets - 1) != out_size:
        return malformed(b"the values do not fill the output exactly")
    end = max(<Py_ssize_t> offsets[0], 0)
    for i in range(num_offsets - 1):
        start = end
        end = <Py_ssize_t> offsets[i + 1]
        length = end - start
        if length < 0 or end > size or length > out_size - written - 4:
            return malformed(b"offsets fall or lead out of the data")  # somebody changed what was checked
        store32(out + written, <uint32_t> length)
        written += 4
        copy_bytes(out + written, out_size - written, data + start, size - start, length)
        written += length
    return 0


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


def row_min_max(const uint8_t[:, ::1] rows not None, bint signed):
    """See `reference.row_min_max`."""
    cdef ptrdiff_t smallest = 0, largest = 0
    cdef uint64_t flipped = (<uint64_t> signed) << 63
    if rows.shape[0] == 0 or rows.shape[1] == 0:
        raise ValueError("there must be a row of at least a byte")
    with nogil:
        rows_min_max(&rows[0, 0], rows.shape[0], rows.shape[1], flipped, &smallest, &largest)
    return smallest, largest
