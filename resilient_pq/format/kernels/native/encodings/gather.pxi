# Dictionaries looked up in. Included by `_native.pyx`.

def gather(dictionary, indices, out):
    """See `reference.gather`."""
    cdef Array chosen = readable(indices, 4), source, to
    cdef const int32_t* numbers = <const int32_t*> chosen.at
    cdef bint rows = dictionary.ndim == 2
    if out.dtype != dictionary.dtype or out.shape != (chosen.count, *dictionary.shape[1:]):
        raise ValueError("the output must have the type of the dictionary and the length of the indices")
    if rows:
        source, to = readable(dictionary, 1, 2), writable(out, 1, 2)
    else:
        source, to = bits_of(dictionary), bits_of(out, True)
    with nogil:
        if rows:
            check_indices(numbers, to.count, source.count)
            copy_rows(to.at, source.at, to.columns, numbers, 1, to.count)
        elif to.width == 1:
            gather_numbers(source.at, source.count, numbers, to.count, to.at)
        elif to.width == 2:
            gather_numbers(<const uint16_t*> source.at, source.count, numbers, to.count, <uint16_t*> to.at)
        elif to.width == 4:
            gather_numbers(<const uint32_t*> source.at, source.count, numbers, to.count, <uint32_t*> to.at)
        else:
            gather_numbers(<const uint64_t*> source.at, source.count, numbers, to.count, <uint64_t*> to.at)


cdef int check_indices(const int32_t* indices, Py_ssize_t n, Py_ssize_t length) except -1 nogil:
    """Refuses indices that are not 0 to `length` - 1."""
    cdef Py_ssize_t i
    cdef uint32_t highest = 0
    for i in range(n):
        highest = max(highest, <uint32_t> indices[i])  # a negative one becomes the highest
    if n and <int64_t> highest >= length:
        return malformed(b"an index lies outside of its dictionary")
    return 0


cdef int gather_numbers(
    const Bits* source, Py_ssize_t length, const int32_t* chosen, Py_ssize_t n, Bits* target
) except -1 nogil:
    cdef Py_ssize_t begin, end, i
    for begin in range(0, n, 1024):  # checked by the block, so that they are read from memory once
        end = min(begin + 1024, n)
        check_indices(chosen + begin, end - begin, length)
        for i in range(begin, end):
            target[i] = source[chosen[i]]
    return 0


def mark_used(indices, marks):
    """See `reference.mark_used`."""
    cdef Array source = readable(indices, 1 | 2 | 4), to = writable(marks)
    with nogil:
        if source.width == 1:
            mark(source.at, source.count, to.at, to.size)
        elif source.width == 2:
            mark(<const uint16_t*> source.at, source.count, to.at, to.size)
        else:
            mark(<const int32_t*> source.at, source.count, to.at, to.size)


cdef int mark(const Packed* indices, Py_ssize_t n, uint8_t* marks, Py_ssize_t size) except -1 nogil:
    cdef Py_ssize_t begin, end, i, next_look = 0
    cdef uint32_t highest
    cdef bint some_are_left = True
    for begin in range(0, n, 1024):  # checked by the block, as `gather_numbers` does
        end = min(begin + 1024, n)
        highest = 0
        for i in range(begin, end):
            highest = max(highest, <uint32_t> indices[i])  # a negative one becomes the highest
        if <int64_t> highest >= size:
            return malformed(b"an index lies outside of its dictionary")
        if begin >= next_look and some_are_left:  # seldom enough that it costs less than marking
            some_are_left = memchr(marks, 0, size) != NULL
            next_look = begin + size
        if some_are_left:
            for i in range(begin, end):
                marks[indices[i]] = 1
    return 0
