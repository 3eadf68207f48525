# Unscaled integers of decimals. Included by `_native.pyx`.

def decimals_widen(values not None, out not None):
    """See `reference.decimals_widen`."""
    cdef uint8_t[:, ::1] rows = out
    cdef const uint8_t[:, ::1] source
    cdef Py_ssize_t count = rows.shape[0], size = rows.shape[1], width
    cdef bint numbers = values.ndim == 1, fits = True
    if size != 16 and size != 32:
        raise ValueError("decimals have rows of 16 or 32 bytes")
    if len(values) != count:
        raise ValueError("there must be one row per value")
    source = integer_rows(values) if numbers else values
    width = source.shape[1]
    if count:
        with nogil:
            if numbers:
                widen_numbers(&source[0, 0], count, width, &rows[0, 0], size)
            else:
                fits = widen_rows(&source[0, 0], count, width, &rows[0, 0], size)
    return fits


def decimals_narrow(const uint8_t[:, ::1] rows not None, out not None):
    """See `reference.decimals_narrow`."""
    cdef bint numbers = out.ndim == 1
    cdef uint8_t[:, ::1] target = integer_rows(out) if numbers else out
    cdef Py_ssize_t count = rows.shape[0], size = rows.shape[1], width = target.shape[1], wrong = -1
    if size not in (4, 8, 16, 32):
        raise ValueError("decimals have rows of 4, 8, 16 or 32 bytes")
    if target.shape[0] != count or width == 0:
        raise ValueError("there must be one place of at least a byte per row")
    if count:
        with nogil:
            if narrow_rows(&rows[0, 0], count, size, &target[0, 0], width, numbers):
                wrong = first_too_wide(&rows[0, 0], count, size, width)
    return wrong


cdef object integer_rows(numbers):
    """The bytes of integers, a row for each."""
    if numbers.dtype not in (np.int32, np.int64):
        raise ValueError("integers of decimals are int32 or int64")
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize)
