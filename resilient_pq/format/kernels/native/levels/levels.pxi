# Levels: from them to validity and offsets, and back to dense values. Included by `_native.pyx` behind `nulls.pxi`.

cdef int check_levels(Array definition, Array repetition) except -1:
    if definition.count != repetition.count:
        raise ValueError("there must be as many repetition levels as definition levels")
    return 0


cdef Py_ssize_t count_slots(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n, uint8_t depth, uint8_t level
) noexcept nogil:
    cdef Py_ssize_t count = 0, i
    for i in range(n):
        count += (repetition[i] <= depth) & (definition[i] >= level)
    return count


def slot_validity(definition, repetition, uint8_t depth, uint8_t slot_level, uint8_t level):
    """See `reference.slot_validity`."""
    cdef Array definitions = readable(definition), repetitions = readable(repetition), to
    cdef Py_ssize_t n = definitions.count, slots
    check_levels(definitions, repetitions)
    with nogil:
        slots = count_slots(definitions.at, repetitions.at, n, depth, slot_level)
    # One more, for entries that are no slots are written where the next slot will be.
    out = empty((slots + 1,), np.uint8)
    to = writable(out)
    with nogil:
        fill_validity(definitions.at, repetitions.at, n, depth, slot_level, level, to.at)
    return out[:slots].view(np.bool_)


cdef void fill_validity(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n, uint8_t depth, uint8_t slot_level,
    uint8_t level, uint8_t* valid
) noexcept nogil:
    cdef Py_ssize_t slot = 0, i
    for i in range(n):
        valid[slot] = definition[i] >= level
        slot += (repetition[i] <= depth) & (definition[i] >= slot_level)


def list_offsets(definition, repetition, uint8_t depth, uint8_t slot_level, uint8_t level):
    """See `reference.list_offsets`."""
    cdef Array definitions = readable(definition), repetitions = readable(repetition), to
    cdef Py_ssize_t n = definitions.count, slots
    check_levels(definitions, repetitions)
    with nogil:
        slots = count_slots(definitions.at, repetitions.at, n, depth, slot_level)
    out = empty((slots + 1,), np.int32 if n <= LARGEST_LENGTH else np.int64)
    to = writable(out, 4 | 8)
    with nogil:
        if to.width == 4:
            fill_offsets(definitions.at, repetitions.at, n, depth, slot_level, level, <int32_t*> to.at)
        else:
            fill_offsets(definitions.at, repetitions.at, n, depth, slot_level, level, <int64_t*> to.at)
    return out


cdef void fill_offsets(
    const uint8_t* definition, const uint8_t* repetition, Py_ssize_t n, uint8_t depth, uint8_t slot_level,
    uint8_t level, Offset* out
) noexcept nogil:
    cdef Py_ssize_t slot = 0, i
    cdef Offset count = 0
    cdef int below = depth + 1
    for i in range(n):
        out[slot] = count
        slot += (repetition[i] <= depth) & (definition[i] >= slot_level)
        count += (repetition[i] <= below) & (definition[i] >= level)
    out[slot] = count


def row_entries(repetition, rows):
    """See `reference.row_entries`."""
    cdef Array levels = readable(repetition), wanted = readable(rows, 8), to
    cdef bint fall
    out = empty((wanted.count,), np.int64)
    to = writable(out, 8)
    with nogil:
        fall = not find_rows(levels.at, levels.count, <const int64_t*> wanted.at, wanted.count, <int64_t*> to.at)
    if fall:
        raise ValueError("the rows are not in order")
    return out


cdef bint find_rows(
    const uint8_t* repetition, Py_ssize_t n, const int64_t* rows, Py_ssize_t num_rows, int64_t* entries
) noexcept nogil:
    """The entries where rows begin; False where the rows are not in order."""
    cdef Py_ssize_t begin = 0, end, at, begun = 0, count, i
    cdef int64_t left
    for i in range(num_rows):
        if rows[i] < (rows[i - 1] if i else 0):
            return False
        while begin < n:  # as many rows at once as may begin before the one that is wanted
            end = min(begin + 255, n)
            count = count_level(repetition + begin, end - begin, 0)
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
    return True


