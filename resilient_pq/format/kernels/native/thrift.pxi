# The Thrift compact protocol. Included by `_native.pyx`.

cdef enum:
    STOP, TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID


def thrift_end(const uint8_t[::1] buffer not None, Py_ssize_t start, Py_ssize_t max_depth):
    """See `reference.thrift_end`."""
    cdef Py_ssize_t end
    if not 1 <= max_depth <= LARGEST_DEPTH:
        raise ValueError(f"max_depth must be 1 to {LARGEST_DEPTH}")
    if not 0 <= start <= buffer.shape[0]:
        raise ThriftError("a struct starts outside of its buffer")
    with nogil:
        end = struct_end(&buffer[0], buffer.shape[0], start, <int> max_depth)
    return end


cdef Py_ssize_t struct_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t field_id
    cdef int header, kind
    if depth == 0:
        return broken(b"structs lie too deep within each other")
    while position < size:
        header = data[position]
        position += 1
        if header == STOP:
            return position
        kind = header & 0x0F
        if header >> 4 == 0 and not read_varint(data, size, &position, 64, &field_id):
            return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
        if kind != TRUE and kind != FALSE:
            position = value_end(data, size, position, kind, depth - 1)
    return broken(b"a struct ends behind the end of its buffer")


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
            return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
        if kind != BINARY:
            return position
    elif kind == TRUE or kind == FALSE or kind == I8:
        length = 1
    elif kind == DOUBLE:
        length = 8
    elif kind == UUID:
        length = 16
    else:
        return broken(b"the Thrift compact protocol has no such type")
    if length > <uint64_t> (size - position):
        return broken(b"a struct ends behind the end of its buffer")
    return position + <Py_ssize_t> length


cdef Py_ssize_t list_end(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t position, int depth
) except -1 nogil:
    cdef uint64_t count
    cdef int kind
    if depth == 0:
        return broken(b"lists lie too deep within each other")
    if position >= size:
        return broken(b"a struct ends behind the end of its buffer")
    kind = data[position] & 0x0F
    count = data[position] >> 4
    position += 1
    if count == 0x0F and not read_varint(data, size, &position, 64, &count):
        return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
    if count > <uint64_t> (size - position):  # every element takes at least a byte
        return broken(b"a struct ends behind the end of its buffer")
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
        return broken(b"an integer ends behind the end of its buffer or has more than 64 bits")
    if count == 0:
        return position
    if count >= <uint64_t> (size - position):
        return broken(b"a struct ends behind the end of its buffer")
    kinds = data[position]
    position += 1
    while count:
        position = value_end(data, size, position, kinds >> 4, depth - 1)
        position = value_end(data, size, position, kinds & 0x0F, depth - 1)
        count -= 1
    return position
