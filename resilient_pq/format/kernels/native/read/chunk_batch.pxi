# Batches of flat column chunks, from their bytes to Arrow arrays. Included by `_native.pyx` behind all that it calls.
#
# A chunk that is damaged or uncommon in any way is declined, whatever of it was done already: this says nothing of what
# is wrong, and reports no error.

cdef enum:  # the numbers of a chunk, as `ChunkField` has them
    CHUNK_TYPE
    CHUNK_WIDTH
    CHUNK_OPTIONAL
    CHUNK_CODEC
    CHUNK_VALUES
    CHUNK_ROWS
    CHUNK_SIZE
    CHUNK_LEAST_CRC
    CHUNK_TEXT
    CHUNK_NARROW
    CHUNK_FIELDS

cdef enum:
    PAGE_PLACE = 0  # in the place of where its header began: where in `scratch` it is decompressed, or one of these
    STORED = -1  # in the chunk, as it is not compressed
    LANDED = -2  # its values stand in their slots
    OF_BOOLEANS = 0
    OF_BYTE_ARRAYS = 6
    ALIGNMENT = 64
    LANDING = 16  # bytes before the first slot, for levels that are decompressed with the values behind them
    MOST_WIDTH = 1 << 20

cdef struct BatchChunk:
    bint declined
    bint opened  # its pages were compared and decompressed here
    bint has_dictionary
    int64_t* pages  # rows of `PAGE_FIELDS`
    Py_ssize_t num_pages
    Py_ssize_t room
    Py_ssize_t num_bytes  # of all byte arrays of pages that hold them, at most
    Py_ssize_t values  # where these lie in `arena`: offsets, where values are byte arrays
    Py_ssize_t data
    Py_ssize_t validity

cdef struct ChunkFill:
    # A chunk while its pages are decoded.
    const int64_t* chunk
    uint8_t* values
    uint8_t* data
    Py_ssize_t num_bytes
    Py_ssize_t written
    uint8_t* known  # its dictionary: values; or codes of byte arrays, then their offsets, then their bytes
    Py_ssize_t num_known
    Py_ssize_t known_bytes
    uint8_t* booleans
    Levels levels
    Py_ssize_t slot
    Py_ssize_t num_present
    bint valid


