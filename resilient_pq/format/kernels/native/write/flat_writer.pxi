# Column chunks of one page made of flat rows. Included by `_native.pyx` behind all that it calls.
#
# What `format.pages.chunk_encoder` makes of a chunk is the definition: here are the same bytes. A chunk that is uncommon
# in any way is declined; whoever encodes it then says what is wrong where something is.

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize
from libc.math cimport INFINITY
from libc.stdint cimport INT64_MAX

cdef enum:  # the numbers of its options, as `OptionNumber` has them
    OPTION_ORDER
    OPTION_CODEC
    OPTION_LEVEL
    OPTION_DICTIONARY
    OPTION_PAGE_BYTES
    OPTION_PAGE_ROWS
    OPTION_FIELDS

cdef enum:
    MOST_COPIED = 1 << 16  # bytes of a dictionary page of which the record has a copy
    MOST_BOUND = 64
    FEW_VALUES = 512  # of fewer, distinct ones are not estimated
    NUM_RUNS = 32
    CLEAR_DELTA = 128  # as of `encoding_choice`
    CLEAR_DELTA_PART = 32
    SEQUENCE = 2
    FREE_CHOICE = 0  # whether a chunk has a dictionary: what is smallest, one, none, or as the first chunk of its column
    KEPT_DICTIONARY = 1
    NO_DICTIONARY = 2
    FIRST_CHUNK = 3
    PLAIN_VALUES = 0
    RLE_LEVELS = 3
    DELTA_VALUES = 5
    DICTIONARY_INDICES = 8
    ORDER_SIGNED = 1  # as of `statistics.Order`
    ORDER_UNSIGNED = 2
    ORDER_FLOAT = 3
    ORDER_BOOLEAN = 4
    ORDER_BYTES = 5
    SNAPPY = 1


cdef class Memory:
    """Room for chunks, and for what is compressed of them."""

    cdef Room* room
    cdef Array out

    def __cinit__(self):
        self.room = <Room*> malloc(sizeof(Room))
        if self.room == NULL:
            raise MemoryError
        out = np.empty(2 * MOST_CHUNK_BYTES, np.uint8)
        self.out = writable(out)
        self.room.out, self.room.packed = <PyObject*> out, self.out.at  # which keeps the array

    def __dealloc__(self):
        free(self.room)


#: What was used last and is used by nobody: to take it from the system costs as much as a small chunk.
cdef list SPARE = []


