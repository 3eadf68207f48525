# Runs of data pages: levels, and values of fixed width. Included by `_native.pyx` behind `rle.pxi` and `nulls.pxi`.

cdef enum:
    PAGE_PARTS = 5
    SPAN_PARTS = 4
    INDEX_BLOCK = 1024

cdef struct Levels:
    # What of the levels of a chunk is the same for all of its pages.
    int max_definition
    int max_repetition
    int slot_level
    uint8_t* definition  # may be NULL
    uint8_t* repetition  # may be NULL
    Py_ssize_t num_entries  # of room in them
    uint8_t* present
    Py_ssize_t num_flags  # of room in it
    Py_ssize_t flagged


def page_levels(buffer, pages, maxima, definition, repetition, present, Py_ssize_t flagged, Py_ssize_t slot):
    """See `reference.page_levels`."""
    cdef Array source = readable(buffer), parts = readable(pages, 8, 2), flags = writable(present), room, spans
    cdef Levels levels
    levels.max_definition, levels.max_repetition, levels.slot_level = maxima
    if parts.columns != PAGE_PARTS or not 0 <= flagged <= slot:
        raise ValueError("pages are described by five numbers each, and flags are set from the front")
    levels.definition = levels.repetition = NULL
    levels.num_entries = sys.maxsize
    if definition is not None:
        room = writable(definition)
        levels.definition = room.at
        levels.num_entries = room.count
    if levels.max_repetition:
        room = writable(repetition)
        levels.repetition = room.at
        levels.num_entries = min(levels.num_entries, room.count)
    levels.present = flags.at
    levels.num_flags = flags.count
    levels.flagged = flagged
    array = np.empty((parts.count, SPAN_PARTS), np.int64)
    spans = writable(array, 8, 2)
    with nogil:
        slot = read_levels_of_pages(source.at, source.size, <const int64_t*> parts.at, parts.count, &levels, slot,
                                    <int64_t*> spans.at)
    return array, levels.flagged, slot


cdef int misplaced(const char* message) except -1 with gil:
    raise ValueError(message.decode("ascii"))


cdef Py_ssize_t read_levels_of_pages(
    const uint8_t* data, Py_ssize_t size, const int64_t* pages, Py_ssize_t n, Levels* levels, Py_ssize_t slot,
    int64_t* spans
) except -1 nogil:
    """Fills the spans of pages, and returns the slot behind the last."""
    cdef Py_ssize_t entry = 0, start, end, count, i
    for i in range(n):
        start, end, count = pages[0], pages[1], pages[2]
        if not 0 <= start <= end <= size or count < 0:
            return misplaced(b"a page lies outside of its buffer")
        if levels.max_repetition or levels.definition != NULL:
            if count > levels.num_entries - entry:
                return misplaced(b"there is not enough room for the levels of the pages")
        if levels.max_definition and count > levels.num_flags - slot:
            return misplaced(b"there is not enough room for the levels of the pages")
        if levels.max_repetition:
            find_levels(data, &start, end, pages[3], &spans[1])
            decode_levels(data + start, spans[1], levels.max_repetition, levels.repetition + entry, count)
            start += spans[1]
        spans[2] = spans[3] = count
        if levels.max_definition:
            find_levels(data, &start, end, pages[4], &spans[1])
            read_definition_levels(data + start, spans[1], count, levels, entry, slot, &spans[2])
            start += spans[1]
        spans[0] = start
        spans[1] = end
        slot += spans[2]
        entry += count
        pages += PAGE_PARTS
        spans += SPAN_PARTS
    return slot


cdef inline int find_levels(
    const uint8_t* data, Py_ssize_t* start, Py_ssize_t end, int64_t known, int64_t* num_bytes
) except -1 nogil:
    """Finds how many bytes levels have, and moves `start` to the first."""
    if known < 0:
        if end - start[0] < 4:
            return malformed(b"a page ends before the length of its levels")
        known = load32(data + start[0])
        start[0] += 4
    if known > end - start[0]:
        return malformed(b"levels go beyond their page")
    num_bytes[0] = known
    return 0


cdef inline int bit_width_of(int maximum) noexcept nogil:
    cdef int width = 0
    while maximum >> width:
        width += 1
    return width


