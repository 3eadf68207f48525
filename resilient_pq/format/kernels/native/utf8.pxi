# Text looked at. Included by `_native.pyx`.

def utf8_valid(offsets not None, const uint8_t[::1] data not None):
    """See `reference.utf8_valid`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef bint valid
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            check_offsets(&narrow[0], narrow.shape[0], data.shape[0])
            valid = all_utf8(&narrow[0], narrow.shape[0] - 1, &data[0])
    else:
        wide = offsets
        with nogil:
            check_offsets(&wide[0], wide.shape[0], data.shape[0])
            valid = all_utf8(&wide[0], wide.shape[0] - 1, &data[0])
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
