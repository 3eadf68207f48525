# From levels to validity and offsets. Included by `_native.pyx`.

cdef int check_levels(const uint8_t[::1] definition, const uint8_t[::1] repetition) except -1:
    if definition.shape[0] != repetition.shape[0]:
        raise ValueError("there must be as many repetition levels as definition levels")
    return 0


cdef Py_ssize_t count_slots(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n, uint8_t depth, uint8_t level
) noexcept nogil:
    cdef Py_ssize_t count = 0, i
    for i in range(n):
        count += (repetition[i] <= depth) & (definition[i] >= level)
    return count


def slot_validity(
    const uint8_t[::1] definition not None, const uint8_t[::1] repetition not None,
    uint8_t depth, uint8_t slot_level, uint8_t level
):
    """See `reference.slot_validity`."""
    check_levels(definition, repetition)
    cdef Py_ssize_t n = definition.shape[0], slot = 0, i, slots
    if n == 0:
        return np.empty(0, np.bool_)
    cdef const uint8_t* definitions = &definition[0]
    cdef const uint8_t* repetitions = &repetition[0]
    with nogil:
        slots = count_slots(definitions, repetitions, n, depth, slot_level)
    # One more, for entries that are no slots are written where the next slot will be.
    out = empty((slots + 1,), np.uint8)
    cdef uint8_t[::1] flags = out
    cdef uint8_t* valid = &flags[0]
    with nogil:
        for i in range(n):
            valid[slot] = definitions[i] >= level
            slot += (repetitions[i] <= depth) & (definitions[i] >= slot_level)
    return out[:slots].view(np.bool_)


def list_offsets(
    const uint8_t[::1] definition not None, const uint8_t[::1] repetition not None,
    uint8_t depth, uint8_t slot_level, uint8_t level
):
    """See `reference.list_offsets`."""
    check_levels(definition, repetition)
    cdef Py_ssize_t n = definition.shape[0], slots = 0
    cdef int32_t[::1] small
    cdef int64_t[::1] large
    if n == 0:
        return np.zeros(1, np.int32)
    with nogil:
        slots = count_slots(&definition[0], &repetition[0], n, depth, slot_level)
    if n < (<Py_ssize_t> 1) << 31:
        out = empty((slots + 1,), np.int32)
        small = out
        fill_offsets(&definition[0], &repetition[0], n, depth, slot_level, level, &small[0])
    else:
        out = empty((slots + 1,), np.int64)
        large = out
        fill_offsets(&definition[0], &repetition[0], n, depth, slot_level, level, &large[0])
    return out


cdef int fill_offsets(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n,
    uint8_t depth, uint8_t slot_level, uint8_t level, Offset* out
) except -1:
    cdef Py_ssize_t slot = 0, i
    cdef Offset count = 0
    cdef int below = depth + 1
    with nogil:
        for i in range(n):
            out[slot] = count
            slot += (repetition[i] <= depth) & (definition[i] >= slot_level)
            count += (repetition[i] <= below) & (definition[i] >= level)
        out[slot] = count
    return 0


def row_entries(const uint8_t[::1] repetition not None, const int64_t[::1] rows not None):
    """See `reference.row_entries`."""
    cdef Py_ssize_t n = repetition.shape[0], begin = 0, end, at, begun = 0, count, i
    cdef int64_t left
    cdef int64_t[::1] entries
    cdef bint fall = False
    out = empty((rows.shape[0],), np.int64)
    entries = out
    with nogil:
        for i in range(rows.shape[0]):
            fall |= rows[i] < (rows[i - 1] if i else 0)
        for i in range(0 if fall else rows.shape[0]):
            while begin < n:  # as many rows at once as may begin before the one that is wanted
                end = min(begin + 255, n)
                count = count_level(&repetition[begin], end - begin, 0)
                if begun + count > rows[i]:
                    break
                begun += count
                begin = end
            left = rows[i] - begun
            at = begin
            while at < n and (repetition[at] or left):
                left -= repetition[at] == 0
                at += 1
            entries[i] = at
    if fall:
        raise ValueError("the rows are not in order")
    return out


def level_counts(const uint8_t[::1] levels not None, int maximum):
    """See `reference.level_counts`."""
    cdef Py_ssize_t n = levels.shape[0]
    cdef int level
    counts = []
    for level in range(maximum + 1):
        counts.append(count_level(&levels[0], n, <uint8_t> level) if level <= 255 else 0)
    return tuple(counts)


cdef Py_ssize_t count_level(const uint8_t* levels, Py_ssize_t n, uint8_t level) noexcept nogil:
    cdef Py_ssize_t total = 0, begin, end, i
    cdef uint8_t count
    for begin in range(0, n, 255):  # as far as a byte can count, of which a vector has many
        end = min(begin + 255, n)
        count = 0
        for i in range(begin, end):
            count += levels[i] == level
        total += count
    return total
