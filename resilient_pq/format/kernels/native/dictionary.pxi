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
    check_indices(indices, n, length)
    copy_rows(out, source, width, indices, 1, n)
    return 0


# Where a value hashes to depends on two secrets that differ between processes (unless PYTHONHASHSEED fixes
# them): the hash of a bytes object is a SipHash under the process's own key. So nobody can choose values that
# collide and make a dictionary take quadratic time.
cdef uint64_t SECRET = <uint64_t> <int64_t> hash(b"resilient_pq dictionary slots")
cdef uint64_t OTHER_SECRET = <uint64_t> <int64_t> hash(b"resilient_pq dictionary bytes")

cdef enum:
    FITS_CACHE = 1 << 20  # bytes of slots, of which most are never touched
    FEWEST_SLOTS = 1024
    SPARSE = 4  # slots for each number that there can be, where they are so few that no more of them are worth it
    LOOK_AHEAD = 12  # values; their slots come from memory while those before them are looked at
    INLINE = 32  # bytes of values that stand in their entries themselves
    HASHED_AT_ONCE = 256  # byte arrays that are hashed before they are looked up
    FITS_BESIDE_ENTRIES = 1 << 17  # the same where entries are looked at as well, and need room there
    FITS_NEAR_CACHE = 1 << 17  # bytes of slots from which on they are asked for ahead

# Indices are as narrow as they can be (see `reference.dictionary_build`), each type with how many numbers it has.
cdef tuple INDEX_TYPES = ((np.uint8, 1 << 8), (np.uint16, 1 << 16), (np.int32, 1 << 31))


cdef struct Slot:
    uint64_t key  # the bits of a number
    int64_t number  # of the distinct value, from 1; 0 where the slot is free


# The slot of a value beside entries: in the bits that say which slot of a table its hash leads to, the number of the
# distinct value, from 1, or 0 where the slot is free; in the others those of its hash.
ctypedef uint32_t Tag


cdef struct Entry:
    uint64_t words[2]  # the first bytes of a value, filled up with zeros; of one of more than INLINE its hash
    uint32_t size
    uint32_t hash  # its lowest bits: there are never more than 2**32 slots


cdef struct Rest:
    uint64_t words[2]  # the bytes behind those of the `Entry`, of which most have none


cdef class Numbers:
    """A hash table with open addressing that numbers distinct values in the order they appear.

    Its slots, of `slot_size` bytes, are a `Slot` each, or a `Tag` where there are entries beside them. There are at
    least twice as many of them as numbers.
    """

    cdef list memory  # what the following lie in
    cdef uint8_t* slots
    cdef int64_t* first  # position of each number
    cdef Entry* entries  # of each number; NULL where slots have the values themselves
    cdef Rest* rests  # of those of more than 16 bytes, no more than INLINE; NULL while there is none
    cdef Py_ssize_t slot_size
    cdef Py_ssize_t num_slots
    cdef Py_ssize_t most  # numbers that there can be
    cdef Py_ssize_t room  # numbers until it grows
    cdef Py_ssize_t count
    cdef Py_ssize_t num_bytes  # of the distinct byte arrays in PLAIN encoding
    cdef bint too_many_bytes

    def __cinit__(self, Py_ssize_t slot_size, Py_ssize_t most):
        self.slot_size = slot_size
        self.most = most
        self.memory = [None, None, None, None]
        self.allocate(FEWEST_SLOTS)

    cdef int allocate(self, Py_ssize_t num_slots) except -1 with gil:
        """Takes empty slots; while they fit a cache, most stay empty, as what costs is a probe that fails."""
        cdef Py_ssize_t room = num_slots // 8 if self.fits_cache(num_slots) else num_slots // 2
        if num_slots // SPARSE >= self.most:
            room = max(self.most + 1, 1)  # never reached
        self.first = <int64_t*> self.taken(0, self.first, sizeof(int64_t), room)
        if self.slot_size == sizeof(Tag):
            self.entries = <Entry*> self.taken(1, self.entries, sizeof(Entry), room)
        if self.rests != NULL:
            self.rests = <Rest*> self.taken(2, self.rests, sizeof(Rest), room)
        self.slots = self.taken(3, NULL, self.slot_size, num_slots)
        memset(self.slots, 0, num_slots * self.slot_size)
        self.num_slots = num_slots
        self.room = room
        return 0

    cdef int make_room(self) except -1 with gil:
        """Makes room for more numbers of values that are not found by slots."""
        self.room *= 4
        self.first = <int64_t*> self.taken(0, self.first, sizeof(int64_t), self.room)
        return 0

    cdef int make_rests(self) except -1 with gil:
        self.rests = <Rest*> self.taken(2, NULL, sizeof(Rest), self.room)
        return 0

    cdef uint8_t* taken(self, Py_ssize_t which, const void* known, Py_ssize_t size, Py_ssize_t count) except NULL:
        """Memory for `count` items of a size, in place of those that are known, of which there are `self.count`."""
        cdef uint8_t[::1] view
        memory = empty((size * count,), np.uint8)
        view = memory
        if known != NULL:
            memcpy(&view[0], known, size * self.count)
        self.memory[which] = memory
        return &view[0]

    cdef inline bint fits_cache(self, Py_ssize_t num_slots) noexcept nogil:
        return num_slots * self.slot_size <= (FITS_CACHE if self.slot_size == sizeof(Slot) else FITS_BESIDE_ENTRIES)

    cdef inline void add(self, int64_t position) noexcept nogil:
        """Numbers a new value, whose slot is filled."""
        self.first[self.count] = position
        self.count += 1

    cdef object positions(self):
        """The first position of each number."""
        cdef int64_t[::1] view
        array = empty((self.count,), np.int64)
        view = array
        if self.count:
            memcpy(&view[0], self.first, self.count * sizeof(int64_t))
        return array


