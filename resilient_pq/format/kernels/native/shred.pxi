# Levels out of validity and lists, and dense values out of slots. Included by `_native.pyx`.

def shred_optional(uint8_t[::1] definition not None, slots, valid, int level):
    """See `reference.shred_optional`."""
    cdef const int64_t[::1] numbers
    cdef const uint8_t[::1] flags
    cdef const int64_t* slot = NULL
    cdef const uint8_t* flag = NULL
    cdef Py_ssize_t n = definition.shape[0], count = n
    if slots is not None:
        numbers = slots
        if numbers.shape[0] != n:
            raise ValueError("there must be one slot per entry")
        slot = &numbers[0]
    if valid is not None:
        flags = valid.view(np.uint8)
        count = flags.shape[0]
        flag = &flags[0]
    with nogil:
        define(&definition[0], n, slot, flag, count, flag != NULL, level)


cdef int define(
    uint8_t* definition, Py_ssize_t n, const int64_t* slots, const uint8_t* valid, Py_ssize_t count,
    bint some_are_missing, int level
) except -1 nogil:
    cdef Py_ssize_t i
    cdef int64_t slot
    if not some_are_missing:
        for i in range(n):
            definition[i] += definition[i] == level
        return 0
    for i in range(n):
        if definition[i] == level:
            slot = i if slots == NULL else slots[i]
            if slot < 0 or slot >= count:
                return no_slot()
            definition[i] += valid[slot] != 0
    return 0


cdef int no_slot() except -1 with gil:
    raise ValueError("an entry has a slot that is not there")


def shred_repeated(
    const uint8_t[::1] definition not None, repetition, slots, const int64_t[::1] starts not None,
    const int64_t[::1] lengths not None, int level, int depth
):
    """See `reference.shred_repeated`."""
    cdef const int64_t[::1] numbers
    cdef const uint8_t[::1] outer
    cdef const int64_t* slot = NULL
    cdef const uint8_t* levels = NULL
    cdef Py_ssize_t n = definition.shape[0], total
    if starts.shape[0] != lengths.shape[0]:
        raise ValueError("there must be one start per length")
    if slots is not None:
        numbers = slots
        if numbers.shape[0] != n:
            raise ValueError("there must be one slot per entry")
        slot = &numbers[0]
    if repetition is not None:
        outer = repetition
        if outer.shape[0] != n:
            raise ValueError("there must be one repetition level per entry")
        levels = &outer[0]
    with nogil:
        total = count_entries(&definition[0], n, slot, &lengths[0], lengths.shape[0], level)
    out = empty((total,), np.uint8), empty((total,), np.uint8), empty((total,), np.int64)
    cdef uint8_t[::1] new_definition = out[0]
    cdef uint8_t[::1] new_repetition = out[1]
    cdef int64_t[::1] new_slots = out[2]
    with nogil:
        repeat_entries(
            &definition[0], levels, n, slot, &starts[0], &lengths[0], level, depth,
            &new_definition[0], &new_repetition[0], &new_slots[0], total,
        )
    return out


cdef Py_ssize_t count_entries(
    const uint8_t* definition, Py_ssize_t n, const int64_t* slots, const int64_t* lengths, Py_ssize_t count,
    int level
) except -1 nogil:
    """How many entries there will be; every slot that is looked at is there, and no length is negative."""
    cdef Py_ssize_t total = 0, i
    cdef int64_t slot
    for i in range(n):
        if definition[i] != level:
            total += 1
            continue
        slot = i if slots == NULL else slots[i]
        if slot < 0 or slot >= count:
            return no_slot()
        if lengths[slot] < 0 or lengths[slot] > PTRDIFF_MAX - total - 1:
            return negative_length()
        total += max(lengths[slot], <int64_t> 1)
    return total


cdef int negative_length() except -1 with gil:
    raise ValueError("a list has a negative length")


