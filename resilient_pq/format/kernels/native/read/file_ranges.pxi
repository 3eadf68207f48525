# Ranges of an open file, read into memory. Included by `_native.pyx`.

from libc.errno cimport errno

import os

cdef extern from "native/headers/files.h":
    ptrdiff_t read_at(int descriptor, uint8_t* to, ptrdiff_t size, int64_t at) noexcept nogil


def fill_ranges(int descriptor, ranges, memory):
    """See `kernels.fill_ranges`."""
    cdef Array into = writable(memory)
    cdef Array places = readable(np.array([(wanted.start, wanted.end) for wanted in ranges], np.int64), 8, 2)
    cdef const int64_t* place = <const int64_t*> places.at
    cdef Py_ssize_t i, filled = 0
    cdef int64_t start, end
    cdef ptrdiff_t found = 1
    cdef int failed = 0
    with nogil:
        for i in range(places.count):
            start, end = place[2 * i], place[2 * i + 1]
            while found > 0 and start < end and end - start <= into.size - filled:
                found = read_at(descriptor, into.at + filled, end - start, start)
                if found < 0:
                    failed = errno
                elif found > 0:
                    start += found
                    filled += found
            if start < end:
                break
    if failed:
        raise OSError(failed, os.strerror(failed))
    return filled