cdef class FlatWriter:
    """Makes column chunks of flat rows, by a row of `OptionNumber`s and the bytes of its path for each leaf.

    `compress` gives the bytes of one buffer in a codec, `compress_parts` those of several, `snappy_into` puts those of
    Snappy into another; `plain_bound` cuts a long bound of the leaf of a number.
    """

    cdef Array options
    cdef list paths
    cdef object compress, compress_parts, snappy_into, crc32, combine, plain_bound

    def __init__(self, options, list paths, compress, compress_parts, snappy_into, crc32, combine, plain_bound):
        self.options, self.paths = readable(options, 8, 2), paths
        if self.options.columns != OPTION_FIELDS or self.options.count != len(paths):
            raise ValueError("there must be a row of numbers for each path")
        self.compress, self.compress_parts, self.plain_bound = compress, compress_parts, plain_bound
        self.snappy_into = snappy_into
        self.crc32, self.combine = crc32, combine

    def chunks(self, FlatRows rows, Py_ssize_t start, Py_ssize_t count, Py_ssize_t first, Py_ssize_t last, bytes choices):
        """Chunks of `count` rows from `start` on, of the leaves from `first` up to `last`; None for one that is declined.

        `choices` has a byte for each leaf, which says of dictionaries what the constants above do.
        """
        cdef list made = []
        cdef Py_ssize_t i
        if not (rows.simple and 0 <= start and 0 < count <= rows.length - start and 0 <= first <= last):
            raise ValueError("the rows, or some of them, are not there")
        if not last <= self.options.count == rows.leaves.count == len(choices):
            raise ValueError("there must be numbers, a path and a choice for each leaf")
        cdef Memory memory = SPARE.pop() if SPARE else Memory()
        for i in range(first, last):
            made.append(self.chunk(rows, memory.room, start, count, i, choices[i]))
        if not SPARE:
            SPARE.append(memory)
        return made

    cdef FlatChunk chunk(self, FlatRows rows, Room* room, Py_ssize_t start, Py_ssize_t count, Py_ssize_t i, int choice):
        cdef const int64_t* leaf = <const int64_t*> rows.leaves.at + i * LEAF_FIELDS
        cdef const int64_t* options = <const int64_t*> self.options.at + i * OPTION_FIELDS
        cdef Py_ssize_t at
        cdef Gathered* of = &room.of
        cdef bint whole, optional = leaf[LEAF_OPTIONAL] != 0
        if leaf[LEAF_COLUMN] < 0 or options[OPTION_ORDER] == 0:
            return None
        at = rows.starts[leaf[LEAF_COLUMN]] + start
        if not has_order(leaf[LEAF_KIND], options[OPTION_ORDER]):
            raise ValueError("values of this type do not compare like that")
        if count > MOST_ROWS or count > options[OPTION_PAGE_ROWS] or 2 * count > options[OPTION_PAGE_BYTES]:
            return None
        with nogil:
            memset(of, 0, sizeof(Gathered))
            of.n = count
            whole = gather_values(leaf, rows.columns[leaf[LEAF_COLUMN]], at, room)
        if not whole or of.plain > min(<Py_ssize_t> MOST_CHUNK_BYTES, options[OPTION_PAGE_BYTES]):
            return None
        made = FlatChunk()
        made.buffers, made.header_crcs, made.path = [], [], self.paths[i]
        made.physical_type, made.codec = <int> leaf[LEAF_KIND], <int> options[OPTION_CODEC]
        made.num_values, made.null_count = of.n, of.n - of.m
        made.byte_array_bytes = of.plain - 4 * of.m if of.strings else -1
        made.nan_count = -1
        self.add_pages(made, options, room, choice, optional)
        self.put_bounds(made, leaf, options, of, room, i)
        return made

    cdef int add_pages(self, FlatChunk made, const int64_t* options, Room* room, int choice, bint optional) except -1:
        """Chooses the encoding, as `encoding_choice` does, and adds the pages of it."""
        cdef Gathered* of = &room.of
        cdef bytes plain = plain_values(room), levels = None, values = plain, indices = None, entries = None
        cdef bytes crcs
        packed = packed_entries = None
        cdef int encoding = PLAIN_VALUES, codec = <int> options[OPTION_CODEC]
        cdef bint integers = made.physical_type == 1 or made.physical_type == 2
        cdef int64_t most = INT64_MAX
        cdef bint clear = False
        cdef int narrow = integers and of.m == of.n >= 2
        if optional:
            levels = levels_of(room)
        delta = None
        packed_plain = None
        if made.physical_type == 0 or of.m == 0 or choice == NO_DICTIONARY:
            pass
        elif choice == KEPT_DICTIONARY or (choice == FIRST_CHUNK and repeats(room, options[OPTION_DICTIONARY])):
            if not of.numbered:
                number_distinct(room, of.m, INT64_MAX)
            encoding, indices, entries = DICTIONARY_INDICES, indices_of(room), entries_of(room)
        else:
            if narrow:
                narrow = narrow_steps(of)
            if narrow:
                delta = delta_of(room)
                packed_delta = self.packed(room, codec, delta, options[OPTION_LEVEL])
                most = 4 * <int64_t> len(packed_delta)
                clear = narrow == SEQUENCE and most <= 4 * CLEAR_DELTA and CLEAR_DELTA_PART * most <= 4 * of.plain
                if not clear:
                    packed_plain = self.packed(room, codec, plain, options[OPTION_LEVEL])
            if clear:
                encoding, values, packed, delta = DELTA_VALUES, delta, packed_delta, None
            elif dictionary_pays(room, options[OPTION_DICTIONARY], most):
                indices, entries = indices_of(room), entries_of(room)
                encoding = DICTIONARY_INDICES
                if codec or delta is not None:
                    packed = self.packed(room, codec, indices, options[OPTION_LEVEL])
                    packed_entries = self.packed(room, codec, entries, options[OPTION_LEVEL])
                    if packed_plain is None:
                        packed_plain = self.packed(room, codec, plain, options[OPTION_LEVEL])
                    if delta is None and len(packed_plain) <= 0.8 * (len(packed) + len(packed_entries)):
                        encoding = PLAIN_VALUES
            if delta is not None:
                limit = INFINITY if encoding == PLAIN_VALUES else 0.8 * (len(packed) + len(packed_entries))
                if len(packed_delta) < 0.95 * len(packed_plain) and len(packed_delta) <= limit:
                    encoding, values, packed = DELTA_VALUES, delta, packed_delta
                elif encoding == PLAIN_VALUES or len(packed_plain) <= limit:
                    encoding = PLAIN_VALUES
            if encoding == PLAIN_VALUES:
                packed = packed_plain
        made.encoding = encoding
        made.encodings = [encoding] if encoding or not optional else [0, 3]
        if encoding and optional:
            made.encodings = sorted([encoding, 3])
        crcs = b""
        if encoding == DICTIONARY_INDICES:
            made.encodings = [0, 3, 8] if optional else [0, 8]
            made.dictionary_encoding = PLAIN_VALUES
            crcs = self.add_page(made, room, 2, of.count, PLAIN_VALUES, None, entries, packed_entries, options)
            made.dictionary_header, body = made.buffers
            made.dictionary_size = made.size
            made.dictionary_copy = bytes(memoryview(body)) if len(body) <= MOST_COPIED else None
            values = indices
        elif encoding == PLAIN_VALUES and of.strings and codec and packed is None and levels is not None:
            levels, values = None, levels + values  # as one
        body = len(made.buffers)
        crcs += self.add_page(made, room, 0, of.n, encoding, levels, values, packed, options)
        made.page_header = made.buffers[body]
        made.sums = sums_field(crcs)
        for values_of in (made.buffers, made.header_crcs, made.encodings):
            leave_to_references(values_of)
        return 0

    cdef object packed(self, Room* room, int codec, bytes data, int64_t level):
        """Bytes as they are in a codec."""
        cdef Py_ssize_t size
        if codec != SNAPPY:
            return self.compress(codec, data, level) if codec else data
        size = self.snappy_into(data, <object> room.out)
        return room.packed[:size]

    cdef bytes behind_snappy(self, bytes levels, Py_ssize_t size, bytes packed):
        """Levels as a literal before `size` bytes that are compressed: as `codecs.compress_parts` puts them there."""
        cdef uint8_t head[2 * LONGEST_VARINT + MOST_LITERAL]
        cdef Py_ssize_t count = len(levels), begin = write_varint(head, <uint64_t> size), written
        written = write_varint(head, <uint64_t> (size + count))
        head[written] = <uint8_t> (count - 1 << 2)
        memcpy(head + written + 1, <const char*> levels, count)
        return head[: written + 1 + count] + packed[begin:]

    cdef bytes add_page(
        self, FlatChunk made, Room* room, int kind, Py_ssize_t count, int encoding, bytes levels, bytes values, packed,
        const int64_t* options
    ):
        """Puts a page behind the others, and gives its CRC32 in little endian; `packed` are its values in the codec."""
        cdef Py_ssize_t size = len(values), stored_size = 0
        cdef int codec = made.codec
        cdef uint32_t crc
        cdef list body
        if levels is not None and codec == SNAPPY and len(levels) <= MOST_LITERAL:
            packed = self.packed(room, codec, values, 0) if packed is None else packed
            body = [self.behind_snappy(levels, size, packed)]
            size += len(levels)
        elif levels is not None:
            size += len(levels)
            front = None
            if codec == ZSTD and len(levels) <= MOST_LITERAL:
                packed = self.packed(room, codec, values, options[OPTION_LEVEL]) if packed is None else packed
                front = behind_zstd(levels, size, packed) if type(packed) is bytes else None
            body = [front] if front is not None else [levels, values] if not codec else self.compress_parts(
                codec, (levels, values), options[OPTION_LEVEL], packed)
        else:
            body = [self.packed(room, codec, values, options[OPTION_LEVEL]) if packed is None else packed]
        body_crc = 0
        for piece in body:
            stored_size += len(piece)
            body_crc = self.crc32(piece, body_crc)
        header = FlatChunk.header_of_page(kind, size, stored_size, body_crc, count, encoding)
        header_crc = self.crc32(header)
        crc = self.combine(header_crc, body_crc, stored_size)
        made.crc = crc if made.size == 0 else self.combine(made.crc, crc, len(header) + stored_size)
        made.size += len(header) + stored_size
        made.uncompressed_size += len(header) + size
        made.buffers.append(header)
        made.buffers += body
        made.header_crcs.append(header_crc)
        return (<uint8_t*> &crc)[:4]

    cdef int put_bounds(
        self, FlatChunk made, const int64_t* leaf, const int64_t* options, Gathered* of, Room* room, Py_ssize_t i
    ) except -1:
        """Says what the smallest and the largest value are, as `statistics` does."""
        cdef Py_ssize_t smallest = 0, largest = 0, nans = 0
        cdef uint8_t low[8]
        cdef uint8_t high[8]
        cdef int found
        if options[OPTION_ORDER] == ORDER_FLOAT:
            made.nan_count = 0
        if of.m and of.strings:
            find_min_max(room.offsets, of.m, of.data, of.size, &smallest, &largest)
            made.low, made.low_is_exact = self.bound(of, room, smallest, i, False)
            made.high, made.high_is_exact = self.bound(of, room, largest, i, True)
        elif of.m:
            found = bounds_of_numbers(<int> options[OPTION_ORDER], of, room, low, high, &nans)
            if options[OPTION_ORDER] == ORDER_FLOAT:
                made.nan_count = nans
            if found:
                made.low, made.high = low[:found], high[:found]
                made.low_is_exact = made.high_is_exact = True
        made.has_column_index = (made.low is not None and made.high is not None) or not of.m
        return 0

    cdef tuple bound(self, Gathered* of, Room* room, Py_ssize_t at, Py_ssize_t leaf, bint upper):
        cdef bytes value = of.data[room.offsets[at] : room.offsets[at + 1]]
        return (value, True) if len(value) <= MOST_BOUND else self.plain_bound(leaf, value, upper)