cdef void repeat_entries(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n, const int64_t* slots,
    const int64_t* starts, const int64_t* lengths, int level, int depth,
    uint8_t* new_definition, uint8_t* new_repetition, int64_t* new_slots, Py_ssize_t total
) noexcept nogil:
    cdef Py_ssize_t at = 0, i, k, count
    cdef int64_t slot, first
    for i in range(n):
        if at >= total:
            return  # somebody changed what was counted
        count = 0
        if definition[i] == level:
            slot = i if slots == NULL else slots[i]
            count = min(lengths[slot], total - at)
            first = starts[slot]
        new_repetition[at] = 0 if repetition == NULL else repetition[i]
        if count <= 0:
            new_definition[at] = definition[i]
            new_slots[at] = 0
            at += 1
            continue
        memset(new_definition + at, level + 1, count)
        memset(new_repetition + at + 1, depth, count - 1)
        for k in range(count):
            new_slots[at + k] = first + k
        at += count


def optional_in_order(
    uint8_t[::1] definition not None, valid not None, int base, int level, int to
):
    """See `reference.optional_in_order`."""
    cdef const uint8_t[::1] flags = valid.view(np.uint8)
    cdef Py_ssize_t risen
    with nogil:
        risen = define_in_order(&definition[0], definition.shape[0], &flags[0], flags.shape[0], base, level, to)
    return risen


cdef Py_ssize_t define_in_order(
    uint8_t* definition, Py_ssize_t n, const uint8_t* valid, Py_ssize_t count, int base, int level, int to
) except -1 nogil:
    cdef Py_ssize_t i = 0, slot = 0, risen = 0
    cdef int defined, rises
    # Without branches, which nulls here and there would defeat.
    while i < n and slot < count:
        defined = definition[i]
        rises = (defined == level) & (valid[slot] != 0)
        definition[i] = <uint8_t> (defined + rises * (to - level))
        risen += rises
        slot += defined >= base
        i += 1
    while i < n:
        slot += definition[i] >= base
        i += 1
    if slot != count:
        return no_slot()
    return risen


def entries_in_order(const uint8_t[::1] definition not None, offsets not None, int base, int level):
    """See `reference.entries_in_order`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef Py_ssize_t total
    if len(offsets) == 0:
        raise ValueError("there must be one offset more than slots")
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            total = count_in_order(&definition[0], definition.shape[0], &narrow[0], narrow.shape[0] - 1, base, level)
    else:
        wide = offsets
        with nogil:
            total = count_in_order(&definition[0], definition.shape[0], &wide[0], wide.shape[0] - 1, base, level)
    return None if total == -2 else total


cdef Py_ssize_t count_in_order(
    const uint8_t* definition, Py_ssize_t n, const Offset* offsets, Py_ssize_t count, int base, int level
) except -1 nogil:
    """How many entries there will be; -2 where elements lie below what is null."""
    cdef Py_ssize_t total = 0, slot = 0, i
    cdef int64_t length
    cdef bint hidden = False
    for i in range(n):
        length = 0
        if definition[i] >= base:
            if slot >= count:
                return no_slot()
            length = <int64_t> offsets[slot + 1] - offsets[slot]
            if length < 0 or length > PTRDIFF_MAX - total - 1:
                return negative_length()
            hidden |= (length != 0) & (definition[i] != level)
            slot += 1
        total += max(length, <int64_t> 1)
    if slot != count:
        return no_slot()
    return -2 if hidden else total


def lists_in_order(
    const uint8_t[::1] definition not None, repetition, offsets not None, int base, int to, int depth,
    uint8_t[::1] new_definition not None, uint8_t[::1] new_repetition not None,
):
    """See `reference.lists_in_order`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef const uint8_t[::1] outer
    cdef const uint8_t* levels = NULL
    cdef Py_ssize_t n = definition.shape[0], total = new_definition.shape[0]
    if new_repetition.shape[0] != total:
        raise ValueError("there must be as many repetition levels as definition levels")
    if repetition is not None:
        outer = repetition
        if outer.shape[0] != n:
            raise ValueError("there must be one repetition level per entry")
        levels = &outer[0]
    if len(offsets) == 0:
        raise ValueError("there must be one offset more than slots")
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            repeat_in_order(&definition[0], levels, n, &narrow[0], narrow.shape[0] - 1, base, to, depth,
                            &new_definition[0], &new_repetition[0], total)
    else:
        wide = offsets
        with nogil:
            repeat_in_order(&definition[0], levels, n, &wide[0], wide.shape[0] - 1, base, to, depth,
                            &new_definition[0], &new_repetition[0], total)