cdef inline Py_ssize_t slot_of(uint64_t key, Py_ssize_t num_slots) noexcept nogil:
    return <Py_ssize_t> (folded(key ^ SECRET, OTHER_SECRET) & <uint64_t> (num_slots - 1))


cdef int grow(Numbers numbers) except -1 with gil:
    """Moves the full slots to room for more."""
    cdef Py_ssize_t num_slots = numbers.num_slots, i, at
    cdef const Slot* slots = <const Slot*> numbers.slots
    cdef Slot* larger
    memory = numbers.memory[3]  # what they lie in until they are moved
    numbers.allocate(4 * num_slots if numbers.fits_cache(4 * num_slots) else 2 * num_slots)
    larger = <Slot*> numbers.slots
    with nogil:
        for i in range(num_slots):
            if slots[i].number:
                at = slot_of(slots[i].key, numbers.num_slots)
                while larger[at].number:
                    at = (at + 1) & (numbers.num_slots - 1)
                larger[at] = slots[i]
    del memory
    return 0


cdef int grow_beside_entries(Numbers numbers) except -1 nogil:
    """Makes more slots, as the entries say."""
    cdef Py_ssize_t num_slots = numbers.num_slots, i
    cdef uint64_t mask, at
    cdef Tag* slots
    numbers.allocate(4 * num_slots if numbers.fits_cache(4 * num_slots) else 2 * num_slots)
    slots = <Tag*> numbers.slots
    mask = <uint64_t> numbers.num_slots - 1
    for i in range(numbers.count):
        at = numbers.entries[i].hash & mask
        while slots[at]:
            at = (at + 1) & mask
        slots[at] = <Tag> ((numbers.entries[i].hash & ~mask) | <uint64_t> (i + 1))
    return 0


def dictionary_build(values not None, Py_ssize_t limit):
    """See `reference.dictionary_build`."""
    if values.ndim == 1 and values.itemsize not in (4, 8):
        raise ValueError("values must have 4 or 8 bytes")
    cdef bint integers = values.dtype.kind in "iu"
    if values.ndim == 2 and 0 < values.shape[1] <= 8:
        values = row_words(values)
    cdef bint rows = values.ndim == 2
    cdef Places places = places_for(values) if integers and not rows else None
    cdef Py_ssize_t done = 0, n = len(values)
    cdef Numbers numbers = Numbers(sizeof(Tag) if rows else sizeof(Slot), min(n, limit))
    if not rows:
        values = bits_of(values)
    indices = None
    for index_type, count in INDEX_TYPES:
        indices = widened(indices, index_type, done, n)
        most = min(limit, count)
        if rows:
            done = number_rows(numbers, values, indices, done, most)
        elif values.itemsize == 4:
            done = number_numbers[uint32_t](numbers, places, values, indices, done, most)
        else:
            done = number_numbers[uint64_t](numbers, places, values, indices, done, most)
        if done == n:
            return indices, numbers.positions()
        if numbers.count >= limit:
            return None


