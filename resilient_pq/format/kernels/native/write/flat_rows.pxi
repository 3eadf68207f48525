# Rows of flat columns in Arrow's buffers, and the values that some of them have. Included by `_native.pyx`.

from libc.stdint cimport int8_t, int16_t

cdef enum:  # the numbers of a leaf, as `LeafNumber` has them
    LEAF_COLUMN
    LEAF_KIND  # its physical type
    LEAF_WIDTH
    LEAF_OFFSETS
    LEAF_OPTIONAL
    LEAF_SIGNED
    LEAF_FIELDS

cdef enum:
    MOST_ROWS = 1024  # the sample by which an encoding is chosen has all values of no more
    MOST_CHUNK_BYTES = 1 << 17  # likewise of values in PLAIN encoding
    NUM_SLOTS = 4 * MOST_ROWS


cdef class FlatRows:
    """Slots of Arrow arrays, one for each column, and a row of `LeafNumber`s for each leaf, of column -1 for others.

    They are the children of an array of structs, at an address, which `owner` keeps alive; or those at `addresses`, of
    which `length` slots from `starts` on are meant, counted from the beginning of their buffers.
    """

    cdef object owner
    cdef Array leaves
    cdef ArrowArray** columns
    cdef Py_ssize_t* starts
    cdef Py_ssize_t num_columns
    cdef readonly Py_ssize_t length
    cdef readonly Py_ssize_t num_bytes  # of their levels and values, nulls included: as of `LeafRows`
    cdef readonly Py_ssize_t size  # of the slots in memory, bitmaps included: as of `arrow.buffers.num_bytes`
    cdef readonly bint simple  # whether all of it can be read here

    def __init__(self, owner, uintptr_t address, leaves, list addresses=None, list starts=None, Py_ssize_t length=0):
        cdef const ArrowArray* array = <const ArrowArray*> address
        cdef Py_ssize_t i
        if self.columns != NULL:
            raise ValueError("rows are described once")
        self.owner, self.leaves = owner, readable(leaves, 8, 2)
        if self.leaves.columns != LEAF_FIELDS or (addresses is not None and len(addresses) != len(starts)):
            raise ValueError("there must be a row of numbers for each leaf, and a start for each array")
        self.num_columns = array.n_children if addresses is None else len(addresses)
        self.columns = <ArrowArray**> malloc((self.num_columns + 1) * sizeof(void*))
        self.starts = <Py_ssize_t*> malloc((self.num_columns + 1) * sizeof(Py_ssize_t))
        if self.columns == NULL or self.starts == NULL:
            raise MemoryError
        self.simple, self.length = True, length
        if addresses is None:
            self.length = array.length
            self.simple = array.null_count == 0 or array.n_buffers == 0 or array.buffers[0] == NULL
        for i in range(self.num_columns):
            if addresses is None:
                self.columns[i], self.starts[i] = array.children[i], array.offset + array.children[i].offset
            else:
                self.columns[i], self.starts[i] = <ArrowArray*> <uintptr_t> addresses[i], starts[i]
        self.simple = self.simple and self.length > 0
        for i in range(self.leaves.count if self.simple else 0):
            self.simple = self.simple and self.count(<const int64_t*> self.leaves.at + i * LEAF_FIELDS)

    def __dealloc__(self):
        free(self.columns)
        free(self.starts)

    cdef bint count(self, const int64_t* leaf) except -1:
        """Adds the bytes of a column; False where it is uncommon."""
        if leaf[LEAF_COLUMN] == -1:
            return True  # what is written of it is made in another way
        if not 0 <= leaf[LEAF_COLUMN] < self.num_columns or not is_flat_leaf(leaf):
            return False
        cdef const ArrowArray* child = self.columns[leaf[LEAF_COLUMN]]
        cdef Py_ssize_t n = self.length, first = self.starts[leaf[LEAF_COLUMN]], width = leaf[LEAF_WIDTH], used, nulls
        cdef int64_t offsets = leaf[LEAF_OFFSETS], kind = leaf[LEAF_KIND]
        if child.n_buffers != (3 if offsets else 2) or child.dictionary != NULL or child.buffers[1] == NULL:
            return False
        if first < child.offset or child.length < first - child.offset + n or (child.null_count != 0 and not leaf[LEAF_OPTIONAL]):
            return False
        if offsets:
            used = end_of(child, offsets, first + n) - end_of(child, offsets, first)
            if not 0 <= used <= LARGEST_LENGTH or (used and child.buffers[2] == NULL):
                return False
            if offsets == 8:
                nulls = count_empty_nulls(child, first, n)
                if nulls < 0:
                    return False
                self.num_bytes += used + 8 * (n + 1 - nulls)
            used += offsets * (n + 1)
            if offsets == 4:
                self.num_bytes += used + ((n + 7) // 8 if child.null_count != 0 else 0)
        else:
            used = width * n if width else (n + 7) // 8
            self.num_bytes += n * (8 if kind == 2 or kind == 5 else 4 if kind else 1)
        self.num_bytes += n * leaf[LEAF_OPTIONAL]
        self.size += used + ((n + 7) // 8 if child.null_count != 0 else 0)
        return True


cdef bint is_flat_leaf(const int64_t* leaf) noexcept nogil:
    """Whether values of the physical type may have the width, or the offsets."""
    cdef int64_t kind = leaf[LEAF_KIND], width = leaf[LEAF_WIDTH], offsets = leaf[LEAF_OFFSETS]
    if kind == OF_BYTE_ARRAYS:
        return width == 0 and (offsets == 4 or offsets == 8)
    if offsets or not 0 <= leaf[LEAF_OPTIONAL] <= 1:
        return False
    if kind == 1:
        return width == 1 or width == 2 or width == 4
    return width == (0 if kind == OF_BOOLEANS else 4 if kind == 4 else 8) and (kind <= 2 or kind == 4 or kind == 5)


cdef inline Py_ssize_t end_of(const ArrowArray* child, int64_t width, Py_ssize_t at) noexcept nogil:
    if width == 4:
        return (<const int32_t*> child.buffers[1])[at]
    return (<const int64_t*> child.buffers[1])[at]


cdef Py_ssize_t count_empty_nulls(const ArrowArray* child, Py_ssize_t first, Py_ssize_t n) noexcept nogil:
    """How many slots are null; -1 where one of them has bytes."""
    cdef const uint8_t* bits = <const uint8_t*> child.buffers[0]
    cdef const int64_t* offsets = <const int64_t*> child.buffers[1]
    cdef Py_ssize_t nulls = 0, i
    for i in range(first, first + n if child.null_count != 0 and bits != NULL else first):
        if not bits[i >> 3] >> (i & 7) & 1:
            nulls += 1
            if offsets[i + 1] != offsets[i]:
                return -1
    return nulls


cdef struct Gathered:
    # The values that some rows of a leaf have, and what was found out of them.
    const uint8_t* data
    Py_ssize_t size  # bytes of `data`
    Py_ssize_t width  # bytes of a value; 0 where they have offsets, or are booleans in bits
    Py_ssize_t n  # rows
    Py_ssize_t m  # values
    Py_ssize_t plain  # bytes in PLAIN encoding
    bint strings
    Py_ssize_t count  # distinct values, as far as they are known
    Py_ssize_t known_bytes  # of those
    bint numbered  # whether all values have a number

cdef struct Room:  # for one chunk after the other
    uint8_t flags[MOST_ROWS]
    uint8_t values[8 * MOST_ROWS]
    uint8_t text[MOST_CHUNK_BYTES]
    int32_t offsets[MOST_ROWS + 1]
    uint16_t slots[NUM_SLOTS]
    int32_t first[MOST_ROWS]
    int32_t times[MOST_ROWS]
    uint16_t indices[MOST_ROWS]
    uint8_t encoded[12288]  # more than MOST_ROWS numbers take in any encoding
    Gathered of
    PyObject* out  # an array, and its memory, for what is compressed
    uint8_t* packed


cdef bint gather_values(const int64_t* leaf, const ArrowArray* child, Py_ssize_t at, Room* room) noexcept nogil:
    """Finds the values of the slots from `at` on, and puts those beside nulls together; False where that is declined."""
    cdef Gathered* of = &room.of
    cdef const uint8_t* bits = <const uint8_t*> child.buffers[0]
    cdef const uint8_t* source = <const uint8_t*> child.buffers[1]
    cdef Py_ssize_t n = of.n, i, width = leaf[LEAF_WIDTH]
    of.m = n
    if leaf[LEAF_OPTIONAL] and child.null_count != 0 and bits != NULL:
        of.m = 0
        for i in range(n):
            room.flags[i] = bits[(at + i) >> 3] >> ((at + i) & 7) & 1
            of.m += room.flags[i]
    if leaf[LEAF_OFFSETS] == 4:
        return gather_text(<const int32_t*> source + at, <const uint8_t*> child.buffers[2], room)
    if leaf[LEAF_OFFSETS] == 8:
        return gather_text(<const int64_t*> source + at, <const uint8_t*> child.buffers[2], room)
    if width == 0:
        gather_booleans(source, at, room)
        return True
    of.width = 4 if width < 4 else width
    of.plain = of.width * of.m
    if width == 1:
        gather_narrow(<const uint8_t*> source + at, leaf[LEAF_SIGNED] != 0, room)
    elif width == 2:
        gather_narrow(<const uint16_t*> source + at, leaf[LEAF_SIGNED] != 0, room)
    elif of.m == n:
        of.data = source + at * width
    elif width == 4:
        gather_present(<const uint32_t*> source + at, room)
    else:
        gather_present(<const uint64_t*> source + at, room)
    of.size = of.plain
    return True


cdef bint gather_text(const Offset* offsets, const uint8_t* data, Room* room) noexcept nogil:
    cdef Gathered* of = &room.of
    cdef Py_ssize_t i, j = 0, start = <Py_ssize_t> offsets[0], end = start, size
    cdef bint copied = of.m < of.n
    of.strings = True
    room.offsets[0] = 0
    for i in range(of.n):
        size = <Py_ssize_t> offsets[i + 1] - <Py_ssize_t> offsets[i]
        if size < 0 or start < 0 or <Py_ssize_t> offsets[i + 1] - start > MOST_CHUNK_BYTES:
            return False
        if copied:
            if not room.flags[i]:
                continue
            memcpy(room.text + room.offsets[j], data + offsets[i], size)
        room.offsets[j + 1] = room.offsets[j] + <int32_t> size
        j += 1
    of.data = room.text
    if not copied and data != NULL:
        of.data = data + start
    of.size = room.offsets[j]
    of.plain = of.size + 4 * of.m
    return True


cdef void gather_booleans(const uint8_t* bits, Py_ssize_t at, Room* room) noexcept nogil:
    cdef Gathered* of = &room.of
    cdef Py_ssize_t i, j = 0
    of.plain = of.size = (of.m + 7) // 8
    memset(room.values, 0, of.size)
    for i in range(of.n):
        if of.m < of.n and not room.flags[i]:
            continue
        room.values[j >> 3] |= (bits[(at + i) >> 3] >> ((at + i) & 7) & 1) << (j & 7)
        j += 1
    of.data = room.values


cdef void gather_narrow(const Packed* source, bint signed, Room* room) noexcept nogil:
    """Widens numbers of 8 and 16 bits."""
    cdef int32_t* out = <int32_t*> room.values
    cdef Py_ssize_t i, j = 0
    for i in range(room.of.n):
        if room.of.m < room.of.n and not room.flags[i]:
            continue
        if Packed is uint8_t:
            out[j] = <int8_t> source[i] if signed else <int32_t> source[i]
        else:
            out[j] = <int16_t> source[i] if signed else <int32_t> source[i]
        j += 1
    room.of.data = room.values


cdef void gather_present(const Word* source, Room* room) noexcept nogil:
    cdef Word* out = <Word*> room.values
    cdef Py_ssize_t i, j = 0
    for i in range(room.of.n):
        out[j] = source[i]  # over the last one where that was none
        j += room.flags[i]
        if j == room.of.m:
            break
    room.of.data = room.values


cdef bint number_distinct(Room* room, int64_t most, int64_t most_bytes) noexcept nogil:
    """Numbers the values in the order in which they appear first; False where there are more, or they take more."""
    cdef Gathered* of = &room.of
    memset(room.slots, 0, sizeof(room.slots))
    if of.strings:
        of.numbered = number_texts(room, most, most_bytes)
    elif of.width == 4:
        of.numbered = number_words(room, <const uint32_t*> of.data, most)
    else:
        of.numbered = number_words(room, <const uint64_t*> of.data, most)
    return of.numbered


cdef bint number_words(Room* room, const Word* values, int64_t most) noexcept nogil:
    cdef Py_ssize_t i, at, count = 0
    cdef uint16_t number
    for i in range(room.of.m):
        at = slot_of(values[i], NUM_SLOTS)
        number = room.slots[at]
        while number and values[room.first[number - 1]] != values[i]:
            at = (at + 1) & (NUM_SLOTS - 1)
            number = room.slots[at]
        if number == 0:
            if count >= most:
                return False
            room.first[count], room.times[count] = <int32_t> i, 0
            count += 1
            room.slots[at] = number = <uint16_t> count
        room.indices[i] = number - 1
        room.times[number - 1] += 1
    room.of.count, room.of.known_bytes = count, count * <Py_ssize_t> sizeof(Word)
    return True


cdef bint number_texts(Room* room, int64_t most, int64_t most_bytes) noexcept nogil:
    cdef Gathered* of = &room.of
    cdef Py_ssize_t i, at, size, other
    cdef const uint8_t* value
    of.count = of.known_bytes = 0
    for i in range(of.m):
        value, size = of.data + room.offsets[i], room.offsets[i + 1] - room.offsets[i]
        at = <Py_ssize_t> (hash_bytes(value, size, SECRET, OTHER_SECRET) & (NUM_SLOTS - 1))
        while room.slots[at]:
            other = room.first[room.slots[at] - 1]
            if (room.offsets[other + 1] - room.offsets[other] == size
                    and memcmp(of.data + room.offsets[other], value, size) == 0):
                break
            at = (at + 1) & (NUM_SLOTS - 1)
        if room.slots[at] == 0:
            if of.count >= most or of.known_bytes + size + 4 > most_bytes:
                return False
            room.first[of.count], room.times[of.count] = <int32_t> i, 0
            of.count += 1
            of.known_bytes += size + 4
            room.slots[at] = <uint16_t> of.count
        room.indices[i] = room.slots[at] - 1
        room.times[room.indices[i]] += 1
    return True