cdef bint has_order(int64_t kind, int64_t order) noexcept nogil:
    """Whether values of a physical type may compare so."""
    if kind == OF_BOOLEANS or kind == OF_BYTE_ARRAYS:
        return order == (ORDER_BOOLEAN if kind == OF_BOOLEANS else ORDER_BYTES)
    return order == ORDER_FLOAT if kind > 2 else order == ORDER_SIGNED or order == ORDER_UNSIGNED


cdef bytes plain_values(Room* room):
    """The values in PLAIN encoding."""
    cdef Gathered* of = &room.of
    if not of.strings:
        return of.data[: of.plain]
    cdef bytes made = PyBytes_FromStringAndSize(NULL, of.plain)
    put_text(room, NULL, of.m, <uint8_t*> PyBytes_AsString(made))
    return made


cdef void put_text(Room* room, const int32_t* chosen, Py_ssize_t count, uint8_t* out) noexcept nogil:
    """Writes byte arrays, all or those at some positions, behind their lengths."""
    cdef Py_ssize_t i, at, size
    for i in range(count):
        at = i if chosen == NULL else chosen[i]
        size = room.offsets[at + 1] - room.offsets[at]
        store32(out, <uint32_t> size)
        memcpy(out + 4, room.of.data + room.offsets[at], size)
        out += 4 + size


