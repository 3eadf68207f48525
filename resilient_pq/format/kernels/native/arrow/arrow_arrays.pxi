# Arrays of the Arrow C data interface over memory of Python objects. Included by `_native.pyx`.

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport uintptr_t

cdef struct ArrowArray:  # as the specification of the interface has it
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept
    void* private_data

cdef struct Held:  # by an array, wherever it is moved to
    PyObject* owner
    const void* buffers[3]


cdef void release_array(ArrowArray* array) noexcept with gil:
    cdef Held* held = <Held*> array.private_data
    array.release = NULL
    Py_DECREF(<object> held.owner)
    free(held)


cdef class ArrowStruct:
    """See `reference.ArrowStruct`."""

    cdef ArrowArray array

    def __dealloc__(self):
        if self.array.release != NULL:  # else somebody moved it away
            self.array.release(&self.array)

    @property
    def address(self):
        """Where the `ArrowArray` lies."""
        return <uintptr_t> &self.array


cdef ArrowStruct array_over(object owner, int64_t length, int64_t null_count, int num_buffers):
    """An array without buffers yet, which keeps their owner alive."""
    cdef ArrowStruct made = ArrowStruct.__new__(ArrowStruct)
    cdef Held* held = <Held*> calloc(1, sizeof(Held))
    if held == NULL:
        raise MemoryError
    Py_INCREF(owner)
    held.owner = <PyObject*> owner
    made.array.length, made.array.null_count, made.array.n_buffers = length, null_count, num_buffers
    made.array.buffers = held.buffers
    made.array.private_data = held
    made.array.release = release_array
    return made
