# The Thrift compact protocol: structs as objects of slotted classes. Included by `_native.pyx`.
#
# A struct is read twice over by nearly the same code: `read_*` make objects, `check_*` see to it that `read_*` would
# not fail, without objects and without the GIL.

from cpython.unicode cimport PyUnicode_DecodeUTF8

from resilient_pq.format.kernels.structs import InnerLists, KeptStructs

cdef extern from "native/headers/slots.h":
    Py_ssize_t slot_offset(object descriptor) noexcept
    object empty_instance(object cls)
    void leave_to_references(object container) noexcept
    void fill_slot(object instance, Py_ssize_t offset, object value) noexcept
    bint slot_is_empty(object instance, Py_ssize_t offset) noexcept

cdef int LARGEST_DEPTH = 128
cdef int LARGEST_NUMBER = 63

cdef struct Field:
    int kind  # 0 where the class has no field of this number
    int element
    bint text
    bint required
    bint kept
    Py_ssize_t slot
    const Layout* nested

cdef struct Layout:
    uint64_t count  # of `fields`, which are in the order of their numbers, from 0
    uint64_t required  # a bit for each number
    bint has_kept
    Field* fields
    void* reader  # the StructReader that this belongs to, which nested ones keep alive

cdef struct Source:
    const uint8_t* data
    Py_ssize_t size
    bint lasting
    Py_ssize_t inner_at  # the kept list of which is known where its elements lie; -1 for none
    Py_ssize_t inner_end

cdef struct Offsets:
    int64_t* at
    Py_ssize_t count
    Py_ssize_t room

cdef struct Spans:  # as KeptStructs and InnerLists have them
    Offsets starts
    Offsets inner_at
    Offsets first
    Offsets inner


cdef class StructReader:
    """See `reference.StructReader`."""

    cdef Layout layout
    cdef object cls
    cdef list fields  # StructField or None, by number
    cdef list readers  # the same for the readers of nested structs

    def __init__(self, cls, fields):
        cdef Field* field
        cdef Py_ssize_t count = 0
        for one in fields:
            if not 1 <= one.number <= LARGEST_NUMBER:
                raise ValueError(
                    f"{cls.__name__}.{one.name} has number {one.number}; it must be 1 to {LARGEST_NUMBER}"
                )
            count = max(count, one.number + 1)
        if self.layout.fields != NULL:
            raise ValueError("a StructReader is prepared once")
        self.cls = cls
        self.fields = [None] * count
        self.readers = [None] * count
        self.layout.fields = <Field*> calloc(max(count, 1), sizeof(Field))
        if self.layout.fields == NULL:
            raise MemoryError
        self.layout.count = count
        self.layout.reader = <void*> self
        for one in fields:
            field = &self.layout.fields[<Py_ssize_t> one.number]
            field.kind, field.element = one.kind, one.element
            field.text, field.required, field.kept = one.text, one.required, one.kept
            field.slot = slot_offset(cls.__dict__.get(one.name))
            if field.slot < 0:
                raise ValueError(f"{cls.__name__} has no slot {one.name}")
            if one.nested is not None:
                field.nested = &(<StructReader?> one.nested).layout
            self.fields[one.number], self.readers[one.number] = one, one.nested
            self.layout.required |= <uint64_t> one.required << <uint64_t> one.number
            self.layout.has_kept |= field.kept

    def __dealloc__(self):
        free(self.layout.fields)

    def decode(self, buffer, Py_ssize_t start, Py_ssize_t max_depth, bint lasting=False):
        """See `reference.StructReader.decode`."""
        if not 1 <= max_depth <= LARGEST_DEPTH:
            raise ValueError(f"max_depth must be 1 to {LARGEST_DEPTH}")
        return read_from(self, buffer, start, -1, <int> max_depth, lasting, -1, None)

    def decode_kept(self, buffer, Py_ssize_t start, Py_ssize_t end, Py_ssize_t inner_at, inner_starts):
        """See `reference.StructReader.decode_kept`."""
        return read_from(self, buffer, start, end, LARGEST_DEPTH, True, inner_at, inner_starts)[0]


