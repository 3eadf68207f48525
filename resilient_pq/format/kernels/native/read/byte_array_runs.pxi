# Runs of data pages whose values are byte arrays. Included by `_native.pyx` behind `pages.pxi`.

def plain_byte_arrays(buffer, spans, present, Py_ssize_t slot, offsets, data, Py_ssize_t written, bint text):
    """See `reference.plain_byte_arrays`."""
    cdef Array source = readable(buffer), flags = readable(present)
    cdef Array ends = writable(offsets, 4 | 8), to = writable(data)
    cdef Array parts = spans_of(spans, source, slot, ends.count - 1, flags)
    cdef const int64_t* part = <const int64_t*> parts.at
    cdef bint valid = text
    check_room(to, written, ends)
    if parts.count:
        with nogil:
            if ends.width == 4:
                written = split_pages(source.at, source.size, part, parts.count, flags.at + slot,
                                      <int32_t*> ends.at + slot, to.at, to.size, written, &valid)
            else:
                written = split_pages(source.at, source.size, part, parts.count, flags.at + slot,
                                      <int64_t*> ends.at + slot, to.at, to.size, written, &valid)
    return written, valid


cdef int check_room(Array data, Py_ssize_t written, Array offsets) except -1:
    """Refuses room for values that begins elsewhere, or beyond where their offsets can lead."""
    if not 0 <= written <= data.size or (offsets.width == 4 and data.size > LARGEST_LENGTH):
        raise ValueError("the values do not fit their room")
    return 0


cdef inline Py_ssize_t value_at(const uint8_t* data, Py_ssize_t position, Py_ssize_t end) except -1 nogil:
    """The length of the PLAIN value at `position`, which ends before `end`."""
    cdef uint32_t length
    if end - position < 4:
        return malformed(b"a BYTE_ARRAY value ends behind the end of its page")
    length = load32(data + position)
    if length > LARGEST_LENGTH or <Py_ssize_t> length > end - position - 4:
        return malformed(b"a BYTE_ARRAY value ends behind the end of its page")
    return <Py_ssize_t> length


cdef Py_ssize_t split_pages(
    const uint8_t* data, Py_ssize_t size, const int64_t* spans, Py_ssize_t n, const uint8_t* flags,
    Offset* offsets, uint8_t* out, Py_ssize_t out_size, Py_ssize_t written, bint* valid
) except -1 nogil:
    cdef Py_ssize_t page, i, position, end, length, left
    cdef bint look, full
    for page in range(n):
        position, end = spans[0], spans[1]
        left = spans[3]
        full = left == spans[2]
        # Where values have less than 128 bytes, their lengths are ASCII too.
        look = valid[0] and skip_ascii(data + position, data + end) < data + end
        for i in range(spans[2]):
            offsets[i] = <Offset> written
            if not full and not flags[i]:
                continue
            length = value_at(data, position, end)
            position += 4
            left -= 1
            if length > out_size - written:
                return malformed(b"BYTE_ARRAY values do not fit their room")
            copy_bytes(out + written, out_size - written, data + position, size - position, length)
            if look and valid[0]:
                valid[0] = is_utf8(data + position, length)
            position += length
            written += length
        if left:
            return malformed(b"a page has another number of values than flags")
        offsets += spans[2]
        flags += spans[2]
        spans += SPAN_PARTS
    offsets[0] = <Offset> written
    return written


def plain_views(buffer, spans, present, Py_ssize_t slot, views, int32_t number, bint text):
    """See `reference.plain_views`."""
    cdef Array source = readable(buffer), flags = readable(present), to = writable(views, 1, 2)
    cdef Array parts = spans_of(spans, source, slot, to.count, flags)
    cdef bint valid = text, used = False
    if to.columns != VIEW_BYTES:
        raise ValueError("a view has 16 bytes")
    if source.size > LARGEST_LENGTH:
        malformed(b"values of 2**31 bytes or more do not fit one buffer of views")
    with nogil:
        view_pages(source.at, source.size, <const int64_t*> parts.at, parts.count, flags.at + slot,
                   to.at + VIEW_BYTES * slot, number, &used, &valid)
    return used, valid


