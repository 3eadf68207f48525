# The memory of arrays and other buffers. Included by `_native.pyx`.

cdef class Array:
    """The memory of an argument, for loops without the GIL; it stays where it is as long as this lives.

    A typed memoryview would do the same, but each of them is compiled to hundreds of lines.
    """

    cdef Py_buffer view
    cdef uint8_t* at
    cdef Py_ssize_t count  # items of an array of one dimension, rows of one of two
    cdef Py_ssize_t columns  # of an array of two dimensions, else 1
    cdef Py_ssize_t width  # bytes of an item
    cdef Py_ssize_t size  # bytes of all

    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef enum:
    UNSIGNED = 16  # beside widths: those of 4 and 8 bytes are not signed
    NUMBERS = 32  # they may be anything that is compared


cdef Array readable(array, int widths=1, int ndim=1, int flags=PyBUF_ND | PyBUF_FORMAT):
    """The memory of contiguous integers, the widths of which may be those added up; of 1 and 2 bytes unsigned ones."""
    cdef Array found = Array.__new__(Array)
    cdef const char* types
    PyObject_GetBuffer(array, &found.view, flags)
    if found.view.format[0] == b"=" and not flags & PyBUF_WRITABLE:  # NumPy says so of arrays that are not aligned
        PyBuffer_Release(&found.view)
        PyObject_GetBuffer(np.require(array, requirements="CA"), &found.view, flags)
    if found.view.ndim != ndim:
        raise ValueError(f"a kernel takes an array of {ndim} dimensions here, not {found.view.ndim}")
    # Anything but the order of bytes of this machine has a first character of its own.
    types = b"ilqILQfd" if widths & NUMBERS else b"?BHILQ" if widths & UNSIGNED else b"?BHilq"
    if strchr(types, found.view.format[0]) == NULL or not widths & found.view.itemsize:
        raise ValueError(f"a kernel takes other numbers here than these of {found.view.itemsize} bytes")
    found.at = <uint8_t*> found.view.buf
    found.width = found.view.itemsize
    found.size = found.view.len
    found.count = found.view.shape[0]
    found.columns = found.view.shape[1] if ndim == 2 else 1
    return found


cdef Array writable(array, int widths=1, int ndim=1):
    return readable(array, widths, ndim, PyBUF_ND | PyBUF_FORMAT | PyBUF_WRITABLE)


cdef Array bits_of(array, bint to_write=False):
    """The memory of numbers of any type, as the integers that they are in."""
    if array.ndim != 1 or array.itemsize not in (1, 2, 4, 8):
        raise ValueError("values must be one-dimensional with 1, 2, 4 or 8 bytes each, or rows of uint8")
    bits = array.view(f"u{array.itemsize}")
    return writable(bits, UNSIGNED | 1 | 2 | 4 | 8) if to_write else readable(bits, UNSIGNED | 1 | 2 | 4 | 8)
