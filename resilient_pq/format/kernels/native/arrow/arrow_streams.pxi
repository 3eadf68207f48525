# Streams of record batches over arrays that others share. Included by `_native.pyx` behind `arrow_schemas.pxi`.
#
# What is given out shares the buffers of what it was made of, and keeps that alive; but the structs are its own at every
# depth, as whoever is given them may move their children away.

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New

cdef struct ArrowArrayStream:  # as the specification of the interface has it
    int (*get_schema)(ArrowArrayStream*, ArrowSchema*) noexcept
    int (*get_next)(ArrowArrayStream*, ArrowArray*) noexcept
    const char* (*get_last_error)(ArrowArrayStream*) noexcept
    void (*release)(ArrowArrayStream*) noexcept
    void* private_data

cdef struct Sharing:  # by a struct, wherever it is moved to
    PyObject* owner
    const void* no_buffer

cdef enum:
    NO_MEMORY = 12  # ENOMEM
    FAILED = 5  # EIO


cdef void release_shared_array(ArrowArray* array) noexcept with gil:
    cdef Sharing* sharing = <Sharing*> array.private_data
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    if array.dictionary != NULL and array.dictionary.release != NULL:
        array.dictionary.release(array.dictionary)
    array.release = NULL
    Py_DECREF(<object> sharing.owner)
    free(sharing)


cdef Sharing* shared(object owner, ArrowArray* to, int64_t count, bint has_dictionary) except NULL:
    """Has an array hold its owner, and room for its children and its dictionary, none of which is made yet."""
    cdef int64_t i
    cdef Sharing* made
    cdef ArrowArray** children
    if not 0 <= count <= LARGEST_LENGTH:
        raise ValueError("an array has a number of children that it cannot have")
    made = <Sharing*> calloc(1, sizeof(Sharing) + count * sizeof(void*) + (count + has_dictionary) * sizeof(ArrowArray))
    if made == NULL:
        raise MemoryError
    Py_INCREF(owner)
    made.owner, children = <PyObject*> owner, <ArrowArray**> (made + 1)
    for i in range(count):
        children[i] = <ArrowArray*> (children + count) + i
    to.n_children, to.children, to.private_data, to.release = count, children, made, release_shared_array
    to.dictionary = <ArrowArray*> (children + count) + count if has_dictionary else NULL
    return made


cdef int share_array(ArrowArray* to, const ArrowArray* array, object owner, int depth) except -1:
    """Makes an array over the buffers of another one, which its owner keeps."""
    cdef int64_t i
    if array.release == NULL or depth < 0:
        raise ValueError("an array was moved away, or is nested too deeply")
    shared(owner, to, array.n_children, array.dictionary != NULL)
    to.length, to.null_count, to.offset = array.length, array.null_count, array.offset
    to.n_buffers, to.buffers = array.n_buffers, array.buffers
    try:
        for i in range(array.n_children):
            share_array(to.children[i], array.children[i], owner, depth - 1)
        if array.dictionary != NULL:
            share_array(to.dictionary, array.dictionary, owner, depth - 1)
    except:
        to.release(to)  # children that are not made yet have no release
        raise
    return 0


cdef class Batches:
    """What a stream gives: a struct of each chunk, in turn."""

    cdef object schema, message
    cdef list chunks
    cdef Py_ssize_t next
    cdef int deepest

    cdef int give_next(self, ArrowArray* to) except -1:
        cdef list arrays
        cdef Py_ssize_t i
        memset(to, 0, sizeof(ArrowArray))
        if self.next >= len(self.chunks):
            return 0
        arrays = self.chunks[self.next]
        self.next += 1
        to.n_buffers, to.buffers = 1, &shared(None, to, len(arrays), False).no_buffer
        try:
            for i in range(len(arrays)):
                share_array(to.children[i], <const ArrowArray*> <uintptr_t> arrays[i]._addr(), arrays[i], self.deepest)
                if i and to.children[i].length != to.length:
                    raise ValueError("the arrays of a chunk have not the same length")
                to.length = to.children[i].length
        except:
            to.release(to)
            raise
        return 0


cdef int stream_schema(ArrowArrayStream* stream, ArrowSchema* to) noexcept with gil:
    cdef Batches batches = <Batches> stream.private_data
    cdef ArrowSchema* copied
    try:
        capsule = batches.schema.__arrow_c_schema__()
        copied = <ArrowSchema*> PyCapsule_GetPointer(capsule, b"arrow_schema")
        to[0] = copied[0]
        copied.release = NULL
        return 0
    except BaseException as error:
        return failure(batches, error)


cdef int stream_next(ArrowArrayStream* stream, ArrowArray* to) noexcept with gil:
    cdef Batches batches = <Batches> stream.private_data
    try:
        batches.give_next(to)
        return 0
    except BaseException as error:
        return failure(batches, error)


cdef int failure(Batches batches, error) except -1:
    batches.message = str(error).encode()
    return NO_MEMORY if isinstance(error, MemoryError) else FAILED


cdef const char* stream_error(ArrowArrayStream* stream) noexcept with gil:
    cdef Batches batches = <Batches> stream.private_data
    return NULL if batches.message is None else <const char*> <bytes> batches.message


cdef void release_stream(ArrowArrayStream* stream) noexcept with gil:
    stream.release = NULL
    Py_DECREF(<object> stream.private_data)


cdef void free_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


def batch_stream(schema, list chunks, int deepest):
    """A capsule of the C stream interface that gives chunks, lists of nanoarrow's `CArray`s, as structs of a `CSchema`."""
    cdef Batches batches = Batches.__new__(Batches)
    cdef ArrowArrayStream* stream = <ArrowArrayStream*> calloc(1, sizeof(ArrowArrayStream))
    if stream == NULL:
        raise MemoryError
    batches.schema, batches.chunks, batches.deepest = schema, chunks, deepest
    stream.get_schema, stream.get_next = stream_schema, stream_next
    stream.get_last_error, stream.release = stream_error, release_stream
    Py_INCREF(batches)
    stream.private_data = <void*> batches
    return PyCapsule_New(stream, b"arrow_array_stream", free_stream)
