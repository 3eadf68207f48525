# Arrow's string and binary views. Included by `_native.pyx`.

def views_of(offsets not None, const uint8_t[::1] data not None, int32_t buffer, int32_t[:, ::1] out not None):
    """See `reference.views_of`."""
    cdef const int32_t[::1] narrow
    cdef const int64_t[::1] wide
    if out.shape[1] != 4 or out.shape[0] != len(offsets) - 1:
        raise ValueError("there must be a view of four words for each value")
    if offsets.itemsize == 4:
        narrow = offsets
        with nogil:
            check_offsets(&narrow[0], narrow.shape[0], data.shape[0])
            write_views(&narrow[0], narrow.shape[0] - 1, &data[0], buffer, <uint8_t*> &out[0, 0])
    else:
        wide = offsets
        with nogil:
            check_offsets(&wide[0], wide.shape[0], data.shape[0])
            write_views(&wide[0], wide.shape[0] - 1, &data[0], buffer, <uint8_t*> &out[0, 0])


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
        cdef const uint8_t[::1] view
        cdef Py_ssize_t i
        self.held = [memoryview(buffer) for buffer in buffers]
        self.count = len(self.held)
        self.starts = <const uint8_t**> calloc(self.count + 1, sizeof(uint8_t*))
        self.sizes = <Py_ssize_t*> calloc(self.count + 1, sizeof(Py_ssize_t))
        if self.starts == NULL or self.sizes == NULL:
            raise MemoryError
        for i in range(self.count):
            view = self.held[i]
            self.starts[i] = &view[0]
            self.sizes[i] = view.shape[0]

    def __dealloc__(self):
        free(<void*> self.starts)
        free(self.sizes)


def views_join(const int32_t[:, ::1] views not None, buffers not None):
    """See `reference.views_join`."""
    cdef Buffers sources = Buffers(buffers)
    cdef Py_ssize_t n = views.shape[0]
    cdef const uint8_t* words = <const uint8_t*> &views[0, 0]
    cdef int32_t[::1] narrow_out
    cdef int64_t[::1] wide_out
    cdef uint8_t[::1] out
    cdef int64_t total
    if views.shape[1] != 4:
        raise ValueError("a view has four words")
    with nogil:
        total = check_views(words, n, sources)
    data = empty((total,), np.uint8)
    out = data
    offsets = empty((n + 1,), np.int32 if total <= LARGEST_LENGTH else np.int64)
    if total <= LARGEST_LENGTH:
        narrow_out = offsets
        with nogil:
            join_views(words, n, sources, &narrow_out[0], &out[0], total)
    else:
        wide_out = offsets
        with nogil:
            join_views(words, n, sources, &wide_out[0], &out[0], total)
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
