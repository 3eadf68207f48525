# Dictionaries built. Included by `_native.pyx`.

cdef extern from "native/headers/hashes.h":
    uint64_t folded(uint64_t a, uint64_t b) noexcept nogil
    uint64_t hash_bytes(const uint8_t* source, ptrdiff_t size, uint64_t secret,
                        uint64_t other_secret) noexcept nogil
    uint64_t xxh64(const uint8_t* source, ptrdiff_t size) noexcept nogil

# What a hash table numbers.
ctypedef fused Word:
    uint32_t
    uint64_t

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
    uint64_t words[2]  # the first bytes of a value, filled up with zeros; of one of more than INLINE hash and start
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
        cdef Array room = writable(empty((size * count,), np.uint8))
        if known != NULL:
            memcpy(room.at, known, size * self.count)
        self.memory[which] = room
        return room.at

    cdef inline bint fits_cache(self, Py_ssize_t num_slots) noexcept nogil:
        return num_slots * self.slot_size <= (FITS_CACHE if self.slot_size == sizeof(Slot) else FITS_BESIDE_ENTRIES)

    cdef inline void add(self, int64_t position) noexcept nogil:
        """Numbers a new value, whose slot is filled."""
        self.first[self.count] = position
        self.count += 1

    cdef object positions(self):
        """The first position of each number."""
        array = empty((self.count,), np.int64)
        memcpy(writable(array, 8).at, self.first, self.count * sizeof(int64_t))
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


def dictionary_build(values, Py_ssize_t limit):
    """See `reference.dictionary_build`."""
    if values.ndim == 1 and values.itemsize not in (4, 8):
        raise ValueError("values must have 4 or 8 bytes")
    cdef bint integers = values.dtype.kind in "iu"
    if values.ndim == 2 and 0 < values.shape[1] <= 8:
        values = row_words(values)
    if values.ndim == 2:
        return number_all(Numbers(sizeof(Tag), min(len(values), limit)), None, None, readable(values, 1, 2), limit, -1)
    cdef Array source = bits_of(values)
    places = places_for(source) if integers else None
    return number_all(Numbers(sizeof(Slot), min(source.count, limit)), places, None, source, limit, -1)