cdef bytes levels_of(Room* room):
    """The definition levels behind their length."""
    cdef Py_ssize_t size
    if room.of.m == room.of.n:
        size = write_varint(room.encoded + 4, <uint64_t> room.of.n << 1)
        room.encoded[4 + size] = 1
        size += 1
    else:
        size = encode_runs(room.flags, room.of.n, 1, room.encoded + 4)
    store32(room.encoded, <uint32_t> size)
    return room.encoded[: 4 + size]


cdef bytes indices_of(Room* room):
    """The bit width of indices, and they."""
    cdef int width = 1
    while room.of.count - 1 >> width:
        width += 1
    room.encoded[0] = <uint8_t> width
    return room.encoded[: 1 + encode_runs(room.indices, room.of.m, width, room.encoded + 1)]


cdef bytes entries_of(Room* room):
    """The distinct values in PLAIN encoding."""
    cdef Gathered* of = &room.of
    cdef Py_ssize_t i
    cdef bytes made = PyBytes_FromStringAndSize(NULL, of.known_bytes)
    cdef uint8_t* out = <uint8_t*> PyBytes_AsString(made)
    if of.strings:
        put_text(room, room.first, of.count, out)
    for i in range(0 if of.strings else of.count):
        memcpy(out + i * of.width, of.data + room.first[i] * of.width, of.width)
    return made


