# The RLE / bit-packed hybrid, and BIT_PACKED levels. Included by `_native.pyx`.

cdef int check_width(int bit_width) except -1:
    if not 0 <= bit_width <= 32:
        raise EncodingError(f"the bit width is {bit_width}, not 0 to 32")
    return 0


def rle_decode(buffer, int bit_width, out):
    """See `reference.rle_decode`."""
    cdef Array source = readable(buffer), to = writable(out, 1 | 4)
    cdef Py_ssize_t end
    check_width(bit_width)
    with nogil:
        if to.width == 1:
            end = decode_runs(source.at, source.size, bit_width, to.at, to.count)
        else:
            end = decode_runs(source.at, source.size, bit_width, <int32_t*> to.at, to.count)
    return end


cdef Py_ssize_t decode_runs(
    const uint8_t* data, Py_ssize_t size, int width, Level* out, Py_ssize_t n
) except -1 nogil:
    cdef Py_ssize_t position = 0, filled = 0, wanted, end, i
    cdef uint64_t header, value, count
    cdef uint64_t largest = (<uint64_t> 1 << width) - 1
    if width == 0:
        if n:
            memset(out, 0, n * sizeof(Level))
        return 0
    if Level is uint8_t:
        largest = min(largest, <uint64_t> 0xFF)
    else:
        largest = min(largest, <uint64_t> 0x7FFFFFFF)
    while filled < n:
        if not read_varint(data, size, &position, 32, &header):
            return malformed(b"a run header ends behind the end of its buffer or has more than 32 bits")
        count = header >> 1
        if count == 0:
            return malformed(b"a run of no values, which no writer makes")
        if header & 1:
            wanted = <Py_ssize_t> min(8 * count, <uint64_t> (n - filled))
            end = <Py_ssize_t> min(position + count * width, <uint64_t> size)
            if (
                (<uint64_t> wanted * width + 7) // 8 > <uint64_t> (end - position)
                or count * width >= <uint64_t> (end - position + width)
            ):
                return malformed(b"a bit-packed run ends behind the end of its buffer")
            if not unpack_run(data + position, size - position, width, out + filled, wanted, largest):
                return malformed(b"a bit-packed value does not fit the type of the output")
        else:
            wanted = <Py_ssize_t> min(count, <uint64_t> (n - filled))
            end = position + (width + 7) // 8
            if end > size:
                return malformed(b"an RLE run ends behind the end of its buffer")
            value = 0
            for i in range(end - position):
                value |= <uint64_t> data[position + i] << (8 * i)
            if value > largest:
                return malformed(b"the value of an RLE run has more bits than it may have")
            for i in range(wanted):
                out[filled + i] = <Level> value
        position = end
        filled += wanted
    return position


