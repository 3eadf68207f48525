# The pages of a batch, compared and decompressed. Included by `_native.pyx` behind `chunk_batch.pxi`.

cdef extern from "native/headers/crc32.h":
    const bint HAS_CRC32
    void prepare_crc32()
    uint32_t crc32_of(const uint8_t* data, ptrdiff_t size) noexcept nogil

cdef extern from "native/headers/snappy.h":
    bint unpack_snappy(const uint8_t* source, ptrdiff_t size, uint8_t* to, ptrdiff_t room) noexcept nogil

cdef enum:
    OF_SNAPPY = 1

prepare_crc32()


cdef bint opens_pages(const int64_t* chunk) noexcept nogil:
    """Whether the pages of a chunk are compared and decompressed without others."""
    return chunk[CHUNK_CODEC] in (0, OF_SNAPPY) and (HAS_CRC32 or chunk[CHUNK_LEAST_CRC] > <int64_t> 0xFFFFFFFF)


cdef bint open_pages(
    const BatchChunk* of_it, const int64_t* chunk, const uint8_t* part, uint8_t* arena, uint8_t* scratch
) noexcept nogil:
    """Compares and decompresses the pages of a chunk, from behind as `add_bodies` does; False for damaged ones."""
    cdef const int64_t* page
    cdef const uint8_t* body
    cdef uint8_t* to
    cdef uint8_t[LANDING] levels
    cdef Py_ssize_t slot = chunk[CHUNK_ROWS], p, skipped, before
    for p in range(of_it.num_pages - 1, -1, -1):
        page = of_it.pages + p * PAGE_FIELDS
        body = part + page[1]
        slot -= page[6] if page[4] != 2 else 0
        if page[5] >= chunk[CHUNK_LEAST_CRC] and crc32_of(body, page[2]) != page[5]:
            return False
        skipped = page[10] + page[11] if page[4] == 3 else 0
        if page[PAGE_PLACE] == LANDED:
            before = levels_of_values(page[6], levels) if page[4] == 0 and chunk[CHUNK_OPTIONAL] else 0
            to = arena + of_it.values + slot * chunk[CHUNK_WIDTH] - before
            if not unpack_snappy(body + skipped, page[2] - skipped, to, before + page[6] * chunk[CHUNK_WIDTH]):
                return False
            if before and memcmp(to, levels, before):
                return False
        elif page[PAGE_PLACE] >= 0:
            to = scratch + page[PAGE_PLACE]
            memcpy(to, body, skipped)
            if page[2] > skipped or page[3] > skipped:  # some writers leave out even the empty frame
                if not unpack_snappy(body + skipped, page[2] - skipped, to + skipped, page[3] - skipped):
                    return False
    return True


cdef Py_ssize_t levels_of_values(int64_t count, uint8_t* out) noexcept nogil:
    """Writes the levels of a data page v1 without nulls, as most writers do, and returns how many bytes these are."""
    cdef Py_ssize_t written = write_varint(out + 4, <uint64_t> count << 1)
    out[4 + written] = 1
    store32(out, <uint32_t> written + 1)
    return written + 5


cdef bint lands(const int64_t* chunk, const int64_t* page, const uint8_t* part) noexcept nogil:
    """Whether a page can be decompressed to where its values belong: by its size it has no nulls."""
    cdef uint8_t levels[LANDING]
    cdef Py_ssize_t before = 0
    if page[4] == 2 or page[7] != 0 or chunk[CHUNK_WIDTH] == 0 or page[6] == 0:
        return False
    if page[4] == 3:
        before = page[10]
        if chunk[CHUNK_OPTIONAL] and not all_at_maximum(part + page[1], before, 1, page[6]):
            return False
    elif chunk[CHUNK_OPTIONAL]:
        before = levels_of_values(page[6], levels)
    return page[3] == before + page[6] * chunk[CHUNK_WIDTH]