cdef read_from(
    StructReader reader, buffer, Py_ssize_t start, Py_ssize_t end, int depth, bint lasting, Py_ssize_t inner_at,
    inner_starts,
):
    """The struct at `start` and the offset behind it; `end` is -1 where the whole buffer may be read."""
    cdef Py_buffer view
    cdef Source source
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        source.data, source.size = <const uint8_t*> view.buf, view.len
        if not 0 <= start <= (source.size if end < 0 else end) <= source.size:
            raise ThriftError("a struct starts outside of its buffer")
        if end >= 0:
            source.size = end
        source.lasting = lasting
        source.inner_at = -1
        if inner_starts is not None:
            source.inner_at, source.inner_end = inner_at, inner_starts[len(inner_starts) - 1]
            if source.inner_end > source.size:
                raise ThriftError("a struct starts outside of its buffer")
        made = read_struct(&reader.layout, &source, &start, depth, buffer, inner_starts)
        return made, start
    finally:
        PyBuffer_Release(&view)


cdef read_struct(const Layout* layout, const Source* source, Py_ssize_t* position, int depth, buffer, inner_starts):
    """A struct that may be `depth` levels deep; `position` is moved behind it."""
    cdef StructReader reader = <StructReader> layout.reader
    cdef const Field* field
    cdef uint64_t number = 0
    cdef int kind
    if depth == 0:
        broken(b"structs lie too deep within each other")
    made = empty_instance(reader.cls)
    while True:
        kind = field_start(source.data, source.size, position, &number)
        if kind == STOP:
            break
        field = field_of(layout, number, kind)
        if field == NULL:
            if kind != TRUE and kind != FALSE:
                position[0] = value_end(source.data, source.size, position[0], kind, depth - 1)
        elif field.kind == TRUE:
            fill_slot(made, field.slot, kind == TRUE)
        elif field.kept:
            fill_slot(made, field.slot, read_kept(field, source, position, depth - 1, buffer, inner_starts))
        else:
            fill_slot(made, field.slot, read_value(field, field.kind, source, position, depth - 1, buffer))
    for number in range(layout.count):
        field = &layout.fields[number]
        if field.kind and slot_is_empty(made, field.slot):
            if field.required:
                lacking(layout, 1ULL << number)
            fill_slot(made, field.slot, reader.fields[number].default)
    return made


cdef inline int field_start(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, uint64_t* number
) except -1 nogil:
    """The wire type of the next field, whose number takes the place of the last one; STOP at the struct's end."""
    cdef uint64_t written
    cdef int header
    if position[0] >= size:
        return broken(CUT)
    header = data[position[0]]
    position[0] += 1
    if header >> 4:
        number[0] += header >> 4
        return header & 0x0F if header & 0x0F else broken(NO_TYPE)
    if header == STOP:
        return STOP
    if not read_varint(data, size, position, 64, &written):
        return broken(BAD_INTEGER)
    number[0] = unzigzag(written)
    return header


cdef inline uint64_t unzigzag(uint64_t written) noexcept nogil:
    return (written >> 1) ^ (0 - (written & 1))


cdef inline const Field* field_of(const Layout* layout, uint64_t number, int kind) noexcept nogil:
    """The field of a number, if it has this wire type."""
    cdef const Field* field
    if number >= layout.count:
        return NULL
    field = &layout.fields[number]
    return field if field.kind == (TRUE if kind == FALSE else kind) else NULL


