# Streams of record batches over arrays that others share. Included by `_native.pyx` behind `arrow_schemas.pxi`.
#
# What is given out shares the buffers and texts of what it was made of, and keeps that alive; but the structs are its
# own at every depth, as whoever is given them may move their children away.

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


cdef Sharing* shared(object owner, int64_t count, bint has_dictionary, size_t size, void*** children) except NULL:
    """Room for the children of a struct, each of a size, for its dictionary behind them, and for its owner."""
    cdef int64_t i
    cdef Sharing* made
    if not 0 <= count <= LARGEST_LENGTH:
        raise ValueError("a struct has a number of children that it cannot have")
    made = <Sharing*> calloc(1, sizeof(Sharing) + count * sizeof(void*) + (count + has_dictionary) * size)
    if made == NULL:
        raise MemoryError
    Py_INCREF(owner)
    made.owner = <PyObject*> owner
    children[0] = <void**> (made + 1)
    for i in range(count):
        children[0][i] = <uint8_t*> (children[0] + count) + i * size
    return made


cdef int share_array(ArrowArray* to, const ArrowArray* array, object owner, int depth) except -1:
    """Makes an array over the buffers of another one, which its owner keeps."""
    cdef void** children
    cdef Sharing* sharing
    cdef int64_t i
    if array.release == NULL or depth < 0:
        raise ValueError("an array was moved away, or is nested too deeply")
    sharing = shared(owner, array.n_children, array.dictionary != NULL, sizeof(ArrowArray), &children)
    to[0] = array[0]
    to.private_data, to.children, to.dictionary = sharing, <ArrowArray**> children, NULL
    to.release = release_shared_array
    try:
        for i in range(array.n_children):
            share_array(to.children[i], array.children[i], owner, depth - 1)
        if array.dictionary != NULL:
            to.dictionary = <ArrowArray*> (children + array.n_children) + array.n_children
            share_array(to.dictionary, array.dictionary, owner, depth - 1)
    except:
        to.release(to)  # children that are not made yet have no release
        raise
    return 0


cdef void release_shared_schema(ArrowSchema* schema) noexcept with gil:
    cdef Sharing* sharing = <Sharing*> schema.private_data
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release != NULL:
            schema.children[i].release(schema.children[i])
    if schema.dictionary != NULL and schema.dictionary.release != NULL:
        schema.dictionary.release(schema.dictionary)
    schema.release = NULL
    Py_DECREF(<object> sharing.owner)
    free(sharing)


cdef int share_schema(ArrowSchema* to, const ArrowSchema* schema, object owner, int depth) except -1:
    """Makes a schema over the texts of another one, which its owner keeps."""
    cdef void** children
    cdef Sharing* sharing
    cdef int64_t i
    if schema.release == NULL or depth < 0:
        raise ValueError("a schema was moved away, or is nested too deeply")
    sharing = shared(owner, schema.n_children, schema.dictionary != NULL, sizeof(ArrowSchema), &children)
    to[0] = schema[0]
    to.private_data, to.children, to.dictionary = sharing, <ArrowSchema**> children, NULL
    to.release = release_shared_schema
    try:
        for i in range(schema.n_children):
            share_schema(to.children[i], schema.children[i], owner, depth - 1)
        if schema.dictionary != NULL:
            to.dictionary = <ArrowSchema*> (children + schema.n_children) + schema.n_children
            share_schema(to.dictionary, schema.dictionary, owner, depth - 1)
    except:
        to.release(to)
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
        cdef void** children
        cdef Sharing* sharing
        cdef Py_ssize_t i
        memset(to, 0, sizeof(ArrowArray))
        if self.next >= len(self.chunks):
            return 0
        arrays = self.chunks[self.next]
        self.next += 1
        sharing = shared(None, len(arrays), False, sizeof(ArrowArray), &children)
        to.n_children, to.children, to.private_data = len(arrays), <ArrowArray**> children, sharing
        to.n_buffers, to.buffers = 1, &sharing.no_buffer
        to.release = release_shared_array
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
    try:
        share_schema(to, <const ArrowSchema*> <uintptr_t> batches.schema._addr(), batches.schema, batches.deepest)
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
