# How many distinct values there are in runs of a column. Included by `_native.pyx` behind `dictionary.pxi`.

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
    Array begins, Py_ssize_t run
):
    cdef const int64_t* starts = <const int64_t*> begins.at
    cdef Py_ssize_t i
    if run < 0 or run > LARGEST_LENGTH or begins.count * run > n:
        raise ValueError("the runs have more values than there are")
    for i in range(begins.count):
        if starts[i] < 0 or starts[i] > n - run:
            raise ValueError("a run lies outside of the values")
        if offsets != NULL:
            check_offsets(offsets + starts[i], run + 1, size)
    cdef Sightings seen = Sightings(begins.count * run)
    with nogil:
        for i in range(begins.count):
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


def distinct_in_runs(values, starts, Py_ssize_t run):
    """See `reference.distinct_in_runs`."""
    cdef Array data = readable(values.reshape(-1).view(np.uint8))
    cdef Py_ssize_t width = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    return count_in_runs[int64_t](NULL, width, len(values), data.at, data.size, readable(starts, 8), run)


def distinct_in_runs_byte_arrays(offsets, data, starts, Py_ssize_t run):
    """See `reference.distinct_in_runs_byte_arrays`."""
    cdef Array ends = readable(offsets, 4 | 8), source = readable(data), begins = readable(starts, 8)
    cdef Py_ssize_t n = ends.count - 1
    if n < 0:
        raise ValueError("there must be one offset more than values")
    if ends.width == 4:
        return count_in_runs(<const int32_t*> ends.at, 0, n, source.at, source.size, begins, run)
    return count_in_runs(<const int64_t*> ends.at, 0, n, source.at, source.size, begins, run)