cdef object row_words(const uint8_t[:, ::1] rows):
    """Rows of at most 8 bytes as the signed numbers that they are, the highest byte first, as in decimals."""
    cdef Py_ssize_t n = rows.shape[0], width = rows.shape[1], i
    cdef int beyond = <int> (64 - 8 * width)
    cdef uint8_t last[8]
    cdef int64_t[::1] words
    made = empty((n,), np.int64)
    words = made
    memset(last, 0, sizeof(last))
    with nogil:
        for i in range(n - 8):  # behind each of these there are 8 bytes at least
            words[i] = <int64_t> swapped64(load64(&rows[i, 0])) >> beyond
        for i in range(max(n - 8, 0), n):
            memcpy(last, &rows[i, 0], width)
            words[i] = <int64_t> swapped64(load64(last)) >> beyond
    return made


cdef object widened(indices, index_type, Py_ssize_t done, Py_ssize_t n):
    """Room for n indices of a wider type, which begins with those that are known."""
    wider = empty((n,), index_type)
    if done:
        wider[:done] = indices[:done]
    return wider


cdef Py_ssize_t number_numbers(
    Numbers numbers, Places places, const Bits[::1] values, indices, Py_ssize_t done, Py_ssize_t most
) except -1:
    """Numbers values from `done` on by their bits, up to the first that would be more than `most`."""
    cdef Py_ssize_t n = values.shape[0]
    cdef uint8_t[::1] narrow
    cdef uint16_t[::1] middle
    cdef int32_t[::1] wide
    if indices.itemsize == 1:
        narrow = indices
        with nogil:
            done = number_values(numbers, places, &values[0], done, n, most, &narrow[0])
    elif indices.itemsize == 2:
        middle = indices
        with nogil:
            done = number_values(numbers, places, &values[0], done, n, most, &middle[0])
    else:
        wide = indices
        with nogil:
            done = number_values(numbers, places, &values[0], done, n, most, &wide[0])
    return done


cdef Py_ssize_t number_values(
    Numbers numbers, Places places, const Bits* values, Py_ssize_t done, Py_ssize_t n, Py_ssize_t most,
    Packed* indices
) except -1 nogil:
    cdef Py_ssize_t end, i
    if places is not None:
        return number_by_place(numbers, places, values, done, n, most, indices)
    while done < n:
        end = min(done + 1024, n)
        if numbers.num_slots * <Py_ssize_t> sizeof(Slot) >= FITS_CACHE and end + LOOK_AHEAD <= n:
            i = number_block(numbers, values, done, end, most, indices, 1)
        else:
            i = number_block(numbers, values, done, end, most, indices, 0)
        if i < end:
            return i
        done = end
    return n


cdef inline Py_ssize_t number_block(
    Numbers numbers, const Bits* values, Py_ssize_t done, Py_ssize_t end, Py_ssize_t most, Packed* indices,
    const bint ahead
) except -1 nogil:
    """Numbers values; with `ahead` there are LOOK_AHEAD more of them behind `end`."""
    cdef Slot* slots = <Slot*> numbers.slots
    cdef Py_ssize_t num_slots = numbers.num_slots, i, at
    for i in range(done, end):
        if ahead:
            WANTED_SOON(&slots[slot_of(values[i + LOOK_AHEAD], num_slots)])
        at = slot_of(values[i], num_slots)
        while slots[at].number and slots[at].key != values[i]:
            at = (at + 1) & (num_slots - 1)
        if slots[at].number == 0:
            if numbers.count >= most:
                return i
            indices[i] = <Packed> numbers.count
            numbers.add(i)
            slots[at].key = values[i]
            slots[at].number = numbers.count
            if numbers.count == numbers.room:
                grow(numbers)
                slots = <Slot*> numbers.slots
                num_slots = numbers.num_slots
        else:
            indices[i] = <Packed> (slots[at].number - 1)
    return end


