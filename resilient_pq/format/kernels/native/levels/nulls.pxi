# Room for nulls among values. Included by `_native.pyx`.

def spread(values, present):
    """See `reference.spread`."""
    cdef Array flags = readable(present), rows
    cdef bint numbers = values.ndim == 1
    rows = bits_of(values, True) if numbers else writable(values, 1, 2)
    if rows.count != flags.count:
        raise ValueError("there must be one flag per value")
    with nogil:
        spread_slots(rows.at, rows.width * rows.columns, numbers, flags.at, rows.count,
                     count_present(flags.at, rows.count))


cdef inline Py_ssize_t count_present(const uint8_t* present, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t count = 0, i
    for i in range(n):
        count += present[i] != 0
    return count


cdef void spread_slots(
    uint8_t* slots, Py_ssize_t width, bint numbers, const uint8_t* flags, Py_ssize_t n, Py_ssize_t num_present
) noexcept nogil:
    """Makes room for nulls among values that stand at the front of their slots."""
    if not numbers:
        spread_rows(slots, width, flags, n, num_present)
    elif width == 1:
        spread_items(slots, flags, n, num_present)
    elif width == 2:
        spread_items(<uint16_t*> slots, flags, n, num_present)
    elif width == 4:
        spread_items(<uint32_t*> slots, flags, n, num_present)
    else:
        spread_items(<uint64_t*> slots, flags, n, num_present)


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


cdef void spread_rows(
    uint8_t* rows, Py_ssize_t width, const uint8_t* present, Py_ssize_t n, Py_ssize_t num_present
) noexcept nogil:
    cdef Py_ssize_t i = n - 1, source = num_present - 1
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