cdef read_value(const Field* field, int kind, const Source* source, Py_ssize_t* position, int depth, buffer):
    """A value of a field or of one of its elements, which are of the type `kind`."""
    cdef const uint8_t* data = source.data
    cdef Py_ssize_t start
    cdef int64_t integer
    cdef double number
    if kind == I16 or kind == I32 or kind == I64:
        integer = read_integer(data, source.size, position, kind)
        return integer
    if kind == STRUCT:
        return read_struct(field.nested, source, position, depth, buffer, None)
    if kind == LIST:
        return read_list(field, source, position, depth, buffer)
    start = position[0]
    position[0] = value_end(data, source.size, start, kind, depth)
    if kind == BINARY:
        while data[start] >= 0x80:
            start += 1
        start += 1
        if field.text:
            return PyUnicode_DecodeUTF8(<const char*> data + start, position[0] - start, "replace")
        return (<const char*> data)[start : position[0]]
    if kind == DOUBLE:
        memcpy(&number, data + start, 8)
        return number
    if kind == I8:
        return <signed char> data[start]
    return data[start] == TRUE


cdef inline int64_t read_integer(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, int kind
) except? -1 nogil:
    cdef uint64_t written
    cdef int64_t value
    if position[0] < size and data[position[0]] < 0x80:
        written = data[position[0]]
        position[0] += 1
    elif not read_varint(data, size, position, 64, &written):
        return broken(BAD_INTEGER)
    elif (kind == I32 and written >> 32) or (kind == I16 and written >> 16):
        return broken(b"an integer is beyond the range of its type")
    return <int64_t> unzigzag(written)


cdef read_list(const Field* field, const Source* source, Py_ssize_t* position, int depth, buffer):
    cdef list values = []
    cdef uint64_t count = field_list_start(field, source.data, source.size, position, depth)
    # It grows as its elements are found to be there: a count may say anything.
    while count:
        values.append(read_value(field, field.element, source, position, depth - 1, buffer))
        count -= 1
    leave_to_references(values)
    return values


cdef uint64_t field_list_start(
    const Field* field, const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, int depth
) except? 0xFFFF_FFFF_FFFF_FFFF nogil:
    """How many elements a field's list has; `position` is moved to the first of them."""
    cdef uint64_t count = 0
    cdef int kind = 0
    position[0] = list_start(data, size, position[0], depth, &kind, &count)
    if count and (TRUE if kind == FALSE else kind) != field.element:
        return broken(b"a list has elements of another type than it should")
    return count


cdef read_kept(const Field* field, const Source* source, Py_ssize_t* position, int depth, buffer, inner_starts):
    """A list of structs that are checked, but not made yet."""
    cdef Spans spans
    cdef Py_ssize_t start = position[0]
    reader = <StructReader> field.nested.reader
    if start == source.inner_at:
        position[0] = source.inner_end
        return KeptStructs(reader, buffer, inner_starts)
    memset(&spans, 0, sizeof(Spans))
    try:
        with nogil:
            position[0] = check_kept(field, source.data, source.size, start, depth, &spans)
        data, base = held(buffer, source, start, position[0])
        inner = None
        if field.nested.has_kept:
            inner = InnerLists(
                offsets_array(&spans.inner_at, base), offsets_array(&spans.first, 0),
                offsets_array(&spans.inner, base),
            )
        return KeptStructs(reader, data, offsets_array(&spans.starts, base), inner)
    finally:
        free(spans.starts.at)
        free(spans.inner_at.at)
        free(spans.first.at)
        free(spans.inner.at)


cdef tuple held(buffer, const Source* source, Py_ssize_t start, Py_ssize_t end):
    """See `reference.thrift._Source.held`."""
    if source.lasting or (type(buffer) is bytes and 2 * (end - start) >= source.size):
        return buffer, 0
    return (<const char*> source.data)[start:end], start


cdef offsets_array(const Offsets* offsets, int64_t base):
    cdef Py_ssize_t i
    made = np.empty(offsets.count, np.int64)
    cdef Array to = writable(made, 8)
    cdef int64_t* moved = <int64_t*> to.at
    for i in range(offsets.count):
        moved[i] = offsets.at[i] - base if offsets.at[i] >= 0 else -1
    return memoryview(made)


cdef int push(Offsets* offsets, int64_t value) except -1 nogil:
    cdef Py_ssize_t room
    cdef int64_t* larger
    if offsets.count == offsets.room:
        room = 2 * offsets.room + 64
        larger = <int64_t*> realloc(offsets.at, room * sizeof(int64_t))
        if larger == NULL:
            return out_of_memory()
        offsets.at, offsets.room = larger, room
    offsets.at[offsets.count] = value
    offsets.count += 1
    return 0


