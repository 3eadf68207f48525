# Sums of products in GF(2^8). Included by `_native.pyx` and `_native_avx2.pyx`.

cdef extern from "native/headers/gf256.h":
    void gf256_prepare() noexcept nogil
    void gf256_add(uint8_t* to, ptrdiff_t num_rows, ptrdiff_t row_stride, const uint8_t* source,
                   ptrdiff_t num_sources, ptrdiff_t source_stride, const uint8_t* factors, ptrdiff_t size,
                   int with_gfni) noexcept nogil

gf256_prepare()
cdef bint gfni_wanted = True


def _use_gfni(bint wanted):
    """Whether the instruction is used where the processor has it; tests leave it out."""
    global gfni_wanted
    gfni_wanted = wanted


def gf256_accumulate(factors, sources, out, Py_ssize_t offset):
    """See `reference.gf256_accumulate`."""
    cdef bint with_gfni = gfni_wanted
    cdef Array by = readable(factors, 1, 2), source = readable(sources, 1, 2), to = writable(out, 1, 2)
    if by.count != to.count or by.columns != source.count:
        raise ValueError("there must be a row of factors for each sum, and a factor in it for each source")
    if offset < 0 or offset > to.columns or source.columns > to.columns - offset:
        raise ValueError("the sources must lie within the sums")
    with nogil:
        gf256_add(to.at + offset, to.count, to.columns, source.at, source.count, source.columns, by.at,
                  source.columns, with_gfni)