cdef inline Py_ssize_t aligned(Py_ssize_t at) noexcept nogil:
    return (at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


cdef class ChunkBatch:
    """See `reference.ChunkBatch`."""

    cdef Buffers parts
    cdef Array described, arena_memory, scratch_memory, flags_memory, dictionary_memory
    cdef object arena, scratch
    cdef BatchChunk* chunks
    cdef Py_ssize_t count

    def __init__(self, parts, described):
        cdef Py_ssize_t i
        if self.chunks != NULL:
            raise ValueError("a batch is prepared once")
        self.parts, self.described = Buffers(parts), readable(described, 8, 2)
        self.count = self.described.count
        if self.described.columns != CHUNK_FIELDS or self.parts.count != self.count:
            raise ValueError("there must be a row of numbers for the bytes of each chunk")
        self.chunks = <BatchChunk*> calloc(self.count + 1, sizeof(BatchChunk))
        if self.chunks == NULL:
            raise MemoryError
        for i in range(self.count):
            try:
                with nogil:
                    self.chunks[i].declined = not self.look_at(i)
            except (EncodingError, ThriftError):
                self.chunks[i].declined = True
        self.make_room()

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.chunks != NULL:
            for i in range(self.count):
                free(self.chunks[i].pages)
        free(self.chunks)

    cdef const int64_t* numbers(self, Py_ssize_t i) noexcept nogil:
        return <const int64_t*> self.described.at + i * CHUNK_FIELDS

    cdef int look_at(self, Py_ssize_t i) except -1 nogil:
        """Reads the page headers of a chunk; False where one of its pages is uncommon."""
        cdef const int64_t* chunk = self.numbers(i)
        cdef BatchChunk* of_it = &self.chunks[i]
        cdef int64_t* page
        cdef int64_t found = 0, size = 0
        cdef Py_ssize_t p
        cdef bint coded = False
        if not 0 < chunk[CHUNK_ROWS] < LARGEST_LENGTH or not has_width(chunk):
            return False
        of_it.num_pages = read_page_headers(
            self.parts.starts[i], self.parts.sizes[i], chunk[CHUNK_VALUES], &of_it.pages, &of_it.room
        )
        for p in range(of_it.num_pages):
            page = of_it.pages + p * PAGE_FIELDS
            size += page[3]
            if (chunk[CHUNK_CODEC] == 0 or not page[12]) and page[2] != page[3]:
                return False
            if page[4] == 2:
                if p or chunk[CHUNK_TYPE] == OF_BOOLEANS or page[7] not in (0, 2) or page[6] > page[3]:
                    return False
                of_it.has_dictionary = True
                continue
            if not is_common(chunk, page, of_it.has_dictionary):
                return False
            found += page[6]
            coded |= page[7] == 2 or page[7] == 8
            if page[7] == 0 or page[7] == 6:
                of_it.num_bytes += page[3]
        if chunk[CHUNK_TYPE] == OF_BYTE_ARRAYS and of_it.has_dictionary and (of_it.num_bytes or not coded):
            return False  # some of its values come from a dictionary, some do not
        return found == chunk[CHUNK_ROWS] and size <= chunk[CHUNK_SIZE] and of_it.num_bytes < LARGEST_LENGTH

    cdef int make_room(self) except -1:
        """Sets where each value and each page that is to be decompressed comes to lie."""
        cdef Py_ssize_t i, p, at = 0, scratch = 0, flags = 0, known = 0, n, slot
        cdef const int64_t* chunk
        cdef BatchChunk* of_it
        cdef int64_t* page
        for i in range(self.count):
            of_it = &self.chunks[i]
            if of_it.declined:
                continue
            chunk = self.numbers(i)
            n = chunk[CHUNK_ROWS]
            of_it.values = at = aligned(at + LANDING)
            if chunk[CHUNK_TYPE] == OF_BYTE_ARRAYS:
                of_it.data = aligned(at + 4 * (n + 1))
                at = of_it.data + of_it.num_bytes
            else:
                at += n * chunk[CHUNK_WIDTH] if chunk[CHUNK_WIDTH] else (n + 7) // 8
            if chunk[CHUNK_OPTIONAL]:
                of_it.validity = at = aligned(at)
                at += (n + 7) // 8
            flags = max(flags, n)
            slot = 0
            for p in range(of_it.num_pages):
                page = of_it.pages + p * PAGE_FIELDS
                page[PAGE_PLACE] = STORED
                if chunk[CHUNK_CODEC] and page[12]:
                    if lands(chunk, page, self.parts.starts[i]):
                        page[PAGE_PLACE] = LANDED
                    else:
                        page[PAGE_PLACE] = scratch
                        scratch = aligned(scratch + page[3])
                if page[4] == 2:
                    known = max(known, 8 * (page[6] + 1) + page[3] + page[6] * chunk[CHUNK_WIDTH])
        self.arena, self.scratch = empty((at,), np.uint8), empty((scratch,), np.uint8)
        self.arena_memory, self.scratch_memory = writable(self.arena), writable(self.scratch)
        self.flags_memory = writable(empty((2 * flags,), np.uint8))
        self.dictionary_memory = writable(empty((known,), np.uint8))
        return 0

    def decline(self, Py_ssize_t i):
        """See `reference.ChunkBatch`."""
        if not 0 <= i < self.count:
            raise IndexError(i)
        self.chunks[i].declined = True

    def bodies(self):
        """See `reference.ChunkBatch`."""
        cdef list found = []
        cdef Py_ssize_t i
        cdef BatchChunk* of_it
        with nogil:
            for i in range(self.count):
                of_it = &self.chunks[i]
                of_it.opened = not of_it.declined and opens_here(self.numbers(i), of_it)
                if of_it.opened:
                    of_it.declined = not open_pages(
                        self.numbers(i), of_it, self.parts.starts[i], self.arena_memory.at, self.scratch_memory.at
                    )
        for i in range(self.count):
            if not self.chunks[i].declined and not self.chunks[i].opened:
                self.add_bodies(i, found)
        return found

    cdef int add_bodies(self, Py_ssize_t i, list found) except -1:
        cdef const int64_t* chunk = self.numbers(i)
        cdef const int64_t* page
        cdef Py_ssize_t slot = chunk[CHUNK_ROWS], p, skipped, at
        cdef uint8_t levels[LANDING]
        # From behind: the levels of a page that lands may come over the last values of the one before it.
        for p in range(self.chunks[i].num_pages - 1, -1, -1):
            page = self.chunks[i].pages + p * PAGE_FIELDS
            slot -= page[6] if page[4] != 2 else 0
            if page[PAGE_PLACE] == STORED and page[5] < chunk[CHUNK_LEAST_CRC]:
                continue
            room, before, skipped = None, b"", 0
            if page[4] == 3:
                skipped = page[10] + page[11]
            if page[PAGE_PLACE] == LANDED:
                at = self.chunks[i].values + slot * chunk[CHUNK_WIDTH]
                if page[4] == 0 and chunk[CHUNK_OPTIONAL]:
                    before = (<const char*> levels)[: levels_of_values(page[6], levels)]
                room = self.arena[at - len(before) : at + page[6] * chunk[CHUNK_WIDTH]]
            elif page[PAGE_PLACE] >= 0:
                at = page[PAGE_PLACE]
                memcpy(self.scratch_memory.at + at, self.parts.starts[i] + page[1], skipped)
                if page[2] > skipped or page[3] > skipped:  # some writers leave out even the empty frame
                    room = self.scratch[at + skipped : at + page[3]]
            crc = page[5] if page[5] >= chunk[CHUNK_LEAST_CRC] else -1
            found.append((i, page[1], skipped, page[1] + page[2], crc, room, before))
        return 0

    def arrays(self):
        """See `reference.ChunkBatch`."""
        cdef list made = []
        cdef Py_ssize_t i
        for i in range(self.count):
            try:
                made.append(None if self.chunks[i].declined else self.decoded(i))
            except (EncodingError, ThriftError):
                made.append(None)
        return made

    cdef ArrowStruct decoded(self, Py_ssize_t i):
        """The array of a chunk; None where its text is none."""
        cdef ChunkFill fill
        cdef const int64_t* chunk = self.numbers(i)
        cdef BatchChunk* of_it = &self.chunks[i]
        cdef Py_ssize_t n = chunk[CHUNK_ROWS]
        cdef int64_t total = 0
        cdef Array data
        cdef ArrowStruct made
        cdef bint strings = chunk[CHUNK_TYPE] == OF_BYTE_ARRAYS
        with nogil:
            self.fill_chunk(i, &fill)
            if strings and fill.known != NULL and fill.valid:
                total = sum_chosen(<int32_t*> fill.known + fill.num_known, fill.num_known + 1,
                                   <int32_t*> fill.values + 1, n)
        if not fill.valid or total > LARGEST_LENGTH:
            return None
        owner = self.arena
        if strings and fill.known != NULL:
            owner = empty((total,), np.uint8)
            data = writable(owner)
            fill.data = data.at
            owner = (self.arena, owner)
            with nogil:
                (<int32_t*> fill.values)[0] = 0
                place_chosen(<int32_t*> fill.known + fill.num_known, fill.num_known + 1,
                             bytes_of_known(&fill), fill.known_bytes,
                             <int32_t*> fill.values + 1, n, fill.data, total, 0)
        made = array_over(owner, n, n - fill.num_present, 3 if strings else 2)
        if fill.num_present < n:
            made.array.buffers[0] = self.arena_memory.at + of_it.validity
        made.array.buffers[1] = fill.values
        made.array.buffers[2] = fill.data
        return made

    cdef int fill_chunk(self, Py_ssize_t i, ChunkFill* fill) except -1 nogil:
        """Decodes the pages of a chunk, and puts its flags and booleans into bits."""
        cdef BatchChunk* of_it = &self.chunks[i]
        cdef const int64_t* page
        cdef const uint8_t* body
        cdef Py_ssize_t p, n, size
        memset(fill, 0, sizeof(ChunkFill))
        fill.chunk, fill.valid = self.numbers(i), True
        n = fill.chunk[CHUNK_ROWS]
        fill.values, fill.data = self.arena_memory.at + of_it.values, self.arena_memory.at + of_it.data
        fill.num_bytes = of_it.num_bytes
        fill.levels.max_definition = <int> fill.chunk[CHUNK_OPTIONAL]
        fill.levels.present, fill.levels.num_flags = self.flags_memory.at, n
        fill.booleans = self.flags_memory.at + self.flags_memory.size // 2
        for p in range(of_it.num_pages):
            page = of_it.pages + p * PAGE_FIELDS
            if page[PAGE_PLACE] == LANDED:
                fill.slot += page[6]
                fill.num_present += page[6]
                continue
            body, size = self.parts.starts[i] + page[1], page[2]
            if page[PAGE_PLACE] >= 0:
                body, size = self.scratch_memory.at + page[PAGE_PLACE], page[3]
            if page[4] == 2:
                fill.known = self.dictionary_memory.at
                read_dictionary(fill, body, size, page[6])
            else:
                read_values(fill, page, body, size)
        if fill.chunk[CHUNK_TYPE] == OF_BOOLEANS:
            pack_flags(fill.booleans, n, fill.values)
        elif fill.chunk[CHUNK_NARROW] == 1:
            narrow(<const uint32_t*> fill.values, n, fill.values)
        elif fill.chunk[CHUNK_NARROW] == 2:
            narrow(<const uint32_t*> fill.values, n, <uint16_t*> fill.values)
        if fill.num_present < n:
            memset(fill.levels.present + fill.levels.flagged, 1, n - fill.levels.flagged)
            pack_flags(fill.levels.present, n, self.arena_memory.at + of_it.validity)
        return 0


cdef bint has_width(const int64_t* chunk) noexcept nogil:
    """Whether values of the physical type have the width, and may be narrowed."""
    cdef int64_t kind = chunk[CHUNK_TYPE], width = chunk[CHUNK_WIDTH]
    if not 0 <= chunk[CHUNK_OPTIONAL] <= 1 or not 0 <= chunk[CHUNK_NARROW] <= (2 if kind == 1 else 0):
        return False
    if kind == OF_BOOLEANS or kind == OF_BYTE_ARRAYS:
        return width == 0
    if kind == 1 or kind == 4:
        return width == 4
    return width == 8 if kind == 2 or kind == 5 else kind == 7 and 0 < width <= MOST_WIDTH


cdef bint is_common(const int64_t* chunk, const int64_t* page, bint has_dictionary) noexcept nogil:
    """Whether levels and values of a data page are what the batch reads."""
    cdef int64_t kind = chunk[CHUNK_TYPE], encoding = page[7]
    if page[4] == 0:
        if chunk[CHUNK_OPTIONAL] and page[8] != 3:
            return False
    elif page[4] != 3 or page[11] != 0 or not 0 <= page[10] <= min(page[2], page[3]):
        return False
    elif page[10] and not chunk[CHUNK_OPTIONAL]:
        return False
    if encoding == 0:
        return True
    if encoding == 2 or encoding == 8:
        return has_dictionary
    if encoding == 3:
        return kind == OF_BOOLEANS
    if encoding == 5:
        return kind == 1 or kind == 2
    if encoding == 6:
        return kind == OF_BYTE_ARRAYS
    return encoding == 9 and chunk[CHUNK_WIDTH] > 0


cdef Py_ssize_t levels_of_values(int64_t count, uint8_t* out) noexcept nogil:
    """Writes the levels of a data page v1 without nulls, as most writers do, and returns how many bytes these are."""
    cdef Py_ssize_t written = write_varint(out + 4, <uint64_t> count << 1)
    out[4 + written] = 1
    store32(out, <uint32_t> written + 1)
    return written + 5


cdef bint lands(const int64_t* chunk, const int64_t* page, const uint8_t* part) noexcept nogil:
    """Whether a page can be decompressed to where its values belong: by its size it has no nulls."""
    cdef uint8_t levels[LANDING]
    cdef Py_ssize_t before = 0
    if page[4] == 2 or page[7] != 0 or chunk[CHUNK_WIDTH] == 0 or page[6] == 0:
        return False
    if page[4] == 3:
        before = page[10]
        if chunk[CHUNK_OPTIONAL] and not all_at_maximum(part + page[1], before, 1, page[6]):
            return False
    elif chunk[CHUNK_OPTIONAL]:
        before = levels_of_values(page[6], levels)
    return page[3] == before + page[6] * chunk[CHUNK_WIDTH]


cdef inline uint8_t* bytes_of_known(const ChunkFill* fill) noexcept nogil:
    """Behind the codes of byte arrays, and behind their offsets, of which there are two more."""
    return fill.known + 4 * (2 * fill.num_known + 2)


cdef int read_dictionary(ChunkFill* fill, const uint8_t* data, Py_ssize_t size, int64_t count) except -1 nogil:
    """Takes a dictionary page; of byte arrays each gets a code, and code 0 is an empty one that stands for none."""
    cdef Py_ssize_t width = fill.chunk[CHUNK_WIDTH], j
    cdef int64_t[4] span
    cdef int32_t* codes = <int32_t*> fill.known
    fill.num_known = count
    if fill.chunk[CHUNK_TYPE] != OF_BYTE_ARRAYS:
        if count > size // width:
            return malformed(b"a dictionary has fewer bytes than its values need")
        memcpy(fill.known, data, count * width)
        return 0
    for j in range(count):
        codes[j] = <int32_t> j + 1
    codes[count] = 0
    span[0], span[1], span[2], span[3] = 0, size, count, count
    fill.valid = fill.chunk[CHUNK_TEXT] != 0
    fill.known_bytes = split_pages(data, size, span, 1, NULL, codes + count + 1, bytes_of_known(fill), size, 0,
                                   &fill.valid)
    fill.valid |= fill.chunk[CHUNK_TEXT] == 0
    return 0


cdef int read_values(ChunkFill* fill, const int64_t* page, const uint8_t* data, Py_ssize_t size) except -1 nogil:
    """Decodes a data page into its slots."""
    cdef int64_t[5] part
    cdef int64_t[4] span
    cdef const uint8_t* flags = fill.levels.present
    cdef Py_ssize_t width = fill.chunk[CHUNK_WIDTH], slot = fill.slot
    cdef bint numbers = fill.chunk[CHUNK_TYPE] != 7
    part[0], part[1], part[2], part[3], part[4] = 0, size, page[6], 0, page[10]
    fill.slot = read_levels_of_pages(data, size, part, 1, &fill.levels, slot, span)
    fill.num_present += span[3]
    if fill.chunk[CHUNK_TYPE] == OF_BYTE_ARRAYS:
        read_byte_arrays(fill, page[7], data, size, span, slot)
    elif fill.chunk[CHUNK_TYPE] == OF_BOOLEANS:
        read_booleans(fill, page[7], data, span, slot)
    elif page[7] == 0:
        copy_plain(data, span, 1, flags, slot, fill.values, width, numbers, False)
    elif page[7] == 2 or page[7] == 8:
        copy_chosen(data, span, 1, flags, slot, fill.known, fill.num_known, fill.values, width, numbers)
    else:
        if span[3]:
            read_numbers(page[7], data + span[0], span[1] - span[0], fill.values + slot * width, width, span[3])
        spread_page(fill.values + slot * width, width, numbers, flags + slot, span)
    return 0


cdef int read_numbers(
    int64_t encoding, const uint8_t* data, Py_ssize_t size, uint8_t* out, Py_ssize_t width, Py_ssize_t count
) except -1 nogil:
    """Decodes values of DELTA_BINARY_PACKED or BYTE_STREAM_SPLIT."""
    if encoding == 9:
        if size // width < count or size % width:
            return malformed(b"streams have another size than their values need")
        join_streams_of(data, size // width, count, width, out)
    elif width == 4:
        decode_delta(data, size, <int32_t*> out, count)
    else:
        decode_delta(data, size, <int64_t*> out, count)
    return 0


cdef int read_booleans(
    ChunkFill* fill, int64_t encoding, const uint8_t* data, const int64_t* span, Py_ssize_t slot
) except -1 nogil:
    cdef Py_ssize_t start = span[0]
    cdef int64_t size = 0
    if encoding == 0:
        return copy_plain(data, span, 1, fill.levels.present, slot, fill.booleans, 1, True, True)
    if span[3]:
        find_levels(data, &start, span[1], -1, &size)
        decode_runs(data + start, size, 1, fill.booleans + slot, span[3])
    return spread_page(fill.booleans + slot, 1, True, fill.levels.present + slot, span)


cdef int read_byte_arrays(
    ChunkFill* fill, int64_t encoding, const uint8_t* data, Py_ssize_t size, const int64_t* span, Py_ssize_t slot
) except -1 nogil:
    cdef int32_t* offsets = <int32_t*> fill.values + slot
    cdef const uint8_t* flags = fill.levels.present
    cdef Py_ssize_t start, end, j
    cdef bint valid = fill.chunk[CHUNK_TEXT] != 0
    if encoding == 2 or encoding == 8:
        # Codes stand in the place of offsets until the bytes of all of them are known.
        return copy_chosen(data, span, 1, flags, slot, fill.known, fill.num_known, <uint8_t*> (
            <int32_t*> fill.values + 1), 4, True)
    if encoding == 0:
        fill.written = split_pages(data, size, span, 1, flags + slot, offsets, fill.data, fill.num_bytes,
                                   fill.written, &valid)
        fill.valid &= valid or not fill.chunk[CHUNK_TEXT]
        return 0
    start, end = span[0], fill.written
    if span[3]:
        start += decode_delta(data + start, span[1] - start, offsets + 1, span[3])
    spread_page(<uint8_t*> (offsets + 1), 4, True, flags + slot, span)
    offsets[0] = <int32_t> end
    for j in range(span[2]):
        if not 0 <= offsets[j + 1] <= span[1] - start - (end - fill.written):
            return malformed(b"a value has a length that leads out of its page")
        end += offsets[j + 1]
        offsets[j + 1] = <int32_t> end
    if end > fill.num_bytes:
        return malformed(b"BYTE_ARRAY values do not fit their room")
    memcpy(fill.data + fill.written, data + start, end - fill.written)
    if valid:
        fill.valid &= all_utf8(offsets, span[2], fill.data)
    fill.written = end
    return 0


cdef void pack_flags(const uint8_t* flags, Py_ssize_t n, uint8_t* out) noexcept nogil:
    """Puts flags, which are 0 or 1, into bits, the first into the least significant one."""
    cdef Py_ssize_t i, j
    for i in range(n // 8):  # the product has flag j at bit 56 + j, and no two of its terms at one place
        out[i] = <uint8_t> (load64(flags + 8 * i) * <uint64_t> 0x0102040810204080 >> 56)
    if n % 8:
        out[n // 8] = 0
        for j in range(n % 8):
            out[n // 8] |= flags[n // 8 * 8 + j] << j


cdef void narrow(const uint32_t* values, Py_ssize_t n, Packed* out) noexcept nogil:
    """The lowest bits of numbers, which may stand in the same memory."""
    cdef Py_ssize_t i
    for i in range(n):
        out[i] = <Packed> values[i]