cdef Py_ssize_t number_rows(
    Numbers numbers, const uint8_t[:, ::1] rows, indices, Py_ssize_t done, Py_ssize_t most
) except -1:
    return number_byte_arrays[int64_t](
        numbers, NULL, rows.shape[1], rows.shape[0], &rows[0, 0], rows.shape[0] * rows.shape[1], indices, done,
        most, -1,
    )


def dictionary_build_byte_arrays(
    offsets not None, const uint8_t[::1] data not None, Py_ssize_t limit, Py_ssize_t limit_bytes
):
    """See `reference.dictionary_build_byte_arrays`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    cdef Py_ssize_t done = 0, n = max(len(offsets) - 1, 0)
    cdef Numbers numbers = Numbers(sizeof(Tag), min(n, limit))
    limit_bytes = max(limit_bytes, 0)
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            check_offsets(&narrow[0], narrow.shape[0], data.shape[0])
    else:
        wide = offsets
        with nogil:
            check_offsets(&wide[0], wide.shape[0], data.shape[0])
    indices = None
    for index_type, count in INDEX_TYPES:
        indices = widened(indices, index_type, done, n)
        most = min(limit, count)
        if offsets.itemsize == 4:
            done = number_byte_arrays[int32_t](
                numbers, &narrow[0], 0, n, &data[0], data.shape[0], indices, done, most, limit_bytes
            )
        else:
            done = number_byte_arrays[int64_t](
                numbers, &wide[0], 0, n, &data[0], data.shape[0], indices, done, most, limit_bytes
            )
        if done == n:
            return indices, numbers.positions()
        if numbers.count >= limit or numbers.too_many_bytes:
            return None


cdef Py_ssize_t number_byte_arrays(
    Numbers numbers, const Offset* offsets, Py_ssize_t width, Py_ssize_t n, const uint8_t* data,
    Py_ssize_t room, indices, Py_ssize_t done, Py_ssize_t most, Py_ssize_t limit_bytes
) except -1:
    """Numbers byte arrays like `number_numbers`; it also stops where there are more than `limit_bytes`, unless -1."""
    cdef uint8_t[::1] narrow
    cdef uint16_t[::1] middle
    cdef int32_t[::1] wide
    if indices.itemsize == 1:
        narrow = indices
        with nogil:
            done = number_bytes(numbers, offsets, width, n, data, room, &narrow[0], done, most, limit_bytes)
    elif indices.itemsize == 2:
        middle = indices
        with nogil:
            done = number_bytes(numbers, offsets, width, n, data, room, &middle[0], done, most, limit_bytes)
    else:
        wide = indices
        with nogil:
            done = number_bytes(numbers, offsets, width, n, data, room, &wide[0], done, most, limit_bytes)
    return done


cdef inline Py_ssize_t start_of(const Offset* offsets, Py_ssize_t width, Py_ssize_t i) noexcept nogil:
    """Where value i starts; without offsets all have the same width."""
    return <Py_ssize_t> offsets[i] if offsets != NULL else i * width


cdef Py_ssize_t number_bytes(
    Numbers numbers, const Offset* offsets, Py_ssize_t width, Py_ssize_t n, const uint8_t* data,
    Py_ssize_t room, Packed* indices, Py_ssize_t done, Py_ssize_t most, Py_ssize_t limit_bytes
) except -1 nogil:
    cdef uint8_t last[2 * INLINE]  # bytes from `last_start` on, with room behind them to read words from
    cdef Py_ssize_t last_start = max(room - INLINE, 0), end, longest, i
    memset(last, 0, sizeof(last))
    if room:
        memcpy(last, data + last_start, room - last_start)
    while done < n:
        end = min(done + HASHED_AT_ONCE, n)
        longest = 0
        for i in range(done, end):
            longest = max(longest, start_of(offsets, width, i + 1) - start_of(offsets, width, i))
        if numbers.num_slots * <Py_ssize_t> sizeof(Tag) > FITS_NEAR_CACHE:
            i = number_block_of_bytes(numbers, offsets, width, data, last, last_start, indices, done, end, most,
                                      limit_bytes, longest, 1)
        else:
            i = number_block_of_bytes(numbers, offsets, width, data, last, last_start, indices, done, end, most,
                                      limit_bytes, longest, 0)
        if i < end:
            return i
        done = end
    return n


cdef inline uint64_t hash_words(
    uint64_t one, uint64_t two, uint64_t three, uint64_t four, Py_ssize_t size, uint64_t secret,
    uint64_t other_secret
) noexcept nogil:
    """The same for a value whichever words are known to be zeros: then it is computed once for all values."""
    return folded(one ^ secret, two ^ other_secret ^ <uint64_t> size) ^ folded(three ^ other_secret, four ^ secret)


cdef inline void ask_ahead(Numbers numbers, const uint64_t* hashes, Py_ssize_t count) noexcept nogil:
    """Asks for the slots of values, and for the entries that they lead to, so that all come from memory at once."""
    cdef Tag* slots = <Tag*> numbers.slots
    cdef uint64_t mask = <uint64_t> numbers.num_slots - 1, number
    cdef Py_ssize_t i
    for i in range(count):
        WANTED_SOON(&slots[hashes[i] & mask])
    for i in range(count):
        number = slots[hashes[i] & mask] & mask
        WANTED_SOON(&numbers.entries[number - 1 if number else 0])


cdef inline Py_ssize_t number_block_of_bytes(
    Numbers numbers, const Offset* offsets, Py_ssize_t width, const uint8_t* data, const uint8_t* last,
    Py_ssize_t last_start, Packed* indices, Py_ssize_t done, Py_ssize_t end, Py_ssize_t most,
    Py_ssize_t limit_bytes, Py_ssize_t longest, const bint ahead
) except -1 nogil:
    if longest <= 8:
        return number_some(numbers, offsets, width, data, last, last_start, indices, done, end, most,
                           limit_bytes, 1, ahead)
    if longest <= 16:
        return number_some(numbers, offsets, width, data, last, last_start, indices, done, end, most,
                           limit_bytes, 2, ahead)
    if longest <= INLINE:
        return number_some(numbers, offsets, width, data, last, last_start, indices, done, end, most,
                           limit_bytes, 4, ahead)
    return number_some(numbers, offsets, width, data, last, last_start, indices, done, end, most,
                       limit_bytes, 0, ahead)


cdef inline Py_ssize_t number_some(
    Numbers numbers, const Offset* offsets, Py_ssize_t width, const uint8_t* data, const uint8_t* last,
    Py_ssize_t last_start, Packed* indices, Py_ssize_t done, Py_ssize_t end, Py_ssize_t most,
    Py_ssize_t limit_bytes, const int num_words, const bint ahead
) except -1 nogil:
    """Numbers values of at most `num_words` words, of which each call has its own copy of the loop; 0 is any.

    With `ahead` all are hashed first, and what they lead to is asked for.
    """
    # All that is looked up again and again in variables of its own, which writing an index cannot change.
    cdef Tag* slots = <Tag*> numbers.slots
    cdef Entry* entries = numbers.entries
    cdef Entry* entry
    cdef Rest* rest
    cdef uint64_t secret = SECRET, other_secret = OTHER_SECRET
    cdef uint64_t hashes[HASHED_AT_ONCE]
    cdef uint64_t mask = <uint64_t> numbers.num_slots - 1, hash, one = 0, two = 0, three = 0, four = 0
    cdef Py_ssize_t i, at, size, start, next_start
    cdef const uint8_t* source
    cdef uint32_t tag
    cdef uint64_t number
    if ahead:
        next_start = start_of(offsets, width, done)
        for i in range(done, end):
            start = next_start
            next_start = start_of(offsets, width, i + 1)
            size = next_start - start
            if num_words or size <= INLINE:
                source = data + start if start < last_start else last + (start - last_start)
                one = masked_word(source, size, 0)
                if num_words != 1:
                    two = masked_word(source, size, 8)
                if num_words == 0 or num_words == 4:
                    three = masked_word(source, size, 16)
                    four = masked_word(source, size, 24)
                hashes[i - done] = hash_words(one, two, three, four, size, secret, other_secret)
            else:
                hashes[i - done] = hash_bytes(data + start, size, secret, other_secret)
        ask_ahead(numbers, hashes, end - done)
    next_start = start_of(offsets, width, done)
    for i in range(done, end):
        start = next_start
        next_start = start_of(offsets, width, i + 1)
        size = next_start - start
        if num_words or size <= INLINE:
            source = data + start if start < last_start else last + (start - last_start)
            one = masked_word(source, size, 0)
            if num_words != 1:
                two = masked_word(source, size, 8)
            if num_words == 0 or num_words == 4:
                three = masked_word(source, size, 16)
                four = masked_word(source, size, 24)
            if ahead:
                hash = hashes[i - done]
            else:
                hash = hash_words(one, two, three, four, size, secret, other_secret)
        else:
            hash = hashes[i - done] if ahead else hash_bytes(data + start, size, secret, other_secret)
            one = hash
            two = three = four = 0
        tag = <uint32_t> hash
        at = <Py_ssize_t> (tag & mask)
        number = slots[at] & mask
        while number:
            entry = &entries[number - 1]
            if (
                (slots[at] ^ tag) & ~mask == 0 and entry.size == <uint32_t> size and entry.words[0] == one
                and (num_words == 1 or entry.words[1] == two)
            ):
                if num_words == 1 or num_words == 2:
                    break
                if size <= 16:
                    break
                if size <= INLINE:  # as the one that is compared with, which has a rest therefore
                    rest = &numbers.rests[number - 1]
                    if rest.words[0] == three and rest.words[1] == four:
                        break
                elif num_words == 0 and equal_bytes(
                    data + start_of(offsets, width, numbers.first[number - 1]), data + start, size
                ):
                    break
            at = <Py_ssize_t> (<uint64_t> (at + 1) & mask)
            number = slots[at] & mask
        if number:
            indices[i] = <Packed> (number - 1)
            continue
        if numbers.count >= most or (limit_bytes >= 0 and numbers.num_bytes + 4 + size > limit_bytes):
            numbers.too_many_bytes = numbers.count < most
            return i
        indices[i] = <Packed> numbers.count
        entries[numbers.count] = Entry([one, two], <uint32_t> size, tag)
        if 16 < size <= INLINE:
            if numbers.rests == NULL:
                numbers.make_rests()
            numbers.rests[numbers.count] = Rest([three, four])
        numbers.add(i)
        numbers.num_bytes += 4 + size
        slots[at] = <Tag> ((tag & ~mask) | <uint64_t> numbers.count)
        if numbers.count == numbers.room:
            grow_beside_entries(numbers)
            slots = <Tag*> numbers.slots
            entries = numbers.entries
            mask = <uint64_t> numbers.num_slots - 1
    return end


def mark_used(indices not None, uint8_t[::1] marks not None):
    """See `reference.mark_used`."""
    cdef const uint8_t[::1] narrow
    cdef const uint16_t[::1] middle
    cdef const int32_t[::1] wide
    if indices.itemsize == 1:
        narrow = indices
        with nogil:
            mark(&narrow[0], narrow.shape[0], &marks[0], marks.shape[0])
    elif indices.itemsize == 2:
        middle = indices
        with nogil:
            mark(&middle[0], middle.shape[0], &marks[0], marks.shape[0])
    else:
        wide = indices
        with nogil:
            mark(&wide[0], wide.shape[0], &marks[0], marks.shape[0])


cdef int mark(const Packed* indices, Py_ssize_t n, uint8_t* marks, Py_ssize_t size) except -1 nogil:
    cdef Py_ssize_t begin, end, i, next_look = 0
    cdef uint32_t highest
    cdef bint some_are_left = True
    for begin in range(0, n, 1024):  # checked by the block, as `gather_numbers` does
        end = min(begin + 1024, n)
        highest = 0
        for i in range(begin, end):
            highest = max(highest, <uint32_t> indices[i])  # a negative one becomes the highest
        if <int64_t> highest >= size:
            return malformed(b"an index lies outside of its dictionary")
        if begin >= next_look and some_are_left:  # seldom enough that it costs less than marking
            some_are_left = memchr(marks, 0, size) != NULL
            next_look = begin + size
        if some_are_left:
            for i in range(begin, end):
                marks[indices[i]] = 1
    return 0


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
