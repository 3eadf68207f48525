# Dictionaries: built, and looked up in. Included by `_native.pyx`.

def gather(dictionary not None, const int32_t[::1] indices not None, out not None):
    """See `reference.gather`."""
    cdef const uint8_t[:, ::1] rows
    cdef uint8_t[:, ::1] out_rows
    cdef Py_ssize_t n = indices.shape[0]
    if out.dtype != dictionary.dtype or out.shape != (n, *dictionary.shape[1:]):
        raise ValueError("the output must have the type of the dictionary and the length of the indices")
    if dictionary.ndim == 2:
        rows = dictionary
        out_rows = out
        with nogil:
            gather_rows(&rows[0, 0], rows.shape[0], rows.shape[1], &indices[0], n, &out_rows[0, 0])
        return
    source, target = bits_of(dictionary), bits_of(out)
    if source.itemsize == 1:
        gather_numbers[uint8_t](source, indices, target)
    elif source.itemsize == 2:
        gather_numbers[uint16_t](source, indices, target)
    elif source.itemsize == 4:
        gather_numbers[uint32_t](source, indices, target)
    else:
        gather_numbers[uint64_t](source, indices, target)


cdef int check_indices(const int32_t* indices, Py_ssize_t n, Py_ssize_t length) except -1 nogil:
    """Refuses indices that are not 0 to `length` - 1."""
    cdef Py_ssize_t i
    cdef uint32_t highest = 0
    for i in range(n):
        highest = max(highest, <uint32_t> indices[i])  # a negative one becomes the highest
    if n and <int64_t> highest >= length:
        return malformed(b"an index lies outside of its dictionary")
    return 0


cdef int gather_numbers(const Bits[::1] dictionary, const int32_t[::1] indices, Bits[::1] out) except -1:
    cdef const Bits* source = &dictionary[0]
    cdef const int32_t* chosen = &indices[0]
    cdef Bits* target = &out[0]
    cdef Py_ssize_t n = indices.shape[0], length = dictionary.shape[0], begin, end, i
    with nogil:
        for begin in range(0, n, 1024):  # checked by the block, so that they are read from memory once
            end = min(begin + 1024, n)
            check_indices(chosen + begin, end - begin, length)
            for i in range(begin, end):
                target[i] = source[chosen[i]]
    return 0


cdef int gather_rows(
    const uint8_t* source, Py_ssize_t length, Py_ssize_t width, const int32_t* indices, Py_ssize_t n,
    uint8_t* out
) except -1 nogil:
    cdef Py_ssize_t i
    check_indices(indices, n, length)
    if width == 16:  # UUID, DECIMAL of 128 bits
        for i in range(n):
            memcpy(out + 16 * i, source + 16 * <Py_ssize_t> indices[i], 16)
    elif width:
        for i in range(n):
            memcpy(out + width * i, source + width * indices[i], width)
    return 0


cdef struct Slot:
    uint64_t key
    int64_t number  # of the distinct value, from 1; 0 where the slot is free


# Where a value hashes to depends on two secrets that differ between processes (unless PYTHONHASHSEED fixes
# them): the hash of a bytes object is a SipHash under the process's own key. So nobody can choose values that
# collide and make a dictionary take quadratic time.
cdef uint64_t SECRET = <uint64_t> <int64_t> hash(b"resilient_pq dictionary slots")
cdef uint64_t OTHER_SECRET = <uint64_t> <int64_t> hash(b"resilient_pq dictionary bytes")