cdef int decode_levels(
    const uint8_t* data, Py_ssize_t size, int maximum, uint8_t* out, Py_ssize_t n
) except -1 nogil:
    cdef uint8_t highest = 0
    cdef Py_ssize_t i
    decode_runs(data, size, bit_width_of(maximum), out, n)
    for i in range(n):
        highest = out[i] if out[i] > highest else highest
    if highest > maximum:
        return malformed(b"a level is greater than it may be")
    return 0


cdef bint all_at_maximum(const uint8_t* data, Py_ssize_t size, int maximum, Py_ssize_t n) noexcept nogil:
    """Whether levels begin with a run that says of all that they are the greatest."""
    cdef Py_ssize_t position = 0
    cdef uint64_t header
    if not read_varint(data, size, &position, 32, &header) or header & 1 or <Py_ssize_t> (header >> 1) < n:
        return False
    return position < size and data[position] == maximum


cdef int read_definition_levels(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t n, Levels* levels, Py_ssize_t entry, Py_ssize_t slot,
    int64_t* counts
) except -1 nogil:
    """Reads a page's definition levels, sets its flags where there are nulls, and counts slots and values."""
    cdef uint8_t* flags = levels.present + slot
    cdef uint8_t* own
    cdef Py_ssize_t num_slots = n, i
    cdef int maximum = levels.max_definition
    if n == 0 or all_at_maximum(data, size, maximum, n):
        if n and levels.definition != NULL:
            memset(levels.definition + entry, maximum, n)
        return 0
    # Without room of their own the levels stand where the flags come to stand, which there are no more of.
    own = levels.definition + entry if levels.definition != NULL else flags
    decode_levels(data, size, maximum, own, n)
    if levels.slot_level:
        num_slots = slot_flags(own, n, levels.slot_level, maximum, flags)
    elif maximum > 1 or own != flags:
        for i in range(n):
            flags[i] = own[i] == maximum
    counts[0] = num_slots
    counts[1] = count_present(flags, num_slots)
    if counts[1] < num_slots:
        memset(levels.present + levels.flagged, 1, slot - levels.flagged)
        levels.flagged = slot + num_slots
    return 0


cdef Py_ssize_t slot_flags(
    const uint8_t* definition, Py_ssize_t n, int slot_level, int maximum, uint8_t* flags
) noexcept nogil:
    """The flags of the entries that take a slot, and how many these are."""
    cdef Py_ssize_t slot = 0, i
    cdef uint8_t level
    for i in range(n):
        level = definition[i]  # may stand where the flag goes
        flags[slot] = level == maximum
        slot += level >= slot_level
    return slot


cdef Array spans_of(spans, Array buffer, Py_ssize_t slot, Py_ssize_t num_slots, Array flags):
    """Where values of pages lie: within their buffer, as their slots do in the chunk's."""
    cdef Array found = readable(spans, 8, 2)
    cdef const int64_t* span = <const int64_t*> found.at
    cdef Py_ssize_t i
    if found.columns != SPAN_PARTS or slot < 0:
        raise ValueError("the values of a page lie outside of their array")
    for i in range(found.count):
        if not 0 <= span[0] <= span[1] <= buffer.size or not 0 <= span[3] <= span[2]:
            raise ValueError("the values of a page lie outside of their array")
        if span[2] > num_slots - slot or (span[3] < span[2] and span[2] > flags.count - slot):
            raise ValueError("the values of a page lie outside of their array")
        slot += span[2]
        span += SPAN_PARTS
    return found


cdef int spread_page(
    uint8_t* slots, Py_ssize_t width, bint numbers, const uint8_t* flags, const int64_t* span
) except -1 nogil:
    """Makes room for the nulls of a page whose values stand at the front of its slots."""
    if span[3] == span[2]:
        return 0
    if count_present(flags, span[2]) != span[3]:
        return misplaced(b"a page has another number of values than flags")
    spread_slots(slots, width, numbers, flags, span[2], span[3])
    return 0


cdef class Slots:
    """The slots of a chunk as bytes."""

    cdef Array bytes
    cdef Py_ssize_t width, count
    cdef bint numbers

    def __init__(self, array, bint to_write):
        self.numbers = array.ndim == 1
        self.width = array.itemsize * (1 if self.numbers else array.shape[1])
        if array.ndim > 2 or (not self.numbers and array.dtype != np.uint8) or (
            self.numbers and self.width not in (1, 2, 4, 8)
        ):
            raise ValueError("values must be one-dimensional with 1, 2, 4 or 8 bytes each, or rows of uint8")
        if not array.flags.c_contiguous:
            raise ValueError("an array must be contiguous")
        self.count = len(array)
        memory = array.reshape(-1).view(np.uint8)
        self.bytes = writable(memory) if to_write else readable(memory)