cdef bytes delta_of(Room* room):
    if room.of.width == 4:
        return room.encoded[: encode_delta(<const int32_t*> room.of.data, room.of.m, room.encoded)]
    return room.encoded[: encode_delta(<const int64_t*> room.of.data, room.of.m, room.encoded)]


cdef int narrow_steps(const Gathered* of) noexcept nogil:
    """Whether differences between neighbours are narrow enough for every reader; SEQUENCE where all have one sign."""
    if of.width == 4:
        return steps_are_narrow(<const int32_t*> of.data, of.m)
    return steps_are_narrow(<const int64_t*> of.data, of.m)


cdef int steps_are_narrow(const Offset* values, Py_ssize_t m) noexcept nogil:
    cdef Offset low = values[0], high = values[0]
    cdef int64_t step, least = 0, most = 0
    cdef Py_ssize_t i
    for i in range(m):
        low, high = min(low, values[i]), max(high, values[i])
    if <uint64_t> <int64_t> high - <uint64_t> <int64_t> low >= <uint64_t> 1 << (8 * sizeof(Offset) - 1):
        return False  # differences would wrap around
    for i in range(1, m):
        step = <int64_t> values[i] - <int64_t> values[i - 1]
        least, most = (step if i == 1 else min(least, step)), (step if i == 1 else max(most, step))
    if <uint64_t> most - <uint64_t> least >= 1 << 28:
        return False
    return SEQUENCE if least > 0 or most < 0 else 1


cdef inline Py_ssize_t index_bytes(Py_ssize_t m, Py_ssize_t entries) noexcept nogil:
    cdef Py_ssize_t width = entries == 0  # as `bit_width(-1)`
    while entries - 1 > 0 and entries - 1 >> width:
        width += 1
    return m * width // 8


cdef bint repeats(Room* room, int64_t dictionary_bytes) noexcept nogil:
    """Whether the first values of a column of text suggest dictionaries: as `encoding_choice.choose_first`."""
    cdef Gathered* of = &room.of
    cdef double once = 0, twice = 0, varied
    cdef Py_ssize_t i
    if of.m >= MOST_ROWS or not dictionary_bytes:
        return False
    number_distinct(room, of.m, INT64_MAX)
    for i in range(of.count):
        once += room.times[i] == 1
        twice += room.times[i] == 2
    varied = of.count + once * (once - 1) / (2 * (twice + 1))
    return varied * (<double> (of.known_bytes - 4 * of.count) / of.count + 4) <= dictionary_bytes