cdef class Numbers:
    """A hash table with open addressing that numbers distinct keys in the order they appear."""

    cdef Slot* slots
    cdef int64_t* first  # position of each number
    cdef Py_ssize_t num_slots
    cdef Py_ssize_t room  # numbers until it grows
    cdef Py_ssize_t count

    def __cinit__(self):
        self.allocate(1024)

    def __dealloc__(self):
        free(self.slots)
        free(self.first)

    cdef int allocate(self, Py_ssize_t num_slots) except -1 nogil:
        """Takes empty slots; while they fit a cache most stay empty, as what costs is a probe that fails."""
        cdef Py_ssize_t room = num_slots // 8 if num_slots <= 1 << 18 else num_slots // 2
        cdef int64_t* first = <int64_t*> realloc(self.first, room * sizeof(int64_t))
        if first != NULL:
            self.first = first
            self.slots = <Slot*> calloc(num_slots, sizeof(Slot))
        if first == NULL or self.slots == NULL:
            with gil:
                raise MemoryError
        self.num_slots = num_slots
        self.room = room
        return 0

    cdef inline int add(self, Slot* slot, uint64_t key, int64_t position) except -1 nogil:
        """Numbers a new key in a free slot, and makes room for the next."""
        self.first[self.count] = position
        self.count += 1
        slot.key = key
        slot.number = self.count
        if self.count == self.room:
            self.grow()
        return 0

    cdef int grow(self) except -1 nogil:
        cdef Slot* slots = self.slots
        cdef Py_ssize_t num_slots = self.num_slots, i, at
        self.slots = NULL
        try:
            self.allocate(4 * num_slots if num_slots < 1 << 18 else 2 * num_slots)
            for i in range(num_slots):
                if slots[i].number:
                    at = slot_of(slots[i].key, self.num_slots)
                    while self.slots[at].number:
                        at = (at + 1) & (self.num_slots - 1)
                    self.slots[at] = slots[i]
        finally:
            free(slots)
        return 0

    cdef object positions(self):
        """The first position of each number."""
        cdef int64_t[::1] view
        array = np.empty(self.count, np.int64)
        view = array
        if self.count:
            memcpy(&view[0], self.first, self.count * sizeof(int64_t))
        return array


cdef inline Py_ssize_t slot_of(uint64_t key, Py_ssize_t num_slots) noexcept nogil:
    return <Py_ssize_t> (folded(key ^ SECRET, OTHER_SECRET) & <uint64_t> (num_slots - 1))


def dictionary_build(values not None, Py_ssize_t limit):
    """See `reference.dictionary_build`."""
    cdef const uint8_t[:, ::1] rows
    cdef const uint32_t[::1] narrow
    cdef const uint64_t[::1] wide
    cdef int32_t[::1] indices
    cdef Numbers numbers = Numbers()
    cdef bint fits
    array = np.empty(len(values), np.int32)
    indices = array
    if values.ndim == 2:
        rows = values
        with nogil:
            fits = number_bytes[int64_t](numbers, NULL, rows.shape[1], rows.shape[0], &rows[0, 0], limit, -1,
                                         &indices[0])
    elif values.itemsize == 4:
        narrow = bits_of(values)
        with nogil:
            fits = number_values(numbers, &narrow[0], narrow.shape[0], limit, &indices[0])
    elif values.itemsize == 8:
        wide = bits_of(values)
        with nogil:
            fits = number_values(numbers, &wide[0], wide.shape[0], limit, &indices[0])
    else:
        raise ValueError("values must have 4 or 8 bytes")
    return (array, numbers.positions()) if fits else None


cdef int number_values(
    Numbers numbers, const Bits* values, Py_ssize_t n, Py_ssize_t limit, int32_t* indices
) except -1 nogil:
    """Numbers values by their bits; 0 where there are more than `limit`."""
    cdef Slot* slots = numbers.slots
    cdef Py_ssize_t num_slots = numbers.num_slots, i, at
    for i in range(n):
        at = slot_of(values[i], num_slots)
        while slots[at].number and slots[at].key != values[i]:
            at = (at + 1) & (num_slots - 1)
        if slots[at].number == 0:
            if numbers.count >= limit:
                return 0
            indices[i] = <int32_t> numbers.count
            numbers.add(&slots[at], values[i], i)
            slots = numbers.slots
            num_slots = numbers.num_slots
        else:
            indices[i] = <int32_t> (slots[at].number - 1)
    return 1


