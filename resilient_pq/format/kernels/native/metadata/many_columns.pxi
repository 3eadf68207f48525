# Schemas of thousands of columns: what is the same in them is found out once. Included by `_native.pyx` behind
# `thrift_structs.pxi` and `arrow_schemas.pxi`.

from cpython.unicode cimport PyUnicode_AsUTF8AndSize

cdef enum:
    NAME_OF_ELEMENT = 4  # SchemaElement.name
    LONGEST_ZONE = 64
    SCHEMA_NULLABLE = 2  # ARROW_FLAG_NULLABLE


def instances(cls, Py_ssize_t count, dict values):
    """So many instances of a slotted class of plain values, made without its constructor.

    `values` has for each slot a list with one for each instance, or the value of all.
    """
    cdef list made = [None] * count, each
    cdef Py_ssize_t i, offset
    if not set(cls.__slots__) <= values.keys():
        raise ValueError(f"not all slots of {cls.__name__} have a value")
    for i in range(count):
        made[i] = empty_instance(cls)
    for name, value in values.items():
        offset = slot_offset(getattr(cls, name))
        if offset < 0:
            raise ValueError(f"{cls.__name__} has no slot {name}")
        if type(value) is not list:
            for i in range(count):
                fill_slot(made[i], offset, value)
            continue
        each = value
        if len(each) != count:
            raise ValueError(f"there must be {count} values of {name}")
        for i in range(count):
            fill_slot(made[i], offset, each[i])
    return made


def alike_elements(buffer, starts):
    """The names of SchemaElements, numbers that those share which differ in their names alone, and the first of each.

    They lie between the offsets `starts`, as `KeptStructs` has them, and are known to be sound.
    """
    cdef Array data = readable(buffer), places = readable(starts, 8)
    cdef const int64_t* place = <const int64_t*> places.at
    cdef list names = [], numbers = [], firsts = []
    cdef dict known = {}
    cdef Py_ssize_t i, at, end, start, head, tail, name
    cdef uint64_t field, size
    cdef int kind
    for i in range(places.count - 1):
        start, end = place[i], place[i + 1]
        if not 0 <= start <= end <= data.size:
            raise ThriftError("a struct starts outside of its buffer")
        at, field, size, head, tail, name = start, 0, 0, end, end, end
        while True:
            kind = field_start(data.at, end, &at, &field)
            if kind == STOP:
                break
            if kind == BINARY and field == NAME_OF_ELEMENT:
                head = name = at
                read_varint(data.at, end, &name, 64, &size)
            if kind != TRUE and kind != FALSE:
                at = value_end(data.at, end, at, kind, LARGEST_DEPTH)
            if kind == BINARY and field == NAME_OF_ELEMENT:
                tail = at
        names.append(PyUnicode_DecodeUTF8(<const char*> data.at + name, tail - name, "replace"))
        key = (<const char*> data.at)[start:head], (<const char*> data.at)[tail:end]
        if key not in known:
            known[key] = len(firsts)
            firsts.append(i)
        numbers.append(known[key])
    return names, numbers, firsts


cdef inline bint is_there(Py_ssize_t size, Py_ssize_t at, Py_ssize_t width) noexcept nogil:
    return 0 <= at <= size - width


cdef inline uint32_t word_at(const uint8_t* data, Py_ssize_t at) noexcept nogil:
    cdef uint32_t word
    memcpy(&word, data + at, 4)
    return word


cdef Py_ssize_t place_in(const uint8_t* data, Py_ssize_t size, Py_ssize_t table, int number, int width) noexcept nogil:
    """Where a value of so many bytes of a table of a flatbuffer lies; 0 where it is left out, -1 outside of the buffer."""
    cdef Py_ssize_t offsets
    cdef uint16_t length, offset
    if not is_there(size, table, 4):
        return -1
    offsets = table - <int32_t> word_at(data, table)
    if not is_there(size, offsets, 2):
        return -1
    memcpy(&length, data + offsets, 2)
    if 6 + 2 * number > length:
        return 0
    offsets += 4 + 2 * number
    if not is_there(size, offsets, 2):
        return -1
    memcpy(&offset, data + offsets, 2)
    if offset == 0:
        return 0
    return table + offset if is_there(size, table + offset, width) else -1


cdef Py_ssize_t target_in(const uint8_t* data, Py_ssize_t size, Py_ssize_t table, int number) noexcept nogil:
    """Likewise where four bytes lie that such a value refers to: of a text or a list its length."""
    cdef Py_ssize_t at = place_in(data, size, table, number, 4)
    if at > 0:
        at += word_at(data, at)
        return at if is_there(size, at, 4) else -1
    return at


