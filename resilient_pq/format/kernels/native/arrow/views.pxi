# Arrow's string and binary views. Included by `_native.pyx`.

cdef extern from "native/headers/views.h":
    void store_view(uint8_t* to, const uint8_t* source, ptrdiff_t room, uint32_t size, uint32_t buffer,
                    uint32_t offset) noexcept nogil


def views_of(offsets, data, int32_t buffer, out):
    """See `reference.views_of`."""
    cdef Array starts = readable(offsets, 4 | 8), source = readable(data), to = writable(out, 4, 2)
    if to.columns != 4 or to.count != starts.count - 1:
        raise ValueError("there must be a view of four words for each value")
    with nogil:
        check_all_offsets(starts, source)
        if starts.width == 4:
            write_views(<const int32_t*> starts.at, to.count, source.at, buffer, to.at)
        else:
            write_views(<const int64_t*> starts.at, to.count, source.at, buffer, to.at)


cdef int write_views(
    const Offset* offsets, Py_ssize_t n, const uint8_t* data, int32_t buffer, uint8_t* out
) except -1 nogil:
    cdef Py_ssize_t i, first = <Py_ssize_t> offsets[0], last = <Py_ssize_t> offsets[n], start
    if last - first > LARGEST_LENGTH:
        return malformed(b"values of 2**31 bytes or more do not fit one buffer of views")
    for i in range(n):
        start = <Py_ssize_t> offsets[i]
        store_view(out + 16 * i, data + start, last - start, <uint32_t> (offsets[i + 1] - offsets[i]),
                   <uint32_t> buffer, <uint32_t> (start - first))
    return 0


cdef class Buffers:
    """Where buffers lie, for loops without the GIL."""

    cdef list held
    cdef const uint8_t** starts
    cdef Py_ssize_t* sizes
    cdef Py_ssize_t count

    def __cinit__(self, buffers):
        cdef Array one
        cdef Py_ssize_t i
        self.held = [readable(buffer) for buffer in buffers]
        self.count = len(self.held)
        self.starts = <const uint8_t**> calloc(self.count + 1, sizeof(uint8_t*))
        self.sizes = <Py_ssize_t*> calloc(self.count + 1, sizeof(Py_ssize_t))
        if self.starts == NULL or self.sizes == NULL:
            raise MemoryError
        for i in range(self.count):
            one = self.held[i]
            self.starts[i] = one.at
            self.sizes[i] = one.size

    def __dealloc__(self):
        free(<void*> self.starts)
        free(self.sizes)


def views_join(views, buffers):
    """See `reference.views_join`."""
    cdef Buffers sources = Buffers(buffers)
    cdef Array words = readable(views, 4, 2), ends, to
    cdef int64_t total
    if words.columns != 4:
        raise ValueError("a view has four words")
    with nogil:
        total = check_views(words.at, words.count, sources)
    data = empty((total,), np.uint8)
    offsets = empty((words.count + 1,), np.int32 if total <= LARGEST_LENGTH else np.int64)
    to, ends = writable(data), writable(offsets, 4 | 8)
    with nogil:
        if ends.width == 4:
            join_views(words.at, words.count, sources, <int32_t*> ends.at, to.at, total)
        else:
            join_views(words.at, words.count, sources, <int64_t*> ends.at, to.at, total)
    return offsets, data


cdef int64_t check_views(const uint8_t* views, Py_ssize_t n, Buffers sources) except -1 nogil:
    """Refuses views that lead out of their buffers; returns the bytes of all values."""
    cdef int64_t total = 0
    cdef Py_ssize_t i
    cdef uint32_t size, buffer, offset
    for i in range(n):
        size = load32(views + 16 * i)
        if size > INLINE_VIEW:
            buffer = load32(views + 16 * i + 8)
            offset = load32(views + 16 * i + 12)
            if size > LARGEST_LENGTH or <Py_ssize_t> buffer >= sources.count:
                return malformed(b"a view leads out of its buffers")
            if <int64_t> offset + size > sources.sizes[buffer]:
                return malformed(b"a view leads out of its buffers")
        total += size
    return total


cdef void join_views(
    const uint8_t* views, Py_ssize_t n, Buffers sources, Offset* offsets, uint8_t* out, int64_t total
) noexcept nogil:
    cdef const uint8_t* source
    cdef Py_ssize_t i, room, written = 0
    cdef uint32_t size, buffer, offset
    for i in range(n):
        offsets[i] = <Offset> written
        size = load32(views + 16 * i)
        if size > INLINE_VIEW:
            buffer = load32(views + 16 * i + 8)
            offset = load32(views + 16 * i + 12)
            source = sources.starts[buffer] + offset
            room = sources.sizes[buffer] - offset
        else:
            source = views + 16 * i + 4
            room = 16 * (n - i) - 4
        copy_bytes(out + written, total - written, source, room, size)
        written += size
    offsets[n] = <Offset> written
