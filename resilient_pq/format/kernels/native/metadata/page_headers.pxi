# The headers of all pages of a column chunk. Included by `_native.pyx` behind `thrift.pxi`.

cdef enum:
    KNOWN = 9  # field ids below it are looked at
    PAGE_FIELDS = 13
    PAGE_HEADER_DEPTH = 64
    V1_HEADER = 5
    DICTIONARY_HEADER = 7
    V2_HEADER = 8

cdef struct Fields:
    # Of a struct, by id: its integers of 32 bits, its booleans, and where its structs begin.
    int64_t values[9]
    int kinds[9]  # I32, TRUE for both booleans, STRUCT; 0 where there is no field


def page_headers(chunk, int64_t num_values):
    """See `reference.page_headers`."""
    cdef Array source = readable(chunk)
    cdef Py_ssize_t room = 0, rows = 0
    cdef int64_t* table = NULL
    try:
        with nogil:
            rows = read_page_headers(source.at, source.size, num_values, &table, &room)
        array = np.empty((rows, PAGE_FIELDS), np.int64)
        if rows:
            memcpy(writable(array, 8, 2).at, table, rows * PAGE_FIELDS * sizeof(int64_t))
    finally:
        free(table)
    return array


cdef Py_ssize_t read_page_headers(
    const uint8_t* data, Py_ssize_t size, int64_t num_values, int64_t** table, Py_ssize_t* room
) except -1 nogil:
    cdef Py_ssize_t at = 0, rows = 0
    cdef int64_t found = 0
    cdef int64_t* row
    cdef void* larger
    while at < size and (num_values < 0 or found < num_values):
        if rows == room[0]:
            larger = realloc(table[0], (2 * rows + 16) * PAGE_FIELDS * sizeof(int64_t))
            if larger == NULL:
                with gil:
                    raise MemoryError
            table[0] = <int64_t*> larger
            room[0] = 2 * rows + 16
        row = table[0] + rows * PAGE_FIELDS
        read_page_header(data, size, at, row)
        if row[2] > size - row[1]:
            return malformed(b"a page goes beyond its column chunk")
        at = row[1] + row[2]
        if row[4] == 0 or row[4] == 3:
            found += row[6]
        rows += 1
    return rows


cdef int read_page_header(const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int64_t* row) except -1 nogil:
    """Fills the row of the header at `at`."""
    cdef Fields header, inner
    cdef int64_t kind
    cdef int wanted, i
    row[1] = read_fields(data, size, at, PAGE_HEADER_DEPTH, &header)
    if not has_integers(&header, 3):
        return broken(b"a page header lacks what it must have")
    kind = header.values[1]
    wanted = V1_HEADER if kind == 0 else DICTIONARY_HEADER if kind == 2 else V2_HEADER if kind == 3 else 0
    row[0] = at
    row[2] = header.values[3]
    row[3] = header.values[2]
    row[4] = kind
    row[5] = <uint32_t> header.values[4] if header.kinds[4] == I32 else -1
    row[6] = 0
    for i in range(7, 12):
        row[i] = -1
    row[12] = 1
    for i in range(V1_HEADER, V2_HEADER + 1):
        if i == 6 or header.kinds[i] != STRUCT:
            continue
        read_fields(data, size, header.values[i], PAGE_HEADER_DEPTH - 1, &inner)
        if not has_integers(&inner, 4 if i == V1_HEADER else 2 if i == DICTIONARY_HEADER else 6):
            return broken(b"a page header lacks what it must have")
        if i == wanted:
            fill_detail(row, wanted, &inner)
    if row[2] < 0 or row[3] < 0:
        return broken(b"a size in a page header is negative")
    if wanted and header.kinds[wanted] != STRUCT:
        return broken(b"a page header lacks that of its kind")
    return 0


cdef int fill_detail(int64_t* row, int kind, const Fields* fields) except -1 nogil:
    """Fills what the header of its kind says of a page."""
    row[6] = fields.values[1]
    row[7] = fields.values[4 if kind == V2_HEADER else 2]
    if row[6] < 0:
        return broken(b"a page header says what no writer does")
    if kind == V1_HEADER:
        row[8] = fields.values[3]
        row[9] = fields.values[4]
        if not (is_encoding(row[8]) and is_encoding(row[9])):
            return broken(b"a page header says what no writer does")
    elif kind == DICTIONARY_HEADER:
        if not is_encoding(row[7]):
            return broken(b"a page header says what no writer does")
    else:
        row[10] = fields.values[5]
        row[11] = fields.values[6]
        row[12] = fields.kinds[7] != TRUE or fields.values[7] != 0
        if fields.values[2] < 0 or fields.values[3] < 0:
            return broken(b"a page header says what no writer does")
    return 0


cdef inline bint is_encoding(int64_t number) noexcept nogil:
    return number == 0 or 2 <= number <= 10


cdef inline bint has_integers(const Fields* fields, int last) noexcept nogil:
    """Whether the fields 1 to `last` are integers that are there."""
    cdef int i
    for i in range(1, last + 1):
        if fields.kinds[i] != I32:
            return False
    return True


cdef Py_ssize_t read_fields(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth, Fields* fields
) except -1 nogil:
    """Reads the fields of a struct, and returns the offset behind it."""
    cdef uint64_t coded
    cdef int64_t number = 0
    cdef int header, kind
    cdef bint known
    memset(fields, 0, sizeof(Fields))
    while position < size:
        header = data[position]
        position += 1
        if header == STOP:
            return position
        kind = header & 0x0F
        if header >> 4:
            number += header >> 4
        elif read_varint(data, size, &position, 16, &coded):
            number = <int64_t> (coded >> 1) ^ -<int64_t> (coded & 1)
        else:
            return broken(b"an integer ends behind the end of its buffer or has more than 16 bits")
        if number > 0x7FFF:
            return broken(b"a field of a page header has a number that none can have")
        known = 1 <= number < KNOWN
        if known and fields.kinds[number]:
            return broken(b"a field of a page header stands twice")
        if kind == TRUE or kind == FALSE:
            if known:
                fields.kinds[number] = TRUE
                fields.values[number] = kind == TRUE
        elif known and kind == I32:
            if not read_varint(data, size, &position, 32, &coded):
                return broken(b"an integer ends behind the end of its buffer or has more than 32 bits")
            fields.kinds[number] = I32
            fields.values[number] = <int64_t> (coded >> 1) ^ -<int64_t> (coded & 1)
        elif known and kind == STRUCT:
            fields.kinds[number] = STRUCT
            fields.values[number] = position
            position = struct_end(data, size, position, depth - 1)
        else:
            position = value_end(data, size, position, kind, depth - 1)
    return broken(b"a page header ends behind the end of its chunk")