def level_counts(levels, int maximum):
    """See `reference.level_counts`."""
    cdef Array source = readable(levels)
    cdef int level
    counts = []
    for level in range(maximum + 1):
        counts.append(count_level(source.at, source.count, <uint8_t> level) if level <= 255 else 0)
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


# Levels out of validity and lists, and dense values out of slots.

cdef Array of_entries(array, int width, Py_ssize_t n):
    """What each of n entries has; nothing where there is no array."""
    if array is None:
        return Array.__new__(Array)
    cdef Array found = readable(array, width)
    if found.count != n:
        raise ValueError("there must be one slot and one level per entry")
    return found


def shred_optional(definition, slots, valid, int level):
    """See `reference.shred_optional`."""
    cdef Array levels = writable(definition), numbers = of_entries(slots, 8, levels.count), flags
    flags = Array.__new__(Array) if valid is None else readable(valid)
    with nogil:
        define(levels.at, levels.count, <const int64_t*> numbers.at, flags.at, flags.count, level)


cdef int define(
    uint8_t* definition, Py_ssize_t n, const int64_t* slots, const uint8_t* valid, Py_ssize_t count, int level
) except -1 nogil:
    cdef Py_ssize_t i
    cdef int64_t slot
    for i in range(n):
        if definition[i] != level:
            continue
        if valid == NULL:
            definition[i] += 1
            continue
        slot = i if slots == NULL else slots[i]
        if slot < 0 or slot >= count:
            return no_slot()
        definition[i] += valid[slot] != 0
    return 0


cdef int no_slot() except -1 with gil:
    raise ValueError("an entry has a slot that is not there")


def shred_repeated(definition, repetition, slots, starts, lengths, int level, int depth):
    """See `reference.shred_repeated`."""
    cdef Array levels = readable(definition), outer = of_entries(repetition, 1, levels.count)
    cdef Array numbers = of_entries(slots, 8, levels.count)
    cdef Array begins = readable(starts, 8), sizes = readable(lengths, 8), to, to_repetition, to_slots
    cdef const int64_t* slot = <const int64_t*> numbers.at
    cdef const int64_t* size = <const int64_t*> sizes.at
    cdef Py_ssize_t n = levels.count, total
    if begins.count != sizes.count:
        raise ValueError("there must be one start per length")
    with nogil:
        total = count_entries(levels.at, n, slot, size, sizes.count, level)
    out = empty((total,), np.uint8), empty((total,), np.uint8), empty((total,), np.int64)
    to, to_repetition, to_slots = writable(out[0]), writable(out[1]), writable(out[2], 8)
    with nogil:
        repeat_entries(levels.at, outer.at, n, slot, <const int64_t*> begins.at, size, level, depth,
                       to.at, to_repetition.at, <int64_t*> to_slots.at, total)
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


def optional_in_order(definition, valid, int base, int level, int to):
    """See `reference.optional_in_order`."""
    cdef Array levels = writable(definition), flags = readable(valid)
    cdef Py_ssize_t risen
    with nogil:
        risen = define_in_order(levels.at, levels.count, flags.at, flags.count, base, level, to)
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


cdef Array slot_offsets(offsets):
    cdef Array found = readable(offsets, 4 | 8)
    if found.count == 0:
        raise ValueError("there must be one offset more than slots")
    return found


def entries_in_order(definition, offsets, int base, int level):
    """See `reference.entries_in_order`."""
    cdef Array levels = readable(definition), starts = slot_offsets(offsets)
    cdef Py_ssize_t total, slots = starts.count - 1
    with nogil:
        if starts.width == 4:
            total = count_in_order(levels.at, levels.count, <const int32_t*> starts.at, slots, base, level)
        else:
            total = count_in_order(levels.at, levels.count, <const int64_t*> starts.at, slots, base, level)
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