cdef int view_pages(
    const uint8_t* data, Py_ssize_t size, const int64_t* spans, Py_ssize_t n, const uint8_t* flags,
    uint8_t* views, int32_t number, bint* used, bint* valid
) except -1 nogil:
    cdef Py_ssize_t page, i, position, end, length, left
    cdef bint look, full
    for page in range(n):
        position, end = spans[0], spans[1]
        left = spans[3]
        full = left == spans[2]
        look = valid[0] and skip_ascii(data + position, data + end) < data + end
        for i in range(spans[2]):
            if not full and not flags[i]:
                memset(views + 16 * i, 0, 16)
                continue
            length = value_at(data, position, end)
            position += 4
            left -= 1
            store_view(views + 16 * i, data + position, size - position, <uint32_t> length, <uint32_t> number,
                       <uint32_t> position)
            used[0] |= length > INLINE_VIEW
            if look and valid[0]:
                valid[0] = is_utf8(data + position, length)
            position += length
        if left:
            return malformed(b"a page has another number of values than flags")
        views += 16 * spans[2]
        flags += spans[2]
        spans += SPAN_PARTS
    return 0


cdef enum:
    MOST_PADDED = 1 << 14  # entries of a dictionary that are padded: more would not stay in a cache


def chosen_size(entries, codes):
    """See `reference.chosen_size`."""
    cdef Array starts = readable(entries, 4 | 8), chosen = readable(codes, 4 | 8)
    cdef Py_ssize_t count = max(starts.count - 1, 0)
    cdef int64_t total
    with nogil:
        if starts.width == 4:
            total = sum_codes(<const int32_t*> starts.at, count, chosen)
        else:
            total = sum_codes(<const int64_t*> starts.at, count, chosen)
    return total


cdef int64_t sum_codes(const Offset* entries, Py_ssize_t num_entries, Array codes) except -1 nogil:
    if codes.width == 4:
        return sum_chosen(entries, num_entries, <const int32_t*> codes.at, codes.count)
    return sum_chosen(entries, num_entries, <const int64_t*> codes.at, codes.count)


cdef int64_t sum_chosen(
    const Offset* entries, Py_ssize_t num_entries, const Code* codes, Py_ssize_t n
) except -1 nogil:
    cdef Py_ssize_t i
    cdef int64_t total = 0, length, lengths = 0
    for i in range(n):
        if <uint64_t> codes[i] >= <uint64_t> num_entries:  # a negative one, too
            return malformed(b"an index lies outside of its dictionary")
        if entries[codes[i]] < 0 or entries[codes[i] + 1] < entries[codes[i]]:
            return malformed(b"offsets fall")
        length = entries[codes[i] + 1] - entries[codes[i]]
        lengths |= length
        total += length
    if lengths > LARGEST_LENGTH:
        return malformed(b"a value has 2**31 bytes or more")
    return total


def copy_chosen_byte_arrays(entries, values, codes, data, Py_ssize_t written):
    """See `reference.copy_chosen_byte_arrays`."""
    cdef Array starts = readable(entries, 4 | 8), source = readable(values), chosen = writable(codes, 4 | 8)
    cdef Array to = writable(data)
    cdef Py_ssize_t count = max(starts.count - 1, 0)
    check_room(to, written, chosen)
    with nogil:
        if starts.width == 4:
            written = place_codes(<const int32_t*> starts.at, count, source, chosen, to, written)
        else:
            written = place_codes(<const int64_t*> starts.at, count, source, chosen, to, written)
    return written


