# Dictionaries of numbers that lie close together. Included by `_native.pyx` behind `dictionary.pxi`.

cdef enum:
    MOST_PLACES = 1 << 20  # that a table may have, each of 4 bytes
    PLACES_A_VALUE = 2  # at most, as all are cleared before
    FIRST_LOOK = 1024  # values that most columns show by that they are too far apart


cdef class Places:
    """What number each value has, by its distance from the lowest: quicker than a hash table, and often smaller."""

    cdef Array memory
    cdef int32_t* numbers  # from 1; 0 where there is no such value so far
    cdef uint64_t lowest, count

    def __cinit__(self, uint64_t lowest, uint64_t count):
        self.memory = writable(empty((<Py_ssize_t> count,), np.int32), 4)
        self.numbers = <int32_t*> self.memory.at
        memset(self.numbers, 0, self.memory.size)
        self.lowest = lowest
        self.count = count


cdef object places_for(Array integers):
    """Places for integers of 4 or 8 bytes; None where they are too far apart."""
    if integers.count == 0:
        return None
    if integers.width == 4:
        return places_between(<const int32_t*> integers.at, integers.count)
    return places_between(<const int64_t*> integers.at, integers.count)


cdef object places_between(const Offset* values, Py_ssize_t n):
    cdef Offset low = values[0], high = values[0]
    cdef uint64_t most = min(MOST_PLACES, PLACES_A_VALUE * n)
    with nogil:
        widen_to(values, min(n, <Py_ssize_t> FIRST_LOOK), &low, &high)
        if <uint64_t> high - <uint64_t> low < most:
            widen_to(values, n, &low, &high)
    if <uint64_t> high - <uint64_t> low >= most:
        return None
    return Places(<uint64_t> low, <uint64_t> high - <uint64_t> low + 1)


cdef inline Py_ssize_t number_by_place(
    Numbers numbers, Places places, const Word* values, Py_ssize_t done, Py_ssize_t n, Py_ssize_t most,
    int32_t* found
) except -1 nogil:
    """Numbers values like `number_block`."""
    cdef int32_t* known = places.numbers
    cdef Word lowest = <Word> places.lowest, at
    cdef uint64_t count = places.count
    cdef int32_t number
    cdef Py_ssize_t i
    for i in range(done, n):
        at = <Word> (values[i] - lowest)
        if at >= count:  # whoever owns the values has changed them since they were looked at
            return malformed(b"a value has changed while a dictionary was built of it")
        number = known[at]
        if number == 0:
            if numbers.count >= most:
                return i
            numbers.add(i)
            if numbers.count == numbers.room:
                numbers.make_room()
            number = known[at] = <int32_t> numbers.count
        found[i - done] = number - 1
    return n