def dictionary_build_byte_arrays(offsets, data, Py_ssize_t limit, Py_ssize_t limit_bytes):
    """See `reference.dictionary_build_byte_arrays`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data)
    with nogil:
        check_all_offsets(starts, source)
    numbers = Numbers(sizeof(Tag), min(starts.count - 1, limit))
    return number_all(numbers, None, starts, source, limit, max(limit_bytes, 0))


cdef object row_words(rows):
    """Rows of at most 8 bytes as the signed numbers that they are, the highest byte first, as in decimals."""
    cdef Array source = readable(rows, 1, 2)
    made = empty((source.count,), np.int64)
    cdef Array to = writable(made, 8)
    cdef int64_t* words = <int64_t*> to.at
    cdef Py_ssize_t n = source.count, width = source.columns, i
    cdef int beyond = <int> (64 - 8 * width)
    cdef uint8_t last[8]
    memset(last, 0, sizeof(last))
    with nogil:
        for i in range(n - 8):  # behind each of these there are 8 bytes at least
            words[i] = <int64_t> swapped64(load64(source.at + width * i)) >> beyond
        for i in range(max(n - 8, 0), n):
            memcpy(last, source.at + width * i, width)
            words[i] = <int64_t> swapped64(load64(last)) >> beyond
    return made


cdef object number_all(
    Numbers numbers, Places places, Array offsets, Array values, Py_ssize_t limit, Py_ssize_t limit_bytes
):
    """Indices and positions of distinct values; None where they, or their bytes unless that is -1, exceed a limit."""
    cdef Py_ssize_t done = 0, n = values.count if offsets is None else offsets.count - 1, most
    cdef Array to
    indices = None
    for index_type, count in INDEX_TYPES:
        wider = empty((n,), index_type)
        if done:
            wider[:done] = indices[:done]
        indices = wider
        to = writable(indices, 1 | 2 | 4)
        most = min(limit, count)
        with nogil:
            done = number_from(numbers, places, offsets, values, to, done, n, most, limit_bytes)
        if done == n:
            return indices, numbers.positions()
        if numbers.count >= limit or numbers.too_many_bytes:
            return None


cdef Py_ssize_t number_from(
    Numbers numbers, Places places, Array offsets, Array values, Array indices, Py_ssize_t done, Py_ssize_t n,
    Py_ssize_t most, Py_ssize_t limit_bytes
) except -1 nogil:
    """Numbers values from `done` on, up to the first that would be more than there may be."""
    if numbers.slot_size == sizeof(Slot):
        if values.width == 4:
            return number_values(numbers, places, <const uint32_t*> values.at, indices, done, n, most)
        return number_values(numbers, places, <const uint64_t*> values.at, indices, done, n, most)
    if offsets is None:
        return number_bytes[int64_t](numbers, NULL, values, indices, done, n, most, limit_bytes)
    if offsets.width == 4:
        return number_bytes(numbers, <const int32_t*> offsets.at, values, indices, done, n, most, limit_bytes)
    return number_bytes(numbers, <const int64_t*> offsets.at, values, indices, done, n, most, limit_bytes)


cdef void store_indices(Array indices, Py_ssize_t done, const int32_t* found, Py_ssize_t n) noexcept nogil:
    """Stores a block of indices in as few bytes as they have."""
    cdef uint8_t* narrow = indices.at + done
    cdef uint16_t* middle = <uint16_t*> indices.at + done
    cdef Py_ssize_t i
    if indices.width == 1:
        for i in range(n):
            narrow[i] = <uint8_t> found[i]
    elif indices.width == 2:
        for i in range(n):
            middle[i] = <uint16_t> found[i]
    else:
        memcpy(<int32_t*> indices.at + done, found, n * sizeof(int32_t))


cdef Py_ssize_t number_values(
    Numbers numbers, Places places, const Word* values, Array indices, Py_ssize_t done, Py_ssize_t n,
    Py_ssize_t most
) except -1 nogil:
    cdef int32_t found[1024]
    cdef Py_ssize_t end, i
    while done < n:
        end = min(done + 1024, n)
        if places is not None:
            i = number_by_place(numbers, places, values, done, end, most, found)
        elif numbers.num_slots * <Py_ssize_t> sizeof(Slot) >= FITS_CACHE and end + LOOK_AHEAD <= n:
            i = number_block(numbers, values, done, end, most, found, 1)
        else:
            i = number_block(numbers, values, done, end, most, found, 0)
        store_indices(indices, done, found, i - done)
        if i < end:
            return i
        done = end
    return n


cdef inline Py_ssize_t number_block(
    Numbers numbers, const Word* values, Py_ssize_t done, Py_ssize_t end, Py_ssize_t most, int32_t* found,
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
            found[i - done] = <int32_t> numbers.count
            numbers.add(i)
            slots[at].key = values[i]
            slots[at].number = numbers.count
            if numbers.count == numbers.room:
                grow(numbers)
                slots = <Slot*> numbers.slots
                num_slots = numbers.num_slots
        else:
            found[i - done] = <int32_t> (slots[at].number - 1)
    return end


cdef struct Block:  # byte arrays that are numbered at one time
    const uint8_t* data  # of all values
    Py_ssize_t last_start
    uint8_t last[64]  # bytes from `last_start` on, with INLINE of room behind them to read words from
    Py_ssize_t first  # position of the first value
    Py_ssize_t count
    Py_ssize_t longest
    int64_t starts[257]
    int32_t found[256]  # the number of each


cdef inline Py_ssize_t start_of(const Offset* offsets, Py_ssize_t width, Py_ssize_t i) noexcept nogil:
    """Where value i starts; without offsets all have the same width."""
    return <Py_ssize_t> offsets[i] if offsets != NULL else i * width


cdef Py_ssize_t number_bytes(
    Numbers numbers, const Offset* offsets, Array values, Array indices, Py_ssize_t done, Py_ssize_t n,
    Py_ssize_t most, Py_ssize_t limit_bytes
) except -1 nogil:
    cdef Block block
    cdef Py_ssize_t i
    block.data = values.at
    block.last_start = max(values.size - INLINE, 0)
    memset(block.last, 0, sizeof(block.last))
    if values.size:
        memcpy(block.last, values.at + block.last_start, values.size - block.last_start)
    while done < n:
        block.first = done
        block.count = min(<Py_ssize_t> HASHED_AT_ONCE, n - done)
        block.longest = 0
        block.starts[0] = start_of(offsets, values.columns, done)
        for i in range(block.count):
            block.starts[i + 1] = start_of(offsets, values.columns, done + i + 1)
            block.longest = max(block.longest, <Py_ssize_t> (block.starts[i + 1] - block.starts[i]))
        if numbers.num_slots * <Py_ssize_t> sizeof(Tag) > FITS_NEAR_CACHE:
            i = number_block_of_bytes(numbers, &block, most, limit_bytes, 1)
        else:
            i = number_block_of_bytes(numbers, &block, most, limit_bytes, 0)
        store_indices(indices, done, block.found, i)
        done += i
        if i < block.count:
            return done
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
    Numbers numbers, Block* block, Py_ssize_t most, Py_ssize_t limit_bytes, const bint ahead
) except -1 nogil:
    if block.longest <= 8:
        return number_some(numbers, block, most, limit_bytes, 1, ahead)
    if block.longest <= 16:
        return number_some(numbers, block, most, limit_bytes, 2, ahead)
    if block.longest <= INLINE:
        return number_some(numbers, block, most, limit_bytes, 4, ahead)
    return number_some(numbers, block, most, limit_bytes, 0, ahead)


cdef inline Py_ssize_t number_some(
    Numbers numbers, Block* block, Py_ssize_t most, Py_ssize_t limit_bytes, const int num_words, const bint ahead
) except -1 nogil:
    """Numbers values of at most `num_words` words, of which each call has its own copy of the loop; 0 is any.

    With `ahead` all are hashed first, and what they lead to is asked for. Returns how many have a number.
    """
    # All that is looked up again and again in variables of its own, which writing an index cannot change.
    cdef Tag* slots = <Tag*> numbers.slots
    cdef Entry* entries = numbers.entries
    cdef Entry* entry
    cdef Rest* rest
    cdef uint64_t secret = SECRET, other_secret = OTHER_SECRET
    cdef uint64_t hashes[HASHED_AT_ONCE]
    cdef uint64_t mask = <uint64_t> numbers.num_slots - 1, hash, one = 0, two = 0, three = 0, four = 0
    cdef Py_ssize_t i, at, size, start, last_start = block.last_start, count = block.count
    cdef const uint8_t* data = block.data
    cdef const uint8_t* source
    cdef uint32_t tag
    cdef uint64_t number
    if ahead:
        for i in range(count):
            start = block.starts[i]
            size = block.starts[i + 1] - start
            if num_words or size <= INLINE:
                source = data + start if start < last_start else block.last + (start - last_start)
                one = masked_word(source, size, 0)
                if num_words != 1:
                    two = masked_word(source, size, 8)
                if num_words == 0 or num_words == 4:
                    three = masked_word(source, size, 16)
                    four = masked_word(source, size, 24)
                hashes[i] = hash_words(one, two, three, four, size, secret, other_secret)
            else:
                hashes[i] = hash_bytes(data + start, size, secret, other_secret)
        ask_ahead(numbers, hashes, count)
    for i in range(count):
        start = block.starts[i]
        size = block.starts[i + 1] - start
        if num_words or size <= INLINE:
            source = data + start if start < last_start else block.last + (start - last_start)
            one = masked_word(source, size, 0)
            if num_words != 1:
                two = masked_word(source, size, 8)
            if num_words == 0 or num_words == 4:
                three = masked_word(source, size, 16)
                four = masked_word(source, size, 24)
            if ahead:
                hash = hashes[i]
            else:
                hash = hash_words(one, two, three, four, size, secret, other_secret)
        else:
            one = hash = hashes[i] if ahead else hash_bytes(data + start, size, secret, other_secret)
            two = <uint64_t> start
        tag = <uint32_t> hash
        at = <Py_ssize_t> (tag & mask)
        number = slots[at] & mask
        while number:
            entry = &entries[number - 1]
            if (slots[at] ^ tag) & ~mask == 0 and entry.size == <uint32_t> size and entry.words[0] == one:
                if num_words == 1:
                    break
                if num_words == 0 and size > INLINE:
                    if equal_bytes(data + entry.words[1], data + start, size):
                        break
                elif entry.words[1] == two:
                    if num_words == 2 or size <= 16:
                        break
                    rest = &numbers.rests[number - 1]  # which that of the same size has therefore, too
                    if rest.words[0] == three and rest.words[1] == four:
                        break
            at = <Py_ssize_t> (<uint64_t> (at + 1) & mask)
            number = slots[at] & mask
        if number:
            block.found[i] = <int32_t> (number - 1)
            continue
        if numbers.count >= most or (limit_bytes >= 0 and numbers.num_bytes + 4 + size > limit_bytes):
            numbers.too_many_bytes = numbers.count < most
            return i
        block.found[i] = <int32_t> numbers.count
        entries[numbers.count] = Entry([one, two], <uint32_t> size, tag)
        if 16 < size <= INLINE:
            if numbers.rests == NULL:
                numbers.make_rests()
            numbers.rests[numbers.count] = Rest([three, four])
        numbers.add(block.first + i)
        numbers.num_bytes += 4 + size
        slots[at] = <Tag> ((tag & ~mask) | <uint64_t> numbers.count)
        if numbers.count == numbers.room:
            grow_beside_entries(numbers)
            slots = <Tag*> numbers.slots
            entries = numbers.entries
            mask = <uint64_t> numbers.num_slots - 1
    return count