def dictionary_build_byte_arrays(
    offsets not None, const uint8_t[::1] data not None, Py_ssize_t limit, Py_ssize_t limit_bytes
):
    """See `reference.dictionary_build_byte_arrays`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef int32_t[::1] indices
    cdef Numbers numbers = Numbers()
    cdef bint fits
    array = np.empty(max(len(offsets) - 1, 0), np.int32)
    indices = array
    limit_bytes = max(limit_bytes, 0)
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            check_offsets(&narrow[0], narrow.shape[0], data.shape[0])
            fits = number_bytes(numbers, &narrow[0], 0, narrow.shape[0] - 1, &data[0], limit, limit_bytes,
                                &indices[0])
    else:
        wide = offsets
        with nogil:
            check_offsets(&wide[0], wide.shape[0], data.shape[0])
            fits = number_bytes(numbers, &wide[0], 0, wide.shape[0] - 1, &data[0], limit, limit_bytes,
                                &indices[0])
    return (array, numbers.positions()) if fits else None


cdef inline Py_ssize_t start_of(const Offset* offsets, Py_ssize_t width, Py_ssize_t i) noexcept nogil:
    """Where value i starts; without offsets all have the same width."""
    return <Py_ssize_t> offsets[i] if offsets != NULL else i * width


cdef int number_bytes(
    Numbers numbers, const Offset* offsets, Py_ssize_t width, Py_ssize_t n, const uint8_t* data,
    Py_ssize_t limit, Py_ssize_t limit_bytes, int32_t* indices
) except -1 nogil:
    """Numbers byte arrays; 0 where there are more than `limit`, or than `limit_bytes` unless that is -1."""
    cdef Slot* slots = numbers.slots
    cdef Py_ssize_t num_slots = numbers.num_slots, i, at, start, size, other, known, num_bytes = 0
    cdef uint64_t key
    for i in range(n):
        start = start_of(offsets, width, i)
        size = start_of(offsets, width, i + 1) - start
        key = hash_bytes(data + start, size, SECRET, OTHER_SECRET)
        at = slot_of(key, num_slots)
        while slots[at].number:
            if slots[at].key == key:
                other = numbers.first[slots[at].number - 1]
                known = start_of(offsets, width, other)
                if start_of(offsets, width, other + 1) - known == size and equal_bytes(
                    data + known, data + start, size
                ):
                    break
            at = (at + 1) & (num_slots - 1)
        if slots[at].number == 0:
            num_bytes += 4 + size
            if numbers.count >= limit or (limit_bytes >= 0 and num_bytes > limit_bytes):
                return 0
            indices[i] = <int32_t> numbers.count
            numbers.add(&slots[at], key, i)
            slots = numbers.slots
            num_slots = numbers.num_slots
        else:
            indices[i] = <int32_t> (slots[at].number - 1)
    return 1


cdef struct Sighting:
    uint32_t tag  # of the value's hash
    uint32_t number  # of the distinct value, from 1; 0 where the slot is free


cdef class Sightings:
    """A small hash table that counts in how many runs each of at most `most` values stands."""

    cdef Sighting* slots
    cdef int64_t* first  # position of each distinct value
    cdef int32_t* last_run  # that it was seen in
    cdef int32_t* num_runs
    cdef Py_ssize_t num_slots
    cdef Py_ssize_t count

    def __cinit__(self, Py_ssize_t most):
        self.num_slots = 16
        while self.num_slots < 2 * most:
            self.num_slots *= 2
        self.slots = <Sighting*> calloc(self.num_slots, sizeof(Sighting))
        self.first = <int64_t*> malloc((most + 1) * sizeof(int64_t))
        self.last_run = <int32_t*> malloc((most + 1) * sizeof(int32_t))
        self.num_runs = <int32_t*> malloc((most + 1) * sizeof(int32_t))
        if self.slots == NULL or self.first == NULL or self.last_run == NULL or self.num_runs == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)
        free(self.first)
        free(self.last_run)
        free(self.num_runs)

    cdef inline uint32_t see_new(self, int64_t position, int32_t run) noexcept nogil:
        self.first[self.count] = position
        self.last_run[self.count] = run
        self.num_runs[self.count] = 1
        self.count += 1
        return <uint32_t> self.count

    cdef inline void see_again(self, Py_ssize_t number, int32_t run) noexcept nogil:
        if self.last_run[number] != run:
            self.last_run[number] = run
            self.num_runs[number] += 1

    cdef object totals(self, const Offset* offsets, Py_ssize_t width):
        """What `reference.distinct_in_runs` returns."""
        cdef Py_ssize_t in_runs = 0, in_one = 0, in_two = 0, num_bytes = 0, i
        for i in range(self.count):
            in_runs += self.num_runs[i]
            in_one += self.num_runs[i] == 1
            in_two += self.num_runs[i] == 2
            num_bytes += start_of(offsets, width, self.first[i] + 1) - start_of(offsets, width, self.first[i])
        return in_runs, in_one, in_two, self.count, num_bytes


cdef object count_in_runs(
    const Offset* offsets, Py_ssize_t width, Py_ssize_t n, const uint8_t* data, Py_ssize_t size,
    const int64_t[::1] starts, Py_ssize_t run
):
    cdef Py_ssize_t i
    if run < 0 or run > LARGEST_LENGTH or starts.shape[0] * run > n:
        raise ValueError("the runs have more values than there are")
    for i in range(starts.shape[0]):
        if starts[i] < 0 or starts[i] > n - run:
            raise ValueError("a run lies outside of the values")
        if offsets != NULL:
            check_offsets(offsets + starts[i], run + 1, size)
    cdef Sightings seen = Sightings(starts.shape[0] * run)
    with nogil:
        for i in range(starts.shape[0]):
            see_run(seen, offsets, width, data, starts[i], run, <int32_t> i)
    return seen.totals(offsets, width)


cdef void see_run(
    Sightings seen, const Offset* offsets, Py_ssize_t width, const uint8_t* data, Py_ssize_t begin,
    Py_ssize_t run, int32_t number_of_run
) noexcept nogil:
    cdef Sighting* slots = seen.slots
    cdef const int64_t* first = seen.first
    cdef Py_ssize_t mask = seen.num_slots - 1, i, at, start, size, known
    cdef uint64_t key
    cdef uint32_t tag
    for i in range(begin, begin + run):
        start = start_of(offsets, width, i)
        size = start_of(offsets, width, i + 1) - start
        key = hash_bytes(data + start, size, SECRET, OTHER_SECRET)
        tag = <uint32_t> (key >> 32)
        at = <Py_ssize_t> key & mask
        while slots[at].number:
            if slots[at].tag == tag:
                known = start_of(offsets, width, first[slots[at].number - 1])
                if start_of(offsets, width, first[slots[at].number - 1] + 1) - known == size and equal_bytes(
                    data + known, data + start, size
                ):
                    break
            at = (at + 1) & mask
        if slots[at].number == 0:
            slots[at].tag = tag
            slots[at].number = seen.see_new(i, number_of_run)
        else:
            seen.see_again(slots[at].number - 1, number_of_run)


def distinct_in_runs(values not None, const int64_t[::1] starts not None, Py_ssize_t run):
    """See `reference.distinct_in_runs`."""
    cdef const uint8_t[::1] data = values.reshape(-1).view(np.uint8)
    cdef Py_ssize_t width = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    return count_in_runs[int64_t](NULL, width, len(values), &data[0], data.shape[0], starts, run)


def distinct_in_runs_byte_arrays(
    offsets not None, const uint8_t[::1] data not None, const int64_t[::1] starts not None, Py_ssize_t run
):
    """See `reference.distinct_in_runs_byte_arrays`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if len(offsets) == 0:
        raise ValueError("there must be one offset more than values")
    if offsets.itemsize == 4:
        narrow = offsets
        return count_in_runs(&narrow[0], 0, narrow.shape[0] - 1, &data[0], data.shape[0], starts, run)
    wide = offsets
    return count_in_runs(&wide[0], 0, wide.shape[0] - 1, &data[0], data.shape[0], starts, run)
