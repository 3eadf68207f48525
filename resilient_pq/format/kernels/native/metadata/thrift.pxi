# The Thrift compact protocol: finding out where values end, and bytes that they are written to. Included by `_native.pyx`.

from resilient_pq.errors import ThriftError

cdef enum:
    STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID

cdef enum:
    LONGEST_VARINT = 10

cdef const char* CUT = b"a struct ends behind the end of its buffer"
cdef const char* BAD_INTEGER = b"an integer ends behind the end of its buffer or has more than 64 bits"
cdef const char* NO_TYPE = b"the Thrift compact protocol has no such type"


cdef int broken(const char* message) except -1 with gil:
    raise ThriftError(message.decode("ascii"))


cdef Py_ssize_t struct_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t number
    cdef int header, kind
    if depth == 0:
        return broken(b"structs lie too deep within each other")
    while position < size:
        header = data[position]
        position += 1
        if header == STOP:
            return position
        kind = header & 0x0F
        if header >> 4 == 0 and not read_varint(data, size, &position, 64, &number):
            return broken(BAD_INTEGER)
        if kind != TRUE and kind != FALSE:
            position = value_end(data, size, position, kind, depth - 1)
    return broken(CUT)


cdef Py_ssize_t value_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int kind, int depth
) except -1 nogil:
    """The offset behind one value; it may lie `depth` levels deep, so the stack cannot overflow."""
    cdef uint64_t length
    if kind == STRUCT:
        return struct_end(data, size, position, depth)
    if kind == LIST or kind == SET:
        return list_end(data, size, position, depth)
    if kind == MAP:
        return map_end(data, size, position, depth)
    if kind == I16 or kind == I32 or kind == I64 or kind == BINARY:
        if not read_varint(data, size, &position, 64, &length):
            return broken(BAD_INTEGER)
        if kind != BINARY:
            return position
    elif kind == TRUE or kind == FALSE or kind == I8:
        length = 1
    elif kind == DOUBLE:
        length = 8
    elif kind == UUID:
        length = 16
    else:
        return broken(NO_TYPE)
    if length > <uint64_t> (size - position):
        return broken(CUT)
    return position + <Py_ssize_t> length


cdef Py_ssize_t list_start(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth, int* kind, uint64_t* count
) except -1 nogil:
    """The offset of a list's first element, of which type they are and how many."""
    if depth == 0:
        return broken(b"lists lie too deep within each other")
    if position >= size:
        return broken(CUT)
    kind[0] = data[position] & 0x0F
    count[0] = data[position] >> 4
    position += 1
    if kind[0] > UUID:
        return broken(NO_TYPE)
    if count[0] == 0x0F and not read_varint(data, size, &position, 64, count):
        return broken(BAD_INTEGER)
    if count[0] > <uint64_t> (size - position):  # every element takes at least a byte
        return broken(CUT)
    return position


cdef Py_ssize_t list_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t count = 0
    cdef int kind = 0
    position = list_start(data, size, position, depth, &kind, &count)
    while count:
        position = value_end(data, size, position, kind, depth - 1)
        count -= 1
    return position


cdef Py_ssize_t map_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t count
    cdef int kinds
    if depth == 0:
        return broken(b"maps lie too deep within each other")
    if not read_varint(data, size, &position, 64, &count):
        return broken(BAD_INTEGER)
    if count == 0:
        return position
    if count >= <uint64_t> (size - position):
        return broken(CUT)
    kinds = data[position]
    position += 1
    while count:
        position = value_end(data, size, position, kinds >> 4, depth - 1)
        position = value_end(data, size, position, kinds & 0x0F, depth - 1)
        count -= 1
    return position


cdef class Bytes:
    """Bytes that grow at their end."""

    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __dealloc__(self):
        free(self.data)

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef uint8_t* grown
        if self.size + more > self.room:
            self.room = 2 * (self.size + more) + 256
            grown = <uint8_t*> realloc(self.data, self.room)
            if grown == NULL:
                raise MemoryError
            self.data = grown
        return 0

    cdef int byte(self, int value) except -1:
        self.make_room(1)
        self.data[self.size] = <uint8_t> value
        self.size += 1
        return 0

    cdef int number(self, int header, int64_t value) except -1:
        """A field of a signed integer, or an element of a list where `header` is -1."""
        self.make_room(1 + LONGEST_VARINT)
        if header >= 0:
            self.data[self.size] = <uint8_t> header
            self.size += 1
        self.size += write_varint(self.data + self.size, (<uint64_t> value << 1) ^ <uint64_t> (value >> 63))
        return 0

    cdef int raw(self, bytes value) except -1:
        cdef Py_ssize_t size = len(value)
        self.make_room(size)
        memcpy(self.data + self.size, <const char*> value, size)
        self.size += size
        return 0

    cdef int binary(self, int header, bytes value) except -1:
        self.make_room(1 + LONGEST_VARINT)
        if header >= 0:
            self.data[self.size] = <uint8_t> header
            self.size += 1
        self.size += write_varint(self.data + self.size, <uint64_t> len(value))
        return self.raw(value)

    cdef int list_of(self, int header, int kind, Py_ssize_t count) except -1:
        self.byte(header)
        if count < 15:
            return self.byte(count << 4 | kind)
        self.byte(0xF0 | kind)
        self.make_room(LONGEST_VARINT)
        self.size += write_varint(self.data + self.size, <uint64_t> count)
        return 0

    cdef bytes found(self):
        return self.data[: self.size]


cdef Bytes begun(Bytes used):
    """Bytes to fill from the first one on: new ones, or those that were `used` before."""
    if used is None:
        return Bytes()
    used.size = 0
    return used