def lists_in_order(definition, repetition, offsets, int base, int to, int depth, new_definition, new_repetition):
    """See `reference.lists_in_order`."""
    cdef Array levels = readable(definition), outer = of_entries(repetition, 1, levels.count)
    cdef Array starts = slot_offsets(offsets), new = writable(new_definition), inner = writable(new_repetition)
    cdef Py_ssize_t slots = starts.count - 1
    if inner.count != new.count:
        raise ValueError("there must be as many repetition levels as definition levels")
    with nogil:
        if starts.width == 4:
            repeat_in_order(levels.at, outer.at, levels.count, <const int32_t*> starts.at, slots, base, to, depth,
                            new.at, inner.at, new.count)
        else:
            repeat_in_order(levels.at, outer.at, levels.count, <const int64_t*> starts.at, slots, base, to, depth,
                            new.at, inner.at, new.count)


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


def compact(values, present):
    """See `reference.compact`."""
    cdef Array flags = readable(present), source, to
    cdef bint rows = values.ndim == 2
    source = readable(values, 1, 2) if rows else bits_of(values)
    if source.count != flags.count:
        raise ValueError("there must be one flag per value")
    out = empty((count_present(flags.at, flags.count), *values.shape[1:]), values.dtype)
    to = writable(out, 1, 2) if rows else bits_of(out, True)
    with nogil:
        if rows:
            compact_rows(source.at, source.columns, flags.at, flags.count, to.at, to.count)
        elif to.width == 1:
            compact_numbers(source.at, flags.at, to.at, to.count)
        elif to.width == 2:
            compact_numbers(<const uint16_t*> source.at, flags.at, <uint16_t*> to.at, to.count)
        elif to.width == 4:
            compact_numbers(<const uint32_t*> source.at, flags.at, <uint32_t*> to.at, to.count)
        else:
            compact_numbers(<const uint64_t*> source.at, flags.at, <uint64_t*> to.at, to.count)
    return out


cdef void compact_numbers(const Bits* values, const uint8_t* present, Bits* out, Py_ssize_t wanted) noexcept nogil:
    cdef Py_ssize_t i = 0, filled = 0
    # Without branches, which nulls here and there would defeat: one that is not wanted is written over.
    while filled < wanted:
        out[filled] = values[i]
        filled += present[i] != 0
        i += 1


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


def compact_offsets(offsets, present, out):
    """See `reference.compact_offsets`."""
    cdef Array flags = readable(present), starts = readable(offsets, 4 | 8), to = writable(out, 4 | 8)
    cdef bint dense
    if starts.count != flags.count + 1:
        raise ValueError("there must be one offset more than flags")
    if to.width != starts.width or to.count != count_present(flags.at, flags.count) + 1:
        raise ValueError("there must be room for the offsets of what is present")
    with nogil:
        if starts.width == 4:
            dense = offsets_of_present(<const int32_t*> starts.at, flags.at, flags.count, <int32_t*> to.at, to.count)
        else:
            dense = offsets_of_present(<const int64_t*> starts.at, flags.at, flags.count, <int64_t*> to.at, to.count)
    return dense


cdef bint offsets_of_present(
    const Offset* offsets, const uint8_t* present, Py_ssize_t n, Offset* out, Py_ssize_t wanted
) noexcept nogil:
    """Fills `out`; False where a byte string that is not present has bytes."""
    cdef Py_ssize_t i, filled = 0, last = wanted - 1
    cdef Offset missing = 0
    out[0] = offsets[0]
    for i in range(n):
        # What stands behind the last one is written over, and then right again: it has no bytes.
        filled += present[i] != 0
        out[min(filled, last)] = offsets[i + 1]
        missing |= (offsets[i + 1] - offsets[i]) * (present[i] == 0)
    return missing == 0
