# Pages compared with their checksums and decompressed, in small chunks of a batch. Included behind `chunk_batch.pxi`.

cdef extern from "native/headers/crc32.h":
    void prepare_crc32() noexcept nogil
    uint32_t crc32_of(const uint8_t* data, ptrdiff_t size) noexcept nogil

cdef extern from "native/headers/snappy.h":
    bint fill_from_snappy(const uint8_t* data, ptrdiff_t size, uint8_t* to, ptrdiff_t room) noexcept nogil

cdef enum:
    OF_SNAPPY = 1
    MOST_OPENED = 1 << 18  # bytes of a chunk; for more, other decompressors are as fast

prepare_crc32()


cdef bint opens_here(const int64_t* chunk, const BatchChunk* of_it) noexcept nogil:
    """Whether all pages of a chunk can be compared and decompressed by `open_pages`: it is small, and of a codec here.

    All or none, as a page that lands must come after those that follow it.
    """
    cdef Py_ssize_t p
    if chunk[CHUNK_SIZE] > MOST_OPENED:
        return False
    if chunk[CHUNK_CODEC] == OF_SNAPPY:
        return True
    for p in range(of_it.num_pages):
        if of_it.pages[p * PAGE_FIELDS + PAGE_PLACE] != STORED:
            return False
    return True


cdef bint open_pages(
    const int64_t* chunk, const BatchChunk* of_it, const uint8_t* part, uint8_t* arena, uint8_t* scratch
) noexcept nogil:
    """Compares and decompresses the pages of a chunk, as `ChunkBatch.bodies` says; False where one is not whole."""
    cdef const int64_t* page
    cdef const uint8_t* body
    cdef Py_ssize_t slot = chunk[CHUNK_ROWS], p, skipped, before
    cdef uint8_t levels[LANDING]
    cdef uint8_t* to
    for p in range(of_it.num_pages - 1, -1, -1):
        page = of_it.pages + p * PAGE_FIELDS
        slot -= page[6] if page[4] != 2 else 0
        body = part + page[1]
        if page[5] >= chunk[CHUNK_LEAST_CRC] and crc32_of(body, page[2]) != <uint64_t> page[5]:
            return False
        skipped = page[10] + page[11] if page[4] == 3 else 0
        if page[PAGE_PLACE] == LANDED:
            before = 0
            if page[4] == 0 and chunk[CHUNK_OPTIONAL]:
                before = levels_of_values(page[6], levels)
            to = arena + of_it.values + slot * chunk[CHUNK_WIDTH] - before
            if not fill_from_snappy(body + skipped, page[2] - skipped, to, before + page[6] * chunk[CHUNK_WIDTH]):
                return False
            if memcmp(to, levels, before) != 0:
                return False
        elif page[PAGE_PLACE] >= 0:
            to = scratch + page[PAGE_PLACE]
            memcpy(to, body, skipped)
            if (page[2] > skipped or page[3] > skipped) and not fill_from_snappy(
                body + skipped, page[2] - skipped, to + skipped, page[3] - skipped
            ):
                return False
    return True
