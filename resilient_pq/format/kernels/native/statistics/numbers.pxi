# Numbers: the smallest and the largest of them. Included by `_native.pyx`.

cdef enum:
    #: Values that are compared side by side: so many that the loop over them is vectorised and not unrolled.
    LANES = 32
    #: From so many values on NumPy's three passes are quicker than code for any processor: it uses wider registers.
    MANY_NUMBERS = 16384
    #: Values that are looked at twice, for their bounds and for NaN, while they are at hand.
    BLOCK_NUMBERS = 2048


ctypedef fused Number:
    int32_t
    uint32_t
    int64_t
    uint64_t
    float
    double


def number_min_max(values):
    """See `reference.number_min_max`."""
    if not BUILT_FOR_AVX2 and len(values) >= MANY_NUMBERS:
        from resilient_pq.format.kernels.reference.numbers import number_min_max as reference_min_max

        return reference_min_max(values)
    if values.dtype.kind not in "iuf":
        raise ValueError("values must be numbers of 4 or 8 bytes")
    cdef Array source = readable(values, NUMBERS | 4 | 8)
    cdef char kind = source.view.format[0]
    cdef bint wide = source.width == 8
    cdef Py_ssize_t n = source.count
    if n == 0:
        raise ValueError("there are no values to compare")
    if kind == b"d":
        return min_max_of(<double*> source.at, n)
    if kind == b"f":
        return min_max_of(<float*> source.at, n)
    if kind in b"ilq":
        return min_max_of(<int64_t*> source.at, n) if wide else min_max_of(<int32_t*> source.at, n)
    return min_max_of(<uint64_t*> source.at, n) if wide else min_max_of(<uint32_t*> source.at, n)


cdef tuple min_max_of(const Number* values, Py_ssize_t n):
    cdef Py_ssize_t nans = 0, i = 0, block
    cdef Number low, high
    with nogil:
        if Number is float or Number is double:
            while i < n - 1 and values[i] != values[i]:
                i += 1
            nans = i
        low = high = values[i]
        while i < n:
            block = min(n - i, <Py_ssize_t> BLOCK_NUMBERS)
            widen_to(values + i, block, &low, &high)
            if Number is float or Number is double:
                nans += count_nans(values + i, block)
            i += block
    return low, high, nans


cdef inline Py_ssize_t count_nans(const Number* values, Py_ssize_t n) noexcept nogil:
    cdef int32_t nans = 0
    cdef Py_ssize_t i
    for i in range(n):
        nans += values[i] != values[i]
    return nans


cdef inline void widen_to(const Number* values, Py_ssize_t n, Number* low, Number* high) noexcept nogil:
    """Lowers `low` and raises `high` to what stands among the values; no comparison with NaN holds."""
    cdef Number lows[LANES]
    cdef Number highs[LANES]
    cdef Number value
    cdef Py_ssize_t i
    cdef int lane
    for lane in range(LANES):
        lows[lane] = low[0]
        highs[lane] = high[0]
    for i in range(n // LANES):
        for lane in range(LANES):
            value = values[LANES * i + lane]
            lows[lane] = value if value < lows[lane] else lows[lane]
            highs[lane] = value if value > highs[lane] else highs[lane]
    for i in range(n // LANES * LANES, n):
        value = values[i]
        lows[0] = value if value < lows[0] else lows[0]
        highs[0] = value if value > highs[0] else highs[0]
    for lane in range(LANES):
        low[0] = lows[lane] if lows[lane] < low[0] else low[0]
        high[0] = highs[lane] if highs[lane] > high[0] else high[0]
