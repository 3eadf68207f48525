# Bytes searched for bytes. Included by `_native.pyx`.

def find_all(buffer, needle):
    """See `reference.find_all`."""
    cdef Array source = readable(buffer), wanted = readable(needle)
    cdef Py_ssize_t at = 0
    if wanted.size < 2:
        raise ValueError("what is searched for has at least two bytes")
    found = []
    while source.size - at >= wanted.size:
        with nogil:
            at = next_match(source.at, source.size, at, wanted.at, wanted.size)
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