cdef int repeat_in_order(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n, const Offset* offsets, Py_ssize_t count,
    int base, int to, int depth, uint8_t* new_definition, uint8_t* new_repetition, Py_ssize_t total
) except -1 nogil:
    cdef Py_ssize_t at = 0, slot = 0, i
    cdef int64_t length
    if total:
        memset(new_definition, to, total)
        memset(new_repetition, depth, total)
    for i in range(n):
        length = 0
        if definition[i] >= base:
            if slot >= count:
                return no_slot()
            length = <int64_t> offsets[slot + 1] - offsets[slot]
            slot += 1
        if at >= total or length < 0 or length > total - at:
            return no_room()
        new_repetition[at] = 0 if repetition == NULL else repetition[i]
        new_definition[at] = <uint8_t> to if length else definition[i]
        at += max(length, <int64_t> 1)
    if slot != count:
        return no_slot()
    return no_room() if at != total else 0


cdef int no_room() except -1 with gil:
    raise ValueError("the levels do not have the room that the entries take")


def compact(values not None, present not None):
    """See `reference.compact`."""
    cdef const uint8_t[::1] flags = present.view(np.uint8)
    cdef const uint8_t[:, ::1] rows
    cdef uint8_t[:, ::1] to
    if len(values) != flags.shape[0]:
        raise ValueError("there must be one flag per value")
    out = empty((count_present(&flags[0], flags.shape[0]), *values.shape[1:]), values.dtype)
    if values.ndim == 2:
        rows, to = values, out
        with nogil:
            compact_rows(&rows[0, 0], rows.shape[1], &flags[0], flags.shape[0], &to[0, 0], to.shape[0])
        return out
    source = bits_of(values)
    if source.itemsize == 1:
        compact_numbers[uint8_t](source, flags, bits_of(out))
    elif source.itemsize == 2:
        compact_numbers[uint16_t](source, flags, bits_of(out))
    elif source.itemsize == 4:
        compact_numbers[uint32_t](source, flags, bits_of(out))
    else:
        compact_numbers[uint64_t](source, flags, bits_of(out))
    return out


cdef int compact_numbers(const Bits[::1] values, const uint8_t[::1] present, Bits[::1] out) except -1:
    cdef Py_ssize_t i = 0, filled = 0, wanted = out.shape[0]
    with nogil:
        # Without branches, which nulls here and there would defeat: one that is not wanted is written over.
        while filled < wanted:
            out[filled] = values[i]
            filled += present[i] != 0
            i += 1
    return 0


cdef void compact_rows(
    const uint8_t* rows, Py_ssize_t width, const uint8_t* present, Py_ssize_t n, uint8_t* out, Py_ssize_t wanted
) noexcept nogil:
    cdef Py_ssize_t i, filled = 0
    if width == 0:
        return
    for i in range(n):
        if present[i] and filled < wanted:
            memcpy(out + filled * width, rows + i * width, width)
            filled += 1


def compact_offsets(offsets not None, present not None, out not None):
    """See `reference.compact_offsets`."""
    cdef const uint8_t[::1] flags = present.view(np.uint8)
    if len(offsets) != flags.shape[0] + 1:
        raise ValueError("there must be one offset more than flags")
    if len(out) != count_present(&flags[0], flags.shape[0]) + 1:
        raise ValueError("there must be room for the offsets of what is present")
    if offsets.itemsize == 4:
        return bool(offsets_of_present[int32_t](offsets, flags, out))
    return bool(offsets_of_present[int64_t](offsets, flags, out))


cdef int offsets_of_present(const Offset[::1] offsets, const uint8_t[::1] present, Offset[::1] out) except -1:
    """Fills `out`; 0 where a byte string that is not present has bytes."""
    cdef Py_ssize_t i, filled = 0, last = out.shape[0] - 1
    cdef Offset missing = 0
    with nogil:
        out[0] = offsets[0]
        for i in range(present.shape[0]):
            # What stands behind the last one is written over, and then right again: it has no bytes.
            filled += present[i] != 0
            out[min(filled, last)] = offsets[i + 1]
            missing |= (offsets[i + 1] - offsets[i]) * (present[i] == 0)
    return missing == 0