def plain_pages(buffer, spans, present, Py_ssize_t slot, out):
    """See `reference.plain_pages`."""
    cdef Slots slots = Slots(out, True)
    cdef Array source = readable(buffer), flags = readable(present)
    cdef Array parts = spans_of(spans, source, slot, slots.count, flags)
    cdef bint bits = out.dtype == np.bool_
    with nogil:
        copy_plain(source.at, <const int64_t*> parts.at, parts.count, flags.at, slot, slots.bytes.at, slots.width,
                   slots.numbers, bits)


cdef int copy_plain(
    const uint8_t* data, const int64_t* spans, Py_ssize_t n, const uint8_t* flags, Py_ssize_t slot, uint8_t* values,
    Py_ssize_t width, bint numbers, bint bits
) except -1 nogil:
    cdef Py_ssize_t room, needed, i
    cdef uint8_t* place
    for i in range(n):
        place = values + slot * width
        room = spans[1] - spans[0]
        needed = (spans[3] + 7) // 8 if bits else 0
        if needed > room or (not bits and width and spans[3] > room // width):
            return malformed(b"a page has fewer bytes than its values need")
        if bits:
            unpack_run(data + spans[0], room, 1, place, spans[3], 1)
        elif spans[3] and width:
            memcpy(place, data + spans[0], spans[3] * width)
        spread_page(place, width, numbers, flags + slot, spans)
        slot += spans[2]
        spans += SPAN_PARTS
    return 0


def dictionary_pages(buffer, spans, present, Py_ssize_t slot, dictionary, out):
    """See `reference.dictionary_pages`."""
    if dictionary.dtype != out.dtype or dictionary.shape[1:] != out.shape[1:]:
        raise ValueError("a dictionary must have the type of the output")
    cdef Slots slots = Slots(out, True), known = Slots(dictionary, False)
    cdef Array source = readable(buffer), flags = readable(present)
    cdef Array parts = spans_of(spans, source, slot, slots.count, flags)
    with nogil:
        copy_chosen(source.at, <const int64_t*> parts.at, parts.count, flags.at, slot, known.bytes.at, known.count,
                    slots.bytes.at, slots.width, slots.numbers)


cdef int copy_chosen(
    const uint8_t* data, const int64_t* spans, Py_ssize_t n, const uint8_t* flags, Py_ssize_t slot,
    const uint8_t* known, Py_ssize_t num_known, uint8_t* values, Py_ssize_t width, bint numbers
) except -1 nogil:
    cdef Py_ssize_t i
    cdef uint8_t* place
    cdef Indices indices
    for i in range(n):
        place = values + slot * width
        if spans[3]:
            begin_indices(&indices, data + spans[0], spans[1] - spans[0], spans[3], num_known)
            if not numbers:
                choose_rows(&indices, known, width, place)
            elif width == 1:
                choose(&indices, known, place)
            elif width == 2:
                choose(&indices, <const uint16_t*> known, <uint16_t*> place)
            elif width == 4:
                choose(&indices, <const uint32_t*> known, <uint32_t*> place)
            else:
                choose(&indices, <const uint64_t*> known, <uint64_t*> place)
        spread_page(place, width, numbers, flags + slot, spans)
        slot += spans[2]
        spans += SPAN_PARTS
    return 0


cdef struct Indices:
    # Indices to a dictionary as they are read from a page: a block of them, or one that stands for many.
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t position  # of what comes next
    Py_ssize_t left  # indices that are wanted and not yet in a block
    Py_ssize_t packed  # of these, those in the bit-packed run at `position`
    Py_ssize_t run_end  # where that run ends
    int width
    bint checked  # whether any index of `width` bits lies in the dictionary
    Py_ssize_t num_known  # values in the dictionary
    Py_ssize_t count  # of the block at hand
    bint same  # whether they are all `block[0]`
    int32_t block[1024]


cdef int begin_indices(
    Indices* indices, const uint8_t* data, Py_ssize_t size, Py_ssize_t count, Py_ssize_t num_known
) except -1 nogil:
    """Begins with the indices of a page, of which the bit width is the first byte."""
    if size == 0:
        return malformed(b"a page of indices has no bit width")
    indices.width = data[0]
    if indices.width > 32:
        return malformed(b"indices of more than 32 bits")
    indices.data = data
    indices.size = size
    indices.position = 1
    indices.left = count
    indices.packed = 0
    indices.num_known = num_known
    indices.checked = indices.width < 32 and (<int64_t> 1 << indices.width) <= num_known
    return 0


cdef int next_indices(Indices* indices) except -1 nogil:
    """Reads the next block, of at most 1024 indices unless they are all the same; 0 when there are no more.

    Every index that it gives lies in the dictionary.
    """
    cdef uint64_t header, value = 0
    cdef Py_ssize_t i
    cdef int32_t outside = 0
    if indices.left == 0:
        return 0
    if indices.packed == 0:
        if indices.width == 0:
            return same_index(indices, 0, indices.left)
        if not read_varint(indices.data, indices.size, &indices.position, 32, &header):
            return malformed(b"a run header ends behind the end of its buffer or has more than 32 bits")
        if header < 2:
            return malformed(b"a run of no values, which no writer makes")
        if not header & 1:
            if (indices.width + 7) // 8 > indices.size - indices.position:
                return malformed(b"an RLE run ends behind the end of its buffer")
            for i in range((indices.width + 7) // 8):
                value |= <uint64_t> indices.data[indices.position + i] << (8 * i)
            indices.position += (indices.width + 7) // 8
            if value >> indices.width:
                return malformed(b"the value of an RLE run has more bits than it may have")
            return same_index(indices, value, <Py_ssize_t> min(header >> 1, <uint64_t> indices.left))
        begin_packed(indices, header >> 1)
    indices.count = min(indices.packed, <Py_ssize_t> INDEX_BLOCK)
    indices.same = False
    if not unpack_run(indices.data + indices.position, indices.size - indices.position, indices.width,
                      indices.block, indices.count, 0x7FFFFFFF):
        return malformed(b"an index lies outside of its dictionary")
    if not indices.checked:
        if indices.num_known == 0:
            return malformed(b"an index lies outside of its dictionary")
        if indices.num_known <= 0x7FFFFFFF:
            for i in range(indices.count):
                outside |= <int32_t> (indices.num_known - 1) - indices.block[i]
        if outside < 0:
            return malformed(b"an index lies outside of its dictionary")
    indices.position += indices.count // 8 * indices.width
    indices.packed -= indices.count
    indices.left -= indices.count
    if indices.packed == 0:
        indices.position = indices.run_end
    return 1


cdef inline int same_index(Indices* indices, uint64_t value, Py_ssize_t count) except -1 nogil:
    if value >= <uint64_t> indices.num_known or value > 0x7FFFFFFF:
        return malformed(b"an index lies outside of its dictionary")
    indices.same = True
    indices.block[0] = <int32_t> value
    indices.count = count
    indices.left -= count
    return 1


cdef inline int begin_packed(Indices* indices, uint64_t groups) except -1 nogil:
    cdef Py_ssize_t room = indices.size - indices.position
    indices.packed = <Py_ssize_t> min(8 * groups, <uint64_t> indices.left)
    indices.run_end = indices.position + <Py_ssize_t> min(groups * indices.width, <uint64_t> room)
    if (
        (<uint64_t> indices.packed * indices.width + 7) // 8 > <uint64_t> room
        or groups * indices.width >= <uint64_t> (room + indices.width)
    ):
        return malformed(b"a bit-packed run ends behind the end of its buffer")
    return 0


cdef int choose(Indices* indices, const Bits* known, Bits* out) except -1 nogil:
    """Fills the output with the chosen values."""
    cdef Py_ssize_t i
    cdef Bits value
    while next_indices(indices):
        if indices.same:
            value = known[indices.block[0]]
            for i in range(indices.count):
                out[i] = value
        else:
            for i in range(indices.count):
                out[i] = known[indices.block[i]]
        out += indices.count
    return 0


cdef int choose_rows(Indices* indices, const uint8_t* known, Py_ssize_t width, uint8_t* out) except -1 nogil:
    """The same for rows of bytes."""
    while next_indices(indices):
        copy_rows(out, known, width, indices.block, 0 if indices.same else 1, indices.count)
        out += width * indices.count
    return 0
