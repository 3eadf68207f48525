# BYTE_STREAM_SPLIT. Included by `_native.pyx`.

cdef extern from "native/headers/streams.h":
    void split_streams_of(const uint8_t* source, ptrdiff_t count, ptrdiff_t width, uint8_t* to,
                          ptrdiff_t stride) noexcept nogil
    void join_streams_of(const uint8_t* source, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t width,
                         uint8_t* to) noexcept nogil


def split_streams(rows, out):
    """See `reference.split_streams`."""
    cdef Array source = readable(rows, 1, 2), to = writable(out, 1, 2)
    if source.count != to.columns or source.columns != to.count:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    with nogil:
        split_streams_of(source.at, source.count, source.columns, to.at, to.columns)


def join_streams(streams, out):
    """See `reference.join_streams`."""
    cdef Array source = readable(streams, 1, 2), to = writable(out, 1, 2)
    if source.count != to.columns or source.columns < to.count:
        raise ValueError("there must be a stream for each byte of a row, and a byte in it for each row")
    with nogil:
        join_streams_of(source.at, source.columns, to.count, to.columns, to.at)
