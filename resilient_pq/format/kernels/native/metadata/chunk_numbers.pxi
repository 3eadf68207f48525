# What a footer says of column chunks, as numbers. Included by `_native.pyx` behind `thrift_structs.pxi`.

cdef enum:  # as `ChunkNumber` has them
    NUMBER_START
    NUMBER_END
    NUMBER_TYPE
    NUMBER_CODEC
    NUMBER_VALUES
    NUMBER_SIZE
    NUMBER_SUM_KIND
    NUMBER_SUM
    CHUNK_NUMBERS

cdef enum:
    UNUSUAL = -1
    SMALLEST_START = 4


def chunk_numbers(data, starts, ordinals, int64_t data_end):
    """See `reference.chunk_numbers`."""
    cdef Array source = readable(data), places = readable(starts, 8), wanted = readable(ordinals, 8)
    cdef const int64_t* place = <const int64_t*> places.at
    cdef const int64_t* ordinal = <const int64_t*> wanted.at
    cdef Py_ssize_t i
    array = np.zeros((wanted.count, CHUNK_NUMBERS), np.int64)
    cdef Array to = writable(array, 8, 2)
    cdef int64_t* row = <int64_t*> to.at
    with nogil:
        for i in range(wanted.count):
            if not 0 <= ordinal[i] < places.count - 1 or not (
                0 <= place[ordinal[i]] <= place[ordinal[i] + 1] <= source.size
            ):
                misplaced(b"a column chunk lies outside of its footer")
            if not read_chunk(source.at, place[ordinal[i] + 1], place[ordinal[i]], data_end, row):
                row[NUMBER_SUM_KIND] = UNUSUAL
            row += CHUNK_NUMBERS
    return array


def row_group_sizes(data, starts, lists, firsts, chunks):
    """Rows and column chunks of each RowGroup: an array of two columns.

    `starts` are the offsets of the row groups and behind the last, the others what `InnerLists` has of their chunks.
    """
    cdef Array source = readable(data), places = readable(starts, 8), list_places = readable(lists, 8)
    cdef Array first_places = readable(firsts, 8), chunk_places = readable(chunks, 8)
    cdef const int64_t* place = <const int64_t*> places.at
    cdef const int64_t* list_at = <const int64_t*> list_places.at
    cdef const int64_t* first = <const int64_t*> first_places.at
    cdef const int64_t* chunk = <const int64_t*> chunk_places.at
    cdef Py_ssize_t i, count = list_places.count
    if places.count != count + 1 or first_places.count != count + 1:
        raise ValueError("there is another number of lists than of row groups")
    array = np.zeros((count, 2), np.int64)
    cdef Array to = writable(array, 8, 2)
    cdef int64_t* row = <int64_t*> to.at
    with nogil:
        for i in range(count):
            if not 0 <= place[i] <= place[i + 1] <= source.size or not (
                0 <= first[i] < first[i + 1] <= chunk_places.count
            ):
                misplaced(b"a row group lies outside of its footer")
            row[0] = read_num_rows(source.at, place[i + 1], place[i], list_at[i], chunk[first[i + 1] - 1])
            row[1] = first[i + 1] - first[i] - 1
            row += 2
    return array


cdef int64_t read_num_rows(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int64_t list_at, int64_t list_end
) except? -1 nogil:
    """The rows of a RowGroup, of which is known where the list of its chunks begins and ends."""
    cdef uint64_t number = 0
    cdef int64_t num_rows = 0
    cdef int kind
    while True:
        kind = field_start(data, size, &at, &number)
        if kind == STOP:
            return num_rows
        if at == list_at and at <= list_end <= size:
            at = list_end
        elif number == 3 and kind == I64:
            num_rows = read_integer(data, size, &at, kind)
        elif kind != TRUE and kind != FALSE:
            at = value_end(data, size, at, kind, LARGEST_DEPTH)


cdef bint read_chunk(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int64_t data_end, int64_t* row
) except -1 nogil:
    """Reads a ColumnChunk; False where it says anything but where its pages lie in this file, and how to read them."""
    cdef uint64_t number = 0
    cdef Py_ssize_t metadata = -1
    cdef int kind
    while True:
        kind = field_start(data, size, &at, &number)
        if kind == STOP:
            break
        if number == 1 or number == 8 or number == 9:  # in another file, or encrypted
            return False
        if number == 3 and kind == STRUCT:
            metadata = at
        if kind != TRUE and kind != FALSE:
            at = value_end(data, size, at, kind, LARGEST_DEPTH)
    return metadata >= 0 and read_chunk_metadata(data, size, metadata, data_end, row)


