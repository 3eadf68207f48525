# Schemas of the Arrow C data interface. Included by `_native.pyx` behind `flat_chunk.pxi`.

cdef struct ArrowSchema:  # as the specification of the interface has it
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept
    void* private_data


def schema_key(uintptr_t address, int deepest):
    """Bytes that two Arrow schemas of the C data interface share where they say the same; None beyond a depth."""
    cdef Bytes out = Bytes()
    return out.found() if put_schema(out, <const ArrowSchema*> address, deepest) else None


cdef bint put_schema(Bytes out, const ArrowSchema* schema, int deepest) except -1:
    cdef const char* text = schema.metadata
    cdef int64_t i
    cdef int32_t size, left
    if deepest < 0:
        return False
    for i in range(2):  # with the zeros at their ends
        text = schema.format if i == 0 else schema.name
        put_run(out, <const uint8_t*> text, 0, strlen(text) + 1 if text != NULL else 0)
        out.byte(0)
    out.number(-1, schema.flags)
    out.number(-1, schema.n_children)
    out.byte((schema.dictionary != NULL) + 2 * (schema.metadata != NULL))
    if schema.metadata != NULL:  # a number of pairs, then the size and the bytes of each key and of each value
        text = schema.metadata
        memcpy(&left, text, 4)
        text += 4
        for i in range(2 * <int64_t> left):
            memcpy(&size, text, 4)
            text += 4 + size
        put_run(out, <const uint8_t*> schema.metadata, 0, text - schema.metadata)
    if schema.dictionary != NULL and not put_schema(out, schema.dictionary, deepest - 1):
        return False
    for i in range(schema.n_children):
        if not put_schema(out, schema.children[i], deepest - 1):
            return False
    return True
