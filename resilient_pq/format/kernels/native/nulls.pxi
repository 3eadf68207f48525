# Room for nulls among values. Included by `_native.pyx`.

def spread(values not None, present not None):
    """See `reference.spread`."""
    cdef const uint8_t[::1] flags = present.view(np.uint8)
    cdef uint8_t[:, ::1] rows
    if len(values) != flags.shape[0]:
        raise ValueError("there must be one flag per value")
    if values.ndim == 2:
        rows = values
        with nogil:
            spread_rows(&rows[0, 0], rows.shape[1], &flags[0], flags.shape[0])
        return
    slots = bits_of(values)
    if slots.itemsize == 1:
        spread_numbers[uint8_t](slots, flags)
    elif slots.itemsize == 2:
        spread_numbers[uint16_t](slots, flags)
    elif slots.itemsize == 4:
        spread_numbers[uint32_t](slots, flags)
    else:
        spread_numbers[uint64_t](slots, flags)


cdef inline Py_ssize_t count_present(const uint8_t* present, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t count = 0, i
    for i in range(n):
        count += present[i] != 0
    return count


cdef int spread_numbers(Bits[::1] values, const uint8_t[::1] present) except -1:
    cdef Py_ssize_t n = present.shape[0]
    with nogil:
        spread_items(&values[0], &present[0], n, count_present(&present[0], n))
    return 0


cdef void spread_items(
    Bits* slots, const uint8_t* flags, Py_ssize_t n, Py_ssize_t num_present
) noexcept nogil:
    cdef Py_ssize_t i = n - 1, source = num_present - 1, lane
    cdef Bits here
    # From behind, so that a value is read before its slot is written, and without branches, which nulls
    # here and there would defeat: eight at a time while there are eight.
    while 8 <= source < i:
        for lane in range(8):
            here = flags[i - lane] != 0
            slots[i - lane] = slots[source] & <Bits> (0 - here)
            source -= here
        i -= 8
    while 0 <= source < i:
        here = flags[i] != 0
        slots[i] = slots[source] & <Bits> (0 - here)
        source -= here
        i -= 1
    if source < 0 <= i:
        memset(slots, 0, (i + 1) * sizeof(Bits))


cdef void spread_rows(uint8_t* rows, Py_ssize_t width, const uint8_t* present, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i = n - 1, source = count_present(present, n) - 1
    cdef uint64_t here
    cdef uint64_t[2] words
    if width == 0:
        return
    while width == VIEW_BYTES and 0 <= source < i:  # without branches or calls
        here = present[i] != 0
        memcpy(words, rows + VIEW_BYTES * source, VIEW_BYTES)
        words[0] &= 0 - here
        words[1] &= 0 - here
        memcpy(rows + VIEW_BYTES * i, words, VIEW_BYTES)
        source -= <Py_ssize_t> here
        i -= 1
    while source < i:
        if present[i]:
            copy_row(rows + i * width, rows + source * width, width)
            source -= 1
        else:
            memset(rows + i * width, 0, width)
        i -= 1