cdef int parameter_width(int type, int number) noexcept nogil:
    """Bytes of a parameter of a type of Schema.fbs; 0 where it has no such one, -1 for a text."""
    if type == 7:  # decimals
        return 4
    if number == 0:
        return 4 if type == 2 or type == 15 else 2 if 3 == type or 8 <= type <= 11 or type == 18 else 0
    if number == 1:
        return 1 if type == 2 else 4 if type == 9 else -1 if type == 10 else 0
    return 0


cdef bint put_parameters(Bytes key, const uint8_t* data, Py_ssize_t size, Py_ssize_t table, int type) except -1:
    """Adds what a type without children says; False where it is another one, or broken."""
    cdef Py_ssize_t at
    cdef int number, width, i
    cdef uint32_t length
    if not (1 <= type <= 11 or type == 15 or 18 <= type <= 20 or type == 23 or type == 24) or table <= 0:
        return False
    if place_in(data, size, table, 0, 0) < 0:
        return False
    for number in range(3):
        width = parameter_width(type, number)
        at = place_in(data, size, table, number, width) if width > 0 else target_in(data, size, table, number) if width else 0
        if at < 0:
            return False
        key.byte(at > 0)
        if at and width < 0:
            length = word_at(data, at)
            if length > LONGEST_ZONE or not is_there(size, at + 4, length):
                return False
            width, at = 4 + <int> length, at
        for i in range(width if at else 0):
            key.byte(data[at + i])
    return True


def alike_fields(buffer, Py_ssize_t vector, list names):
    """Numbers that fields of an IPC schema share which differ in their names alone, and the first field of each.

    The fields are those of the vector of tables at an offset of a flatbuffer, one for each name. The number is -1 where
    a field has another name, metadata, children or a dictionary, or is broken: other ways tell what it is.
    """
    cdef Array source = readable(buffer)
    cdef const uint8_t* data = source.at
    cdef Py_ssize_t size = source.size, i, at, table, name, length
    cdef list numbers = []
    cdef dict known = {}
    cdef const char* text
    cdef Bytes key = Bytes()
    cdef bint common
    cdef int field
    for i in range(len(names)):
        common = vector >= 0 and is_there(size, vector + 4 + 4 * i, 4)
        if common:
            at = vector + 4 + 4 * i
            table = at + word_at(data, at)
            name = target_in(data, size, table, 0)
            try:
                text = PyUnicode_AsUTF8AndSize(names[i], &length)
            except UnicodeEncodeError:
                text = NULL
            common = (text != NULL and name > 0 and word_at(data, name) == <uint64_t> length
                      and is_there(size, name + 4, length) and memcmp(data + name + 4, text, length) == 0)
        if common:
            key.size = 0
            for field in range(1, 3):  # whether it is nullable, and its type
                at = place_in(data, size, table, field, 1)
                common = common and at >= 0
                key.byte(data[at] if at > 0 else 0)
            common = common and place_in(data, size, table, 4, 4) == 0
            for field in range(5, 7):
                at = target_in(data, size, table, field)
                common = common and at >= 0 and (at == 0 or word_at(data, at) == 0)
            common = common and put_parameters(key, data, size, target_in(data, size, table, 3), key.data[1])
        numbers.append(known.setdefault(key.found(), i) if common else -1)
    return numbers


cdef void release_nothing(ArrowSchema* schema) noexcept:
    schema.release = NULL  # what it names is let go with all others


cdef class LeafSchemas:
    """Arrow schemas of columns without children, in memory of their own, one behind the other."""

    cdef ArrowSchema* schemas
    cdef list texts
    #: Where the first one lies, and how many bytes each takes.
    cdef readonly uintptr_t address
    cdef readonly Py_ssize_t size

    def __init__(self, list names, format, bint nullable):
        cdef Py_ssize_t i
        cdef bytes kind = format.encode(), name
        if self.schemas != NULL:
            raise ValueError("schemas are made once")
        self.schemas = <ArrowSchema*> calloc(len(names) + 1, sizeof(ArrowSchema))
        if self.schemas == NULL:
            raise MemoryError
        self.texts = [kind]
        self.address, self.size = <uintptr_t> self.schemas, sizeof(ArrowSchema)
        for i in range(len(names)):
            name = names[i].encode()
            self.texts.append(name)
            self.schemas[i].format, self.schemas[i].name = PyBytes_AsString(kind), PyBytes_AsString(name)
            self.schemas[i].flags = SCHEMA_NULLABLE if nullable else 0
            self.schemas[i].release = release_nothing

    def __dealloc__(self):
        free(self.schemas)