cdef bint read_chunk_metadata(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int64_t data_end, int64_t* row
) except -1 nogil:
    cdef int64_t[16] numbers
    cdef uint64_t number = 0
    cdef int64_t start
    cdef int kind
    memset(numbers, 0, sizeof(numbers))
    while True:
        kind = field_start(data, size, &at, &number)
        if kind == STOP:
            break
        if number == 8 and kind == LIST:
            row[NUMBER_SUM_KIND] = row[NUMBER_SUM] = 0
            if not read_sums(data, size, at, row):
                return False
        if (kind == I32 and number < 5) or (kind == I64 and 5 <= number < 12):
            numbers[number] = read_integer(data, size, &at, kind)
        elif kind != TRUE and kind != FALSE:
            at = value_end(data, size, at, kind, LARGEST_DEPTH)
    row[NUMBER_TYPE], row[NUMBER_CODEC], row[NUMBER_VALUES] = numbers[1], numbers[4], numbers[5]
    row[NUMBER_SIZE] = numbers[6]
    start = min(numbers[9], numbers[11]) if numbers[11] else numbers[9]
    row[NUMBER_START], row[NUMBER_END] = start, start + max(min(numbers[7], data_end), <int64_t> 0)
    return numbers[5] > 0 and start >= SMALLEST_START and start <= data_end and 0 <= numbers[7] <= data_end - start


cdef bint read_sums(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int64_t* row) except -1 nogil:
    """Reads the sums in a chunk's key-value metadata; False where they are malformed, or stand twice."""
    cdef uint64_t count = 0, number, sum
    cdef Py_ssize_t key, value, key_size, value_size
    cdef int kind = 0
    cdef bint has_crc = False, has_hash = False
    at = list_start(data, size, at, LARGEST_DEPTH, &kind, &count)
    if count and kind != STRUCT:
        return False
    while count:
        count -= 1
        key = value = -1
        key_size = value_size = 0
        number = 0
        while True:
            kind = field_start(data, size, &at, &number)
            if kind == STOP:
                break
            if kind == BINARY and number == 1:
                key_size = binary_at(data, size, at, &key)
            elif kind == BINARY and number == 2:
                value_size = binary_at(data, size, at, &value)
            if kind != TRUE and kind != FALSE:
                at = value_end(data, size, at, kind, LARGEST_DEPTH)
        if key_size == 9 and memcmp(data + key, b"rpq.crc32", 9) == 0:
            if has_crc or not sum_of_chunk(data + value, value_size, has_hash, row):
                return False
            has_crc = True
        elif key_size == 8 and memcmp(data + key, b"rpq.xxh3", 8) == 0:
            if has_hash or value_size != 16 or not digits(data + value, 16, &sum):
                return False
            has_hash = True
            row[NUMBER_SUM_KIND], row[NUMBER_SUM] = 2, <int64_t> sum
    return True


cdef inline Py_ssize_t binary_at(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t at, Py_ssize_t* start
) except -1 nogil:
    """The size of a binary, and where it starts."""
    cdef Py_ssize_t end = value_end(data, size, at, BINARY, LARGEST_DEPTH)
    while data[at] >= 0x80:
        at += 1
    start[0] = at + 1
    return end - at - 1


cdef inline bint digits(const uint8_t* text, int count, uint64_t* value) noexcept nogil:
    """Reads lower-case hexadecimal digits."""
    cdef int i
    value[0] = 0
    for i in range(count):
        if 48 <= text[i] <= 57:
            value[0] = value[0] << 4 | (text[i] - 48)
        elif 97 <= text[i] <= 102:
            value[0] = value[0] << 4 | (text[i] - 87)
        else:
            return False
    return True


cdef bint sum_of_chunk(const uint8_t* text, Py_ssize_t size, bint has_hash, int64_t* row) noexcept nogil:
    """Reads the first of four sums, which stand between colons, each a hyphen or eight digits."""
    cdef Py_ssize_t at = 0, width
    cdef uint64_t sum = 0
    cdef int i
    for i in range(4):
        width = 1 if at < size and text[at] == 45 else 8
        if at + width > size or (width == 8 and not digits(text + at, 8, &sum)):
            return False
        if i == 0 and width == 8 and not has_hash:
            row[NUMBER_SUM_KIND], row[NUMBER_SUM] = 1, <int64_t> sum
        at += width
        if i < 3:
            if at >= size or text[at] != 58:
                return False
            at += 1
    return at == size