cdef inline bint unpack_run(
    const uint8_t* data, Py_ssize_t room, int width, Level* out, Py_ssize_t n, uint64_t largest
) noexcept nogil:
    """Unpacks n values that lie wholly within `room` bytes; False where one is above `largest`."""
    cdef uint32_t chunk[32]
    cdef uint8_t padded[4 * 32 + 16]  # and GROUP_SLACK
    cdef Py_ssize_t done = 0, groups, i, taken
    cdef uint32_t highest = 0
    if Level is int32_t or width <= 8:
        groups = min(n // 8, max(room - GROUP_SLACK, 0) // width)
        done = 8 * groups
        if Level is int32_t:
            unpack_u32(data, <uint32_t*> out, groups, width)
            if width == 32:
                for i in range(done):
                    highest |= <uint32_t> out[i]
        else:
            unpack_u8(data, out, groups, width)
    while done < n:  # what reading whole words would leave the buffer at, and values wider than their type
        taken = min(<Py_ssize_t> 32, n - done)
        memset(padded, 0, sizeof(padded))
        memcpy(padded, data + done // 8 * width, min(<Py_ssize_t> 4 * width, room - done // 8 * width))
        unpack_u32(padded, chunk, 4, width)
        for i in range(taken):
            if chunk[i] > largest:
                return False
            out[done + i] = <Level> chunk[i]
        done += taken
    return highest <= largest or width < 32


def rle_encode(values, int bit_width, Py_ssize_t front=0):
    """See `reference.rle_encode`."""
    cdef Array source = readable(values, 1 | 2 | 4), to
    cdef Py_ssize_t written
    check_width(bit_width)
    if source.count > LARGEST_LENGTH:
        raise ValueError("a page holds fewer than 2**31 values")
    if front < 0 or front > 8:
        raise ValueError("at most 8 bytes are left free")
    # Each group of eight values costs at most a header of 5 bytes and its bits, or an RLE run of 5 + 4 bytes;
    # the last run of each kind may have fewer than eight.
    array = empty((front + (source.count // 8 + 2) * (bit_width + 9) + GROUP_SLACK,), np.uint8)
    to = writable(array)
    memset(to.at, 0, front)
    with nogil:
        if source.width == 1:
            written = encode_runs(source.at, source.count, bit_width, to.at + front)
        elif source.width == 2:
            written = encode_runs(<const uint16_t*> source.at, source.count, bit_width, to.at + front)
        else:
            written = encode_runs(<const int32_t*> source.at, source.count, bit_width, to.at + front)
    return trimmed(array, front + written)


cdef Py_ssize_t encode_runs(const Packed* values, Py_ssize_t n, int width, uint8_t* out) except -1 nogil:
    cdef Py_ssize_t position = 0, packed = 0, written = 0, end, i
    cdef Py_ssize_t shortest = 8  # of the runs that can pay where they are not the last
    cdef Packed seen = 0
    for i in range(n):
        seen |= values[i]
    if <uint64_t> <int64_t> seen >> width:  # a negative value sets the highest bits
        return malformed(b"a value has more bits than the bit width")
    while width and not rle_pays(shortest, width, True, False):
        shortest += 8
    while position < n:  # whole groups behind `packed`, where the values begin that no run holds so far
        if n - position > shortest and not all_equal(values + position, shortest):
            position += 8
            continue
        end = equal_end(values, position, n)
        if end < min(position + 8, n) or not rle_pays(end - position, width, position == packed, end == n):
            position += 8
            continue
        if position > packed:
            written += write_packed_run(values + packed, position - packed, width, out + written)
        written += write_varint(out + written, <uint64_t> (end - position) << 1)
        for i in range((width + 7) // 8):
            out[written + i] = <uint8_t> (<uint32_t> values[position] >> (8 * i))
        written += (width + 7) // 8
        position = packed = end
    if packed < n:
        written += write_packed_run(values + packed, n - packed, width, out + written)
    return written


cdef inline bint group_equal(const Packed* values, Packed value) noexcept nogil:
    """Whether eight values are all `value`, compared by the word."""
    cdef const uint8_t* source = <const uint8_t*> values
    cdef uint64_t word
    if Packed is uint8_t:
        return load64(source) == value * <uint64_t> 0x0101010101010101
    elif Packed is uint16_t:
        word = value * <uint64_t> 0x0001000100010001
        return load64(source) == word and load64(source + 8) == word
    else:
        word = <uint32_t> value * <uint64_t> 0x0000000100000001
        return (load64(source) == word and load64(source + 8) == word and load64(source + 16) == word
                and load64(source + 24) == word)


cdef inline bint all_equal(const Packed* values, Py_ssize_t n) noexcept nogil:
    """Whether n values, a multiple of 8, are the same."""
    cdef Py_ssize_t i
    for i in range(0, n, 8):
        if not group_equal(values + i, values[0]):
            return False
    return True


cdef inline Py_ssize_t equal_end(const Packed* values, Py_ssize_t position, Py_ssize_t n) noexcept nogil:
    """Where the values end that equal the one at `position`."""
    cdef Packed value = values[position]
    while position + 8 <= n and group_equal(values + position, value):
        position += 8
    while position < n and values[position] == value:
        position += 1
    return position


cdef inline bint rle_pays(Py_ssize_t n, int width, bint follows_run, bint last) noexcept nogil:
    """Whether an RLE run is no longer than the same values bit-packed, headers counted as one byte each."""
    cdef Py_ssize_t groups = (n + 7) // 8 if last else n // 8
    return groups * width + follows_run >= 1 + (width + 7) // 8 + (not last)


cdef Py_ssize_t write_packed_run(const Packed* values, Py_ssize_t n, int width, uint8_t* out) noexcept nogil:
    cdef Py_ssize_t groups = n // 8
    cdef Py_ssize_t written = write_varint(out, <uint64_t> (n + 7) // 8 << 1 | 1)
    cdef uint32_t group[8]
    cdef Py_ssize_t done = 0, i
    if Packed is int32_t:
        pack_u32(<const uint32_t*> values, out + written, groups, width)
        done = groups
    elif Packed is uint16_t:
        if width <= 16:
            pack_u16(values, out + written, groups, width)
            done = groups
    elif width <= 8:
        pack_u8(values, out + written, groups, width)
        done = groups
    while 8 * done < n:
        memset(group, 0, sizeof(group))
        for i in range(min(<Py_ssize_t> 8, n - 8 * done)):
            group[i] = <uint32_t> values[8 * done + i]
        pack_u32(group, out + written + done * width, 1, width)
        done += 1
    return written + done * width


def unpack_bits_msb(buffer, int bit_width, out):
    """See `reference.unpack_bits_msb`."""
    cdef Array source = readable(buffer), to = writable(out, 1 | 4)
    cdef Py_ssize_t size
    check_width(bit_width)
    with nogil:
        if to.width == 1:
            size = unpack_msb(source.at, source.size, bit_width, to.at, to.count)
        else:
            size = unpack_msb(source.at, source.size, bit_width, <int32_t*> to.at, to.count)
    return size


cdef Py_ssize_t unpack_msb(
    const uint8_t* data, Py_ssize_t size, int width, Level* out, Py_ssize_t n
) except -1 nogil:
    cdef Py_ssize_t position = 0, i
    cdef uint64_t window = 0, value, seen = 0
    cdef uint64_t mask = (<uint64_t> 1 << width) - 1
    cdef uint64_t largest = 0x7FFFFFFF
    cdef int known = 0  # bits of the window that are not used yet
    if Level is uint8_t:
        largest = 0xFF
    if (n * width + 7) // 8 > size:
        return malformed(b"bit-packed values end behind the end of their buffer")
    for i in range(n):
        while known < width:
            window = window << 8 | data[position]
            position += 1
            known += 8
        known -= width
        value = window >> known & mask
        seen |= value
        out[i] = <Level> value
    if seen > largest:
        return malformed(b"a bit-packed value does not fit the type of the output")
    return position
