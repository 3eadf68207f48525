# DELTA_BINARY_PACKED. Included by `_native.pyx`.

cdef enum:
    BLOCK = 128
    MINIBLOCK = 32
    WIDEST = 64


cdef inline bint read_zigzag(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t* position, uint64_t* value
) noexcept nogil:
    """Reads a zigzag integer of 64 bits as its two's complement; False where there is none."""
    if not read_varint(data, size, position, 64, value):
        return False
    value[0] = (value[0] >> 1) ^ (0 - (value[0] & 1))
    return True


def delta_binary_decode(buffer, out):
    """See `reference.delta_binary_decode`."""
    cdef Array source = readable(buffer), to = writable(out, 4 | 8)
    cdef Py_ssize_t end
    with nogil:
        if to.width == 4:
            end = decode_delta(source.at, source.size, <int32_t*> to.at, to.count)
        else:
            end = decode_delta(source.at, source.size, <int64_t*> to.at, to.count)
    return end


cdef Py_ssize_t decode_delta(const uint8_t* data, Py_ssize_t size, Offset* out, Py_ssize_t n) except -1 nogil:
    cdef Py_ssize_t position = 0, filled = 1, per_miniblock, wanted, end, i
    cdef uint64_t block_size, miniblocks, count, value, minimum
    cdef const uint8_t* widths
    if not (
        read_varint(data, size, &position, 32, &block_size)
        and read_varint(data, size, &position, 32, &miniblocks)
        and read_varint(data, size, &position, 32, &count)
        and read_zigzag(data, size, &position, &value)
    ):
        return malformed(b"an integer ends behind the end of its buffer or has too many bits")
    if block_size == 0 or block_size % 128 or block_size > <uint64_t> LARGEST_LENGTH:
        return malformed(b"the values per block are not a multiple of 128")
    if miniblocks == 0 or block_size % miniblocks or block_size // miniblocks % 32:
        return malformed(b"the values per miniblock are not a multiple of 32")
    if count != <uint64_t> n:
        return malformed(b"another number of values is encoded than expected")
    if n == 0:
        return position
    per_miniblock = <Py_ssize_t> (block_size // miniblocks)
    out[0] = <Offset> value
    while filled < n:
        if not read_zigzag(data, size, &position, &minimum):
            return malformed(b"an integer ends behind the end of its buffer or has too many bits")
        if miniblocks > <uint64_t> (size - position):
            return malformed(b"a block ends behind the end of its buffer")
        widths = data + position
        position += <Py_ssize_t> miniblocks
        for i in range(<Py_ssize_t> miniblocks):
            wanted = min(per_miniblock, n - filled)
            if wanted == 0:
                break
            end = min(position + per_miniblock // 8 * widths[i], size)
            if widths[i] > WIDEST or (wanted * widths[i] + 7) // 8 > end - position:
                return malformed(b"a miniblock is wider than 64 bits or ends behind the end of its buffer")
            value = add_deltas(
                data + position, size - position, widths[i], minimum, value, out + filled, wanted
            )
            position = end
            filled += wanted
    return position


cdef inline uint64_t add_deltas(
    const uint8_t* data, Py_ssize_t room, int width, uint64_t minimum, uint64_t value,
    Offset* out, Py_ssize_t n
) noexcept nogil:
    """Unpacks n deltas that lie wholly within `room` bytes, adds them up from `value`; returns the sum."""
    cdef uint64_t deltas[32]
    cdef uint8_t padded[4 * 64 + 16]
    cdef Py_ssize_t done = 0, at, i
    cdef const uint8_t* source
    if width == 0:
        for i in range(n):
            value += minimum
            out[i] = <Offset> value
        return value
    while done < n:
        at = done // 8 * width
        source = data + at
        if room - at < 4 * width + GROUP_SLACK:  # reading whole words would leave the buffer
            memset(padded, 0, sizeof(padded))
            memcpy(padded, source, min(<Py_ssize_t> 4 * width, room - at))
            source = padded
        unpack_u64(source, deltas, 4, width)
        for i in range(min(<Py_ssize_t> 32, n - done)):
            value += minimum + deltas[i]
            out[done + i] = <Offset> value
        done += 32
    return value


def delta_binary_encode(values):
    """See `reference.delta_binary_encode`."""
    cdef Array source = readable(values, 4 | 8)
    cdef Py_ssize_t written
    # A header of up to 2 + 1 + 10 + 10 bytes; per block a minimum of up to 10, 4 widths and 128 whole values.
    array = empty((32 + (source.count // BLOCK + 1) * (16 + BLOCK * source.width) + GROUP_SLACK,), np.uint8)
    cdef Array to = writable(array)
    with nogil:
        if source.width == 4:
            written = encode_delta(<const int32_t*> source.at, source.count, to.at)
        else:
            written = encode_delta(<const int64_t*> source.at, source.count, to.at)
    return trimmed(array, written)


cdef inline Py_ssize_t write_zigzag(uint8_t* out, int64_t value) noexcept nogil:
    return write_varint(out, (<uint64_t> value << 1) ^ (0 - <uint64_t> (value < 0)))


cdef Py_ssize_t encode_delta(const Offset* values, Py_ssize_t n, uint8_t* out) noexcept nogil:
    cdef Py_ssize_t written, begin = 1
    written = write_varint(out, BLOCK)
    written += write_varint(out + written, BLOCK // MINIBLOCK)
    written += write_varint(out + written, <uint64_t> n)
    written += write_zigzag(out + written, values[0] if n else 0)
    while begin < n:
        written += write_block(values + begin, min(<Py_ssize_t> BLOCK, n - begin), out + written)
        begin += BLOCK
    return written


cdef inline Py_ssize_t write_block(const Offset* values, Py_ssize_t n, uint8_t* out) noexcept nogil:
    """Writes a block of n values, 1 to 128, that follow ``values[-1]``, and returns its size."""
    cdef uint64_t deltas[BLOCK]
    cdef uint64_t above
    cdef Offset delta, minimum = 0
    cdef Py_ssize_t written, miniblock, i
    cdef uint8_t* widths
    cdef int width
    for i in range(n):
        delta = <Offset> (<uint64_t> values[i] - <uint64_t> values[i - 1])
        deltas[i] = <uint64_t> delta
        minimum = delta if i == 0 else min(minimum, delta)
    for i in range(n):
        deltas[i] -= <uint64_t> minimum
        if Offset is int32_t:
            deltas[i] = <uint32_t> deltas[i]
    memset(deltas + n, 0, (BLOCK - n) * sizeof(uint64_t))
    written = write_zigzag(out, minimum)
    widths = out + written
    written += BLOCK // MINIBLOCK
    for miniblock in range(BLOCK // MINIBLOCK):
        above = 0
        for i in range(MINIBLOCK):
            above |= deltas[MINIBLOCK * miniblock + i]
        width = 0
        while above:
            above >>= 1
            width += 1
        widths[miniblock] = <uint8_t> width
        pack_u64(deltas + MINIBLOCK * miniblock, out + written, MINIBLOCK // 8, width)
        written += MINIBLOCK // 8 * width
    return written
