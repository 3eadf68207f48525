# Byte arrays: their lengths, bytes, order, text and common prefixes. Included by `_native.pyx`.

cdef extern from "native/headers/utf8.h":
    const uint8_t* skip_ascii(const uint8_t* at, const uint8_t* end) noexcept nogil
    bint is_utf8(const uint8_t* at, ptrdiff_t size) noexcept nogil


def byte_array_lengths(buffer, lengths):
    """See `reference.byte_array_lengths`."""
    cdef Array source = readable(buffer), to = writable(lengths, 4)
    cdef Py_ssize_t total
    with nogil:
        total = read_lengths(source.at, source.size, <int32_t*> to.at, to.count)
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


def byte_array_join(offsets, data, out):
    """See `reference.byte_array_join`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data), to = writable(out)
    with nogil:
        if starts.width == 4:
            join(<const int32_t*> starts.at, starts.count, source.at, source.size, to.at, to.size)
        else:
            join(<const int64_t*> starts.at, starts.count, source.at, source.size, to.at, to.size)


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


cdef int check_all_offsets(Array offsets, Array data) except -1 nogil:
    if offsets.width == 4:
        return check_offsets(<const int32_t*> offsets.at, offsets.count, data.size)
    return check_offsets(<const int64_t*> offsets.at, offsets.count, data.size)


cdef int check_offsets(const Offset* offsets, Py_ssize_t num_offsets, Py_ssize_t size) except -1 nogil:
    """Refuses offsets that are not ``0 <= offsets[i] <= offsets[i + 1] <= size`` throughout."""
    cdef Py_ssize_t i
    cdef Offset signs = 0, lengths = 0, length
    if num_offsets == 0:
        return malformed(b"there must be one offset more than values")
    for i in range(num_offsets - 1):
        length = offsets[i + 1] - offsets[i]
        signs |= offsets[i] | length  # a difference overflows only where one of the two is negative
        lengths |= length
    if (signs | offsets[0]) < 0 or offsets[num_offsets - 1] > size:
        return malformed(b"offsets fall or lead out of the data")
    if lengths > LARGEST_LENGTH:
        return malformed(b"a value has 2**31 bytes or more")
    return 0


def byte_array_min_max(offsets, data):
    """See `reference.byte_array_min_max`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data)
    cdef Py_ssize_t smallest = 0, largest = 0
    with nogil:
        check_all_offsets(starts, source)
        if starts.width == 4:
            find_min_max(<const int32_t*> starts.at, starts.count - 1, source.at, source.size, &smallest, &largest)
        else:
            find_min_max(<const int64_t*> starts.at, starts.count - 1, source.at, source.size, &smallest, &largest)
    if starts.count == 1:
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


def row_min_max(rows, bint signed):
    """See `reference.row_min_max`."""
    cdef Array source = readable(rows, 1, 2)
    cdef ptrdiff_t smallest = 0, largest = 0
    cdef uint64_t flipped = (<uint64_t> signed) << 63
    if source.size == 0:
        raise ValueError("there must be a row of at least a byte")
    with nogil:
        rows_min_max(source.at, source.count, source.columns, flipped, &smallest, &largest)
    return smallest, largest


def utf8_valid(offsets, data):
    """See `reference.utf8_valid`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data)
    cdef bint valid
    with nogil:
        check_all_offsets(starts, source)
        if starts.width == 4:
            valid = all_utf8(<const int32_t*> starts.at, starts.count - 1, source.at)
        else:
            valid = all_utf8(<const int64_t*> starts.at, starts.count - 1, source.at)
    return valid


cdef bint all_utf8(const Offset* offsets, Py_ssize_t n, const uint8_t* data) noexcept nogil:
    cdef const uint8_t* first = data + offsets[0]
    cdef const uint8_t* last = data + offsets[n]
    cdef Py_ssize_t i
    cdef bint whole = True
    if skip_ascii(first, last) == last:
        return True
    if not is_utf8(first, last - first):
        return False
    # All of it is. So is each value, unless one begins within a character: with one of its further bytes.
    for i in range(n):
        if offsets[i] < offsets[n]:
            whole &= (data[offsets[i]] & 0xC0) != 0x80
    return whole


def shared_prefixes(offsets, data):
    """See `reference.shared_prefixes`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data)
    check_all_offsets(starts, source)
    array = np.zeros(starts.count - 1, np.int32)
    cdef Array to = writable(array, 4)
    with nogil:
        if starts.width == 4:
            compare_neighbours(<const int32_t*> starts.at, source.at, <int32_t*> to.at, to.count)
        else:
            compare_neighbours(<const int64_t*> starts.at, source.at, <int32_t*> to.at, to.count)
    return array


cdef void compare_neighbours(const Offset* offsets, const uint8_t* data, int32_t* shared, Py_ssize_t n) noexcept nogil:
    cdef Offset limit
    cdef Py_ssize_t i
    for i in range(1, n):
        limit = min(offsets[i + 1] - offsets[i], offsets[i] - offsets[i - 1])
        shared[i] = <int32_t> shared_bytes(data + offsets[i], data + offsets[i - 1], <ptrdiff_t> limit)


def join_prefixes(prefixes, suffix_lengths, suffixes, lengths, previous=b""):
    """See `reference.join_prefixes`."""
    cdef Array shared = readable(prefixes, 4), own = readable(suffix_lengths, 4), rest = readable(suffixes)
    cdef Array sizes = writable(lengths, 4), before = readable(previous)
    cdef const int32_t* prefix = <const int32_t*> shared.at
    cdef const int32_t* suffix = <const int32_t*> own.at
    cdef Py_ssize_t n = shared.count
    cdef int64_t total
    if own.count != n or sizes.count != n:
        raise ValueError("there must be as many lengths as prefixes")
    with nogil:
        total = joined_lengths(prefix, suffix, rest.size, <int32_t*> sizes.at, n, before.size)
    array = empty((total,), np.uint8)
    cdef Array to = writable(array)
    with nogil:
        join_suffixes(prefix, suffix, rest.at, rest.size, n, before.at, before.size, to.at, to.size)
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