cdef bint dictionary_pays(Room* room, int64_t dictionary_bytes, int64_t most) except -1:
    """Numbers the values where a dictionary of at most `most` bytes is worth it: as `encoding_choice` finds it."""
    cdef Gathered* of = &room.of
    cdef int64_t worth = <int64_t> (0.9 * of.plain), limit
    if not dictionary_bytes:
        return False
    limit = min(min(dictionary_bytes, most), worth - index_bytes(of.m, 2))
    if limit <= 0 or (of.m >= FEW_VALUES and too_varied(room, worth, limit)):
        return False
    if not number_distinct(room, limit // (4 if of.strings else of.width), limit if of.strings else INT64_MAX):
        return False
    return of.known_bytes + index_bytes(of.m, of.count) <= worth


cdef bint too_varied(Room* room, int64_t worth, int64_t limit) except -1:
    """Whether runs of neighbours say that a dictionary takes more than `limit`, or with its indices more than `worth`."""
    cdef Py_ssize_t run = room.of.m // 4 // NUM_RUNS
    cdef bint all_once = False
    cdef bint large = runs_are_varied(room, run, 2, worth, limit, &all_once)
    return large if all_once and large else runs_are_varied(room, run, 1, worth, limit, &all_once)


cdef int64_t GOLDEN = 0x9E3779B9  # as a literal it would be an object


cdef bint runs_are_varied(
    Room* room, Py_ssize_t run, Py_ssize_t every, int64_t worth, int64_t limit, bint* all_once
) except -1:
    cdef Gathered* of = &room.of
    cdef Py_ssize_t share = of.m // NUM_RUNS, i, start, num_runs = NUM_RUNS // every
    cdef double in_runs = 0, in_one = 0, in_two = 0, num_bytes = 0, varied, draws
    cdef int64_t entries, entry_bytes
    cdef Sightings seen = Sightings(num_runs * run)
    for i in range(num_runs):
        start = i * every * share + (<uint32_t> (i * every * GOLDEN) * (share - run) >> 32)
        see_run[int32_t](seen, room.offsets if of.strings else NULL, of.width, of.data, start, run, <int32_t> i)
    for i in range(seen.count):
        in_runs += seen.num_runs[i]
        in_one += seen.num_runs[i] == 1
        in_two += seen.num_runs[i] == 2
        start = seen.first[i]
        num_bytes += room.offsets[start + 1] - room.offsets[start] if of.strings else of.width
    all_once[0] = in_one == run * num_runs
    varied = seen.count + in_one * (in_one - 1) / (2 * (in_two + 1)) / 2
    draws = of.m * in_runs / (run * num_runs)
    entries = <int64_t> (draws * varied / (draws + varied))
    entry_bytes = <int64_t> (entries * (num_bytes / seen.count + (4 if of.strings else 0)))
    return entry_bytes > limit or entry_bytes + index_bytes(of.m, entries) > worth


cdef int bounds_of_numbers(
    int order, const Gathered* of, const Room* room, uint8_t* low, uint8_t* high, Py_ssize_t* nans
) noexcept nogil:
    """Writes the smallest and the largest number, and returns their bytes; 0 where there are none but NaN."""
    cdef Py_ssize_t i, ones = 0
    if order == ORDER_BOOLEAN:
        for i in range(of.m):
            ones += of.data[i >> 3] >> (i & 7) & 1
        low[0], high[0] = ones == of.m, ones > 0
        return 1
    if order == ORDER_FLOAT:
        if of.width == 4:
            return put_numbers(<const float*> of.data, of.m, low, high, nans)
        return put_numbers(<const double*> of.data, of.m, low, high, nans)
    if order == ORDER_UNSIGNED:
        if of.width == 4:
            return put_numbers(<const uint32_t*> of.data, of.m, low, high, nans)
        return put_numbers(<const uint64_t*> of.data, of.m, low, high, nans)
    if of.width == 4:
        return put_numbers(<const int32_t*> of.data, of.m, low, high, nans)
    return put_numbers(<const int64_t*> of.data, of.m, low, high, nans)


cdef int put_numbers(const Number* values, Py_ssize_t m, uint8_t* low, uint8_t* high, Py_ssize_t* nans) noexcept nogil:
    cdef Number smallest, largest
    cdef Py_ssize_t i = 0
    if Number is float or Number is double:
        while i < m - 1 and values[i] != values[i]:
            i += 1
        nans[0] = i + count_nans(values + i, m - i)
        if nans[0] == m:
            return 0
    smallest = largest = values[i]
    widen_to(values + i, m - i, &smallest, &largest)
    if Number is float or Number is double:
        if smallest == 0:
            smallest = -<Number> 0.0  # readers may hold the two zeros for one
        if largest == 0:
            largest = <Number> 0.0
    memcpy(low, &smallest, sizeof(Number))
    memcpy(high, &largest, sizeof(Number))
    return sizeof(Number)