cdef int out_of_memory() except -1 with gil:
    raise MemoryError


cdef int lacking(const Layout* layout, uint64_t missing) except -1 with gil:
    """Names the first required field among those that a struct lacks, in the order in which they are declared."""
    cdef StructReader reader = <StructReader> layout.reader
    cdef uint64_t number
    for number in range(layout.count):
        if missing >> number & 1:
            raise ThriftError(f"it lacks {reader.cls.__name__}.{reader.fields[number].name}")
    return 0


cdef Py_ssize_t check_kept(
    const Field* field, const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int depth, Spans* spans
) except -1 nogil:
    """Finds the structs of a kept list, and those of the kept lists in them; gives the offset behind it."""
    cdef uint64_t count = field_list_start(field, data, size, &at, depth)
    while count:
        push(&spans.starts, at)
        push(&spans.inner_at, -1)
        push(&spans.first, spans.inner.count)
        at = check_struct(field.nested, data, size, at, depth - 1, spans)
        count -= 1
    push(&spans.starts, at)
    push(&spans.first, spans.inner.count)
    return at


cdef Py_ssize_t check_inner(
    const Field* field, const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int depth, Spans* spans
) except -1 nogil:
    """Finds the structs of a kept list in an element of one; of a field that stands twice the last one counts."""
    cdef uint64_t count
    spans.inner_at.at[spans.inner_at.count - 1] = at
    spans.inner.count = spans.first.at[spans.first.count - 1]
    count = field_list_start(field, data, size, &at, depth)
    while count:
        push(&spans.inner, at)
        at = check_struct(field.nested, data, size, at, depth - 1, NULL)
        count -= 1
    push(&spans.inner, at)
    return at


cdef Py_ssize_t check_struct(
    const Layout* layout, const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int depth, Spans* spans
) except -1 nogil:
    """As `read_struct`; with `spans` for a struct of a kept list, without elsewhere. Gives the offset behind it."""
    cdef const Field* field
    cdef uint64_t number = 0, found = 0
    cdef int kind
    if depth == 0:
        return broken(b"structs lie too deep within each other")
    while True:
        kind = field_start(data, size, &at, &number)
        if kind == STOP:
            break
        field = field_of(layout, number, kind)
        if field == NULL:
            if kind != TRUE and kind != FALSE:
                at = value_end(data, size, at, kind, depth - 1)
            continue
        found |= 1ULL << number
        if field.kept and spans != NULL:
            at = check_inner(field, data, size, at, depth - 1, spans)
        elif kind == STRUCT:
            at = check_struct(field.nested, data, size, at, depth - 1, NULL)
        elif kind != TRUE and kind != FALSE:
            at = check_value(field, kind, data, size, at, depth - 1)
    if layout.required & ~found:
        return lacking(layout, layout.required & ~found)
    return at


cdef inline Py_ssize_t check_value(
    const Field* field, int kind, const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int depth
) except -1 nogil:
    """As `read_value`."""
    if kind == I32 or kind == I64 or kind == I16:
        if at < size and data[at] < 0x80:
            return at + 1
        read_integer(data, size, &at, kind)
        return at
    if kind == BINARY and at < size and data[at] < 0x80 and data[at] < size - at:
        return at + 1 + data[at]
    if kind == LIST:
        return check_list(field, data, size, at, depth)
    if kind == STRUCT:
        return check_struct(field.nested, data, size, at, depth, NULL)
    return value_end(data, size, at, kind, depth)


cdef Py_ssize_t check_list(
    const Field* field, const uint8_t* data, Py_ssize_t size, Py_ssize_t at, int depth
) except -1 nogil:
    cdef uint64_t count = field_list_start(field, data, size, &at, depth)
    while count:
        at = check_value(field, field.element, data, size, at, depth - 1)
        count -= 1
    return at
