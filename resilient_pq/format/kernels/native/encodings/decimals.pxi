# Unscaled integers of decimals. Included by `_native.pyx`.

cdef extern from "native/headers/decimals.h":
    void widen_numbers(const uint8_t* source, ptrdiff_t count, ptrdiff_t width, uint8_t* to,
                       ptrdiff_t size) noexcept nogil
    bint widen_rows(const uint8_t* source, ptrdiff_t count, ptrdiff_t width, uint8_t* to,
                    ptrdiff_t size) noexcept nogil
    uint64_t narrow_rows(const uint8_t* source, ptrdiff_t count, ptrdiff_t size, uint8_t* to,
                         ptrdiff_t width, bint numbers) noexcept nogil
    ptrdiff_t first_too_wide(const uint8_t* source, ptrdiff_t count, ptrdiff_t size,
                             ptrdiff_t width) noexcept nogil


def decimals_widen(values, out):
    """See `reference.decimals_widen`."""
    cdef bint numbers = values.ndim == 1, fits = True
    cdef Array rows = writable(out, 1, 2), source = integers(values) if numbers else readable(values, 1, 2)
    if rows.columns not in (16, 32):
        raise ValueError("decimals have rows of 16 or 32 bytes")
    if source.count != rows.count:
        raise ValueError("there must be one row per value")
    with nogil:
        if numbers:
            widen_numbers(source.at, rows.count, source.width, rows.at, rows.columns)
        else:
            fits = widen_rows(source.at, rows.count, source.columns, rows.at, rows.columns)
    return fits


def decimals_narrow(rows, out):
    """See `reference.decimals_narrow`."""
    cdef bint numbers = out.ndim == 1
    cdef Array source = readable(rows, 1, 2), to = integers(out, True) if numbers else writable(out, 1, 2)
    cdef Py_ssize_t count = source.count, size = source.columns, width = to.width * to.columns, wrong = -1
    if size not in (4, 8, 16, 32):
        raise ValueError("decimals have rows of 4, 8, 16 or 32 bytes")
    if to.count != count or width == 0:
        raise ValueError("there must be one place of at least a byte per row")
    with nogil:
        if narrow_rows(source.at, count, size, to.at, width, numbers):
            wrong = first_too_wide(source.at, count, size, width)
    return wrong


cdef Array integers(numbers, bint to_write=False):
    if numbers.dtype not in (np.int32, np.int64):
        raise ValueError("integers of decimals are int32 or int64")
    return bits_of(numbers, to_write)