cdef Py_ssize_t place_codes(
    const Offset* entries, Py_ssize_t num_entries, Array source, Array codes, Array to, Py_ssize_t written
) except -1 nogil:
    if codes.width == 4:
        return place_chosen(entries, num_entries, source.at, source.size, <int32_t*> codes.at, codes.count,
                            to.at, to.size, written)
    return place_chosen(entries, num_entries, source.at, source.size, <int64_t*> codes.at, codes.count,
                        to.at, to.size, written)


cdef Py_ssize_t place_chosen(
    const Offset* entries, Py_ssize_t num_entries, const uint8_t* values, Py_ssize_t size, Code* codes,
    Py_ssize_t n, uint8_t* out, Py_ssize_t out_size, Py_ssize_t written
) except -1 nogil:
    cdef Py_ssize_t i = 0, start, length
    cdef int stride = stride_of(entries, num_entries, size) if num_entries <= min(n, <Py_ssize_t> MOST_PADDED) else 0
    cdef uint8_t* padded = NULL
    if stride:
        padded = <uint8_t*> calloc(num_entries, stride + 1)  # where there is no memory for it, it goes without
    if padded != NULL:
        pad(entries, num_entries, values, stride, padded)
        if stride == 16:
            i = place_padded(padded, num_entries, 16, codes, n, out, out_size, &written)
        else:
            i = place_padded(padded, num_entries, 32, codes, n, out, out_size, &written)
        free(padded)
    while i < n:
        if <uint64_t> codes[i] >= <uint64_t> num_entries:  # a negative one, too
            return malformed(b"an index lies outside of its dictionary")
        start = <Py_ssize_t> entries[codes[i]]
        length = <Py_ssize_t> entries[codes[i] + 1] - start
        if start < 0 or length < 0 or length > size - start:
            return malformed(b"an offset leads out of the data")
        if length > out_size - written:
            return malformed(b"the chosen values do not fit their room")
        copy_bytes(out + written, out_size - written, values + start, size - start, length)
        written += length
        codes[i] = <Code> written
        i += 1
    return written


cdef int stride_of(const Offset* entries, Py_ssize_t num_entries, Py_ssize_t size) noexcept nogil:
    """Bytes that hold any entry, 16 or 32; 0 where one is longer, or is not within the data."""
    cdef Py_ssize_t i
    cdef int64_t longest = 0
    if num_entries == 0 or entries[0] < 0 or entries[num_entries] > size:
        return 0
    for i in range(num_entries):
        if entries[i + 1] < entries[i]:
            return 0
        longest = max(longest, entries[i + 1] - entries[i])
    return 16 if longest <= 16 else 32 if longest <= 32 else 0


cdef void pad(
    const Offset* entries, Py_ssize_t num_entries, const uint8_t* values, int stride, uint8_t* padded
) noexcept nogil:
    """Puts each entry at the front of `stride` bytes; behind all of them stand their lengths."""
    cdef Py_ssize_t i
    for i in range(num_entries):
        memcpy(padded + stride * i, values + entries[i], <size_t> (entries[i + 1] - entries[i]))
        padded[stride * num_entries + i] = <uint8_t> (entries[i + 1] - entries[i])


cdef inline Py_ssize_t place_padded(
    const uint8_t* padded, Py_ssize_t num_entries, const int stride, Code* codes, Py_ssize_t n, uint8_t* out,
    Py_ssize_t out_size, Py_ssize_t* written
) noexcept nogil:
    """Copies whole strides while there is room for one, each over the rest of the one before; gives how many."""
    cdef const uint8_t* lengths = padded + stride * num_entries
    cdef Py_ssize_t i = 0, at = written[0], last = out_size - stride
    while i < n and at <= last and <uint64_t> codes[i] < <uint64_t> num_entries:
        memcpy(out + at, padded + stride * <Py_ssize_t> codes[i], stride)
        at += lengths[codes[i]]
        codes[i] = <Code> at
        i += 1
    written[0] = at
    return i
