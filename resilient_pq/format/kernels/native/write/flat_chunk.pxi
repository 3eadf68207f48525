# What is said of a chunk of one data page of a column outside of lists, in Thrift. Included by `_native.pyx`.
#
# `format.pages.flat_chunk` fills it in; other chunks are described by the structs of `format.file_metadata`, which say
# the same in the same bytes.

cdef enum:
    # Headers of fields: the distance from the field before in the upper half, the type in the lower.
    NEXT_I16 = 0x14, NEXT_I32 = 0x15, NEXT_I64 = 0x16, NEXT_BINARY = 0x18, NEXT_LIST = 0x19, NEXT_STRUCT = 0x1C
    ONE_STRUCT = 0x1C, ONE_BOOL = 0x11, ONE_BINARY = 0x18, ONE_I64 = 0x16  # headers of lists of one element


cdef enum:
    ZSTD = 6
    MOST_LITERAL = 60  # bytes whose length stands in one byte of Snappy's


cdef uint32_t ZSTD_MAGIC = 0xFD2FB528
cdef const char* DIGITS = b"0123456789abcdef"


cdef int put_hex(uint8_t* out, uint32_t value) noexcept nogil:
    """Writes a sum as eight digits."""
    cdef int i
    for i in range(8):
        out[i] = <uint8_t> DIGITS[value >> (28 - 4 * i) & 15]
    return 8


@cython.no_gc  # what it holds are plain values, and a file may have thousands
cdef class FlatChunk:
    """See `format.pages.flat_chunk`, which sets all of this."""

    cdef public list buffers
    cdef public Py_ssize_t size, uncompressed_size
    cdef public uint32_t crc
    cdef public bytes dictionary_header  # None without a dictionary
    cdef public Py_ssize_t dictionary_size  # of its page, header included
    cdef public bytes dictionary_copy  # None where it is too large
    cdef public bytes page_header
    cdef public list header_crcs
    cdef public int physical_type, codec, encoding, dictionary_encoding
    cdef public list encodings
    cdef public bytes path  # field 3 of ColumnMetaData
    cdef public Py_ssize_t num_values, null_count, nan_count, byte_array_bytes  # -1 where it says nothing
    cdef public bytes low, high
    cdef public bint low_is_exact, high_is_exact, has_column_index
    cdef public bytes sums  # of its pages, as a field of its OffsetIndex
    cdef public object bloom_filter, digest  # it has none
    cdef readonly int64_t offset

    def place(self, int64_t offset):
        """The chunk's first byte lies at `offset`."""
        self.offset = offset

    def column_chunk(self, *pairs):
        """Its ColumnChunk, with its sum and further texts as keys and values."""
        return self.with_pairs([self.sum_pair(), *[(key.encode(), value.encode()) for key, value in pairs]])

    cdef tuple sum_pair(self):
        cdef uint8_t sums[14]
        memcpy(sums + put_hex(sums, self.crc), b":-:-:-", 6)
        return b"rpq.crc32", sums[:14]

    @staticmethod
    def described(list chunks):
        """What is said of each of some chunks, in lists: ColumnChunk, ChunkCopies, ColumnIndex, OffsetIndex."""
        cdef list columns = [], copies = [], column_indexes = [], offset_indexes = []
        cdef Bytes out = Bytes()
        cdef FlatChunk chunk
        for one in chunks:
            chunk = <FlatChunk?> one
            columns.append(chunk.with_pairs([chunk.sum_pair()], out))
            copies.append(chunk.copies(out))
            column_indexes.append(chunk.column_index(out))
            offset_indexes.append(chunk.offset_index(out))
        return columns, copies, column_indexes, offset_indexes

    @staticmethod
    def row_group(list chunks, int64_t num_rows, int64_t ordinal, int64_t record_at, Py_ssize_t header_size):
        """Of a row group of chunks its RowGroupRecord, its RowGroup in footers, and the indexes of its chunks.

        The record will lie at an offset, behind a header; an ordinal below 0 is left out. As of `writer.described_chunk`.
        """
        cdef Bytes out = Bytes()
        cdef FlatChunk chunk
        cdef Py_ssize_t size = 0, uncompressed_size = 0
        cdef list columns, copies, column_indexes, offset_indexes
        cdef bytes head, behind, payload, place
        if not chunks:
            raise ValueError("a row group has chunks")
        columns, copies, column_indexes, offset_indexes = FlatChunk.described(chunks)
        for one in chunks:
            size += (<FlatChunk> one).size
            uncompressed_size += (<FlatChunk> one).uncompressed_size
        chunk = <FlatChunk> chunks[0]
        out.list_of(NEXT_LIST, STRUCT, len(chunks))
        head = out.found()
        out.size = 0
        out.number(NEXT_I64, uncompressed_size)
        out.number(NEXT_I64, num_rows)
        out.number(0x26, chunk.offset)
        out.number(NEXT_I64, size)
        if ordinal >= 0:
            out.number(NEXT_I16, ordinal)
        out.byte(STOP)
        behind = out.found()
        payload = b"".join([b"\x1c", head, *columns, behind, head, *copies, b"\0"])
        place = f"{record_at}:{header_size + len(payload)}".encode()
        columns[0] = chunk.with_pairs([chunk.sum_pair(), (b"rpq.record", place)], out)
        return payload, b"".join([head, *columns, behind]), tuple(column_indexes), tuple(offset_indexes)

    cpdef bytes with_pairs(self, list pairs, Bytes used=None):
        """Its ColumnChunk, with keys and values."""
        cdef Bytes out = begun(used)
        cdef bytes key, value
        out.number(0x26, 0)
        out.byte(NEXT_STRUCT)
        out.number(NEXT_I32, self.physical_type)
        out.list_of(NEXT_LIST, I32, len(self.encodings))
        for encoding in self.encodings:
            out.number(-1, encoding)
        out.raw(self.path)
        out.number(NEXT_I32, self.codec)
        out.number(NEXT_I64, self.num_values)
        out.number(NEXT_I64, self.uncompressed_size)
        out.number(NEXT_I64, self.size)
        out.list_of(NEXT_LIST, STRUCT, len(pairs))
        for key, value in pairs:
            out.binary(NEXT_BINARY, key)
            out.binary(NEXT_BINARY, value)
            out.byte(STOP)
        out.number(NEXT_I64, self.offset + self.dictionary_size)
        if self.dictionary_header is not None:
            out.number(0x26, self.offset)
            out.byte(NEXT_STRUCT)
        else:
            out.byte(0x3C)
        self.put_statistics(out)
        self.put_encoding_stats(out)
        if self.byte_array_bytes >= 0:
            out.byte(0x3C)
            out.number(NEXT_I64, self.byte_array_bytes)
            out.byte(STOP)
        out.byte(STOP)
        out.byte(STOP)
        return out.found()

    cdef int put_statistics(self, Bytes out) except -1:
        cdef int last = 3
        out.number(0x36, self.null_count)
        if self.high is not None:
            out.binary(0x28, self.high)
            last = 5
        if self.low is not None:
            out.binary((6 - last) << 4 | BINARY, self.low)
            last = 6
        if self.high is not None:
            out.byte((7 - last) << 4 | (TRUE if self.high_is_exact else FALSE))
            last = 7
        if self.low is not None:
            out.byte((8 - last) << 4 | (TRUE if self.low_is_exact else FALSE))
            last = 8
        if self.nan_count >= 0:
            out.number((9 - last) << 4 | I64, self.nan_count)
        return out.byte(STOP)

    cdef int put_encoding_stats(self, Bytes out) except -1:
        cdef bint has_dictionary = self.dictionary_header is not None
        out.list_of(NEXT_LIST, STRUCT, 1 + has_dictionary)
        if has_dictionary:
            out.number(NEXT_I32, 2)
            out.number(NEXT_I32, self.dictionary_encoding)
            out.number(NEXT_I32, 1)
            out.byte(STOP)
        out.number(NEXT_I32, 0)
        out.number(NEXT_I32, self.encoding)
        out.number(NEXT_I32, 1)
        return out.byte(STOP)

    cdef int put_offset_index(self, Bytes out) except -1:
        """The fields of its OffsetIndex, without an end."""
        out.byte(NEXT_LIST)
        out.byte(ONE_STRUCT)
        self.put_location(out, self.offset + self.dictionary_size, self.size - self.dictionary_size)
        if self.byte_array_bytes >= 0:
            out.byte(NEXT_LIST)
            out.byte(ONE_I64)
            out.number(-1, self.byte_array_bytes)
        return 0

    cdef int put_location(self, Bytes out, int64_t offset, Py_ssize_t size) except -1:
        out.number(NEXT_I64, offset)
        out.number(NEXT_I32, size)
        out.number(NEXT_I64, 0)
        return out.byte(STOP)

    cpdef bytes offset_index(self, Bytes used=None):
        """Its OffsetIndex, with the sums of its pages."""
        cdef Bytes out = begun(used)
        self.put_offset_index(out)
        out.raw(self.sums)
        out.byte(STOP)
        return out.found()

    cpdef bytes column_index(self, Bytes used=None):
        """Its ColumnIndex; None where it has none."""
        cdef Bytes out = begun(used)
        cdef bint is_null = self.null_count == self.num_values
        if not self.has_column_index:
            return None
        out.byte(NEXT_LIST)
        out.byte(ONE_BOOL)
        out.byte(TRUE if is_null else FALSE)
        for bound in (b"", b"") if is_null else (self.low, self.high):
            out.byte(NEXT_LIST)
            out.byte(ONE_BINARY)
            out.binary(-1, bound)
        out.number(NEXT_I32, 1)  # ascending, as all orders of one page
        out.byte(NEXT_LIST)
        out.byte(ONE_I64)
        out.number(-1, self.null_count)
        if self.nan_count >= 0:
            out.byte(0x39)
            out.byte(ONE_I64)
            out.number(-1, self.nan_count)
        out.byte(STOP)
        return out.found()

    cpdef bytes copies(self, Bytes used=None):
        """Its ChunkCopies."""
        cdef Bytes out = begun(used)
        cdef bint has_dictionary = self.dictionary_header is not None
        out.byte(NEXT_STRUCT)
        self.put_offset_index(out)
        out.byte(STOP)
        out.binary(NEXT_BINARY, self.dictionary_header + self.page_header if has_dictionary else self.page_header)
        out.number(NEXT_I32, <int32_t> self.crc)
        if has_dictionary:
            out.byte(NEXT_STRUCT)
            self.put_location(out, self.offset, self.dictionary_size)
            if self.dictionary_copy is not None:
                out.binary(NEXT_BINARY, self.dictionary_copy)
        out.list_of((3 if not has_dictionary else 1 if self.dictionary_copy is not None else 2) << 4 | LIST, I32,
                    len(self.header_crcs))
        for crc in self.header_crcs:
            out.number(-1, <int32_t> <uint32_t> crc)
        out.byte(STOP)
        return out.found()

    @staticmethod
    def header_of_page(int kind, Py_ssize_t size, Py_ssize_t stored_size, int64_t crc, Py_ssize_t count, int encoding):
        """The header of a data page v1, or of a dictionary page, that has `count` values."""
        cdef Bytes out = Bytes()
        if not (0 <= size <= LARGEST_LENGTH and 0 <= stored_size <= LARGEST_LENGTH and 0 <= count <= LARGEST_LENGTH):
            raise OverflowError("a page has more bytes or values than its header can tell")
        out.number(NEXT_I32, kind)
        out.number(NEXT_I32, size)
        out.number(NEXT_I32, stored_size)
        out.number(NEXT_I32, <int32_t> crc)
        out.byte(NEXT_STRUCT if kind == 0 else 0x3C)  # field 5, or 7
        out.number(NEXT_I32, count)
        out.number(NEXT_I32, encoding)
        if kind == 0:
            out.number(NEXT_I32, 3)  # RLE, of both kinds of levels
            out.number(NEXT_I32, 3)
        out.byte(STOP)
        out.byte(STOP)
        return out.found()

    @staticmethod
    def with_index_places(bytes row_group, columns, offsets, int64_t column_index_at, int64_t offset_index_at, crc32):
        """A row group with the places of its indexes, and the sums of these beside those of its chunks.

        `columns` and `offsets` are the indexes of each chunk in Thrift, or None; each kind lies together from an offset on.
        None where the row group is not as `FlatChunk` and `writer.described_chunk` write it: it is to be decoded then.
        """
        cdef Bytes out = Bytes()
        cdef const uint8_t* data = <const uint8_t*> <const char*> row_group
        cdef Py_ssize_t size = len(row_group), at = 1, end, chunk
        cdef uint64_t count = 0
        cdef int kind = 0, last
        cdef uint8_t sums[20]
        cdef Py_ssize_t num_sums
        if size == 0 or data[0] != NEXT_LIST:
            return None
        at = list_start(data, size, at, 8, &kind, &count)
        if kind != STRUCT or count != <uint64_t> len(columns) or len(columns) != len(offsets):
            return None
        put_run(out, data, 0, at)
        for chunk in range(<Py_ssize_t> count):
            column_index, offset_index = columns[chunk], offsets[chunk]
            if size - at < 3 or data[at] != 0x26 or data[at + 1] != 0 or data[at + 2] != NEXT_STRUCT:
                return None
            num_sums = put_sum(sums, column_index, crc32)
            num_sums += put_sum(sums + num_sums, offset_index, crc32)
            put_run(out, data, at, at + 3)
            end = put_with_sums(out, data, size, at + 3, sums, num_sums)
            if end < 0 or end >= size or data[end] != STOP:
                return None
            last = 3
            if offset_index is not None:
                out.number(NEXT_I64, offset_index_at)
                out.number(NEXT_I32, len(offset_index))
                offset_index_at += len(offset_index)
                last = 5
            if column_index is not None:
                out.number((6 - last) << 4 | I64, column_index_at)
                out.number(NEXT_I32, len(column_index))
                column_index_at += len(column_index)
            out.byte(STOP)
            at = end + 1
        put_run(out, data, at, size)
        return out.found()


cdef enum:
    CHUNK_RECORD = 120  # bytes of a chunk record
    MOST_JOINED = 1 << 14  # bytes of a chunk that is given out as one with others


def records_like(bytes record, list chunks, int64_t offset, xxh3, crc32):
    """The records and the buffers of FlatChunks behind one that has such a record, and the offset behind them.

    They begin at `offset`, and are told their places. Short ones that follow one another are one buffer. Of the record
    before them the sums do not matter.
    """
    cdef uint8_t made[CHUNK_RECORD]
    cdef list buffers = [], short = []
    cdef FlatChunk chunk
    if len(record) != CHUNK_RECORD:
        raise ValueError(f"a chunk record has {CHUNK_RECORD} bytes, not {len(record)}")
    memcpy(made, <const char*> record, CHUNK_RECORD)
    for one in chunks:
        chunk = <FlatChunk?> one
        store64(made + 40, load64(made + 32))  # where the record before it lies, and it
        store64(made + 32, <uint64_t> offset)
        store32(made + 68, load32(made + 68) + 1)  # its number, the column and the codec
        store32(made + 100, load32(made + 100) + 1)
        store32(made + 112, <uint32_t> chunk.codec)
        payload = made[96:CHUNK_RECORD]
        store64(made + 80, <uint64_t> xxh3(payload))
        store32(made + 88, <uint32_t> crc32(payload))
        store32(made + 92, <uint32_t> crc32(made[:92]))
        short.append(made[:CHUNK_RECORD])
        if chunk.size <= MOST_JOINED:
            short += chunk.buffers
        else:
            buffers.append(b"".join(short))
            buffers += chunk.buffers
            short = []
        chunk.buffers, chunk.offset = [], offset + CHUNK_RECORD
        offset += CHUNK_RECORD + chunk.size
    if short:
        buffers.append(b"".join(short))
    return buffers, offset


cdef int put_run(Bytes out, const uint8_t* data, Py_ssize_t start, Py_ssize_t end) except -1:
    out.make_room(end - start)
    memcpy(out.data + out.size, data + start, end - start)
    out.size += end - start
    return 0


cdef Py_ssize_t put_sum(uint8_t* out, index, crc32) except -1:
    """Writes the sum of an index as `ChunkSums` does, behind a colon: how many bytes that takes."""
    out[0], out[1] = b":", b"-"
    return 2 if index is None else 1 + put_hex(out + 1, <uint32_t> crc32(index))


cdef Py_ssize_t sum_end(const uint8_t* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Where a sum ends, which is a hyphen or eight digits; -1 where there is none."""
    cdef Py_ssize_t i
    if at < end and data[at] == b"-":
        return at + 1
    for i in range(at, at + 8):
        if i >= end or not (b"0" <= data[i] <= b"9" or b"a" <= data[i] <= b"f"):
            return -1
    return at + 8


cdef Py_ssize_t put_with_sums(
    Bytes out, const uint8_t* data, Py_ssize_t size, Py_ssize_t at, const uint8_t* sums, Py_ssize_t num_sums
) except -2:
    """A ColumnMetaData with sums in its `rpq.crc32`, and where it ends; -1 where it is written otherwise."""
    cdef Py_ssize_t copied = at, start, end
    cdef Py_ssize_t[4] ends
    cdef Py_ssize_t stop
    cdef uint64_t count = 0, length = 0
    cdef int number = 0, kind = 0, i
    while at < size and data[at] != STOP:
        if data[at] >> 4 == 0:
            return -1
        number += data[at] >> 4
        kind = data[at] & 0x0F
        at += 1
        if number != 8 or kind != LIST:
            at = value_end(data, size, at, kind, 16)
            continue
        at = list_start(data, size, at, 8, &kind, &count)
        if kind != STRUCT:
            return -1
        while count:
            count -= 1
            end = struct_end(data, size, at, 8)
            if end - at < 12 or memcmp(data + at, b"\x18\x09rpq.crc32\x18", 12) != 0:
                at = end
                continue
            start = at + 12
            if not read_varint(data, size, &start, 32, &length) or start + <Py_ssize_t> length + 1 != end:
                return -1
            stop = start + <Py_ssize_t> length
            for i in range(4):
                ends[i] = sum_end(data, start if i == 0 else ends[i - 1] + 1, stop)
                if ends[i] < 0 or (ends[i] != stop if i == 3 else ends[i] == stop or data[ends[i]] != b":"):
                    return -1
            put_run(out, data, copied, at + 12)
            out.make_room(LONGEST_VARINT)
            out.size += write_varint(out.data + out.size, <uint64_t> (ends[0] - start + num_sums + stop - ends[2]))
            put_run(out, data, start, ends[0])
            put_run(out, sums, 0, num_sums)
            put_run(out, data, ends[2], stop)
            copied = stop
            at = end
    if at >= size:
        return -1
    put_run(out, data, copied, at + 1)
    return at + 1


cdef bytes behind_zstd(bytes levels, Py_ssize_t size, bytes packed):
    """Levels before a frame whose content and they have `size` bytes: as of `zstd.frame_front`; None where that is."""
    cdef const uint8_t* frame = <const uint8_t*> PyBytes_AsString(packed)
    cdef uint8_t head[16 + MOST_LITERAL]
    cdef Py_ssize_t count = len(levels), at = 5, begin, kind
    cdef uint32_t word
    if len(packed) < 6 or load32(frame) != ZSTD_MAGIC or frame[4] & 0x1F:
        return None
    cdef bint window = not frame[4] & 0x20
    begin = 5 + window + (2 if frame[4] >> 6 == 1 else 4 if frame[4] >> 6 == 2 else 8 if frame[4] >> 6 else 1 - window)
    if begin > len(packed):
        return None
    kind = 0 if size < 256 and not window else 1 if 256 <= size < 256 + (1 << 16) else 2
    memcpy(head, frame, 4)
    head[4] = <uint8_t> (kind << 6 | (0 if window else 0x20))
    if window:
        head[5] = frame[5]
        at = 6
    word = <uint32_t> (size - 256 if kind == 1 else size)
    memcpy(head + at, &word, 1 << kind)
    at += 1 << kind
    word = <uint32_t> count << 3  # a block that is not the last one, and is not compressed
    memcpy(head + at, &word, 3)
    memcpy(head + at + 3, <const char*> levels, count)
    return head[: at + 3 + count] + packed[begin:]


cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef bytes sums_field(bytes crcs):
    """The CRC32s of pages as a field of an OffsetIndex: as `page_sums.PageSums`."""
    cdef Bytes out = Bytes()
    cdef Py_ssize_t i, j, size = len(crcs)
    cdef const uint8_t* data = <const uint8_t*> PyBytes_AsString(crcs)
    cdef uint32_t three
    out.raw(b"\x08\xfe\xff\x03")
    out.make_room(LONGEST_VARINT)
    out.size += write_varint(out.data + out.size, <uint64_t> (19 + (size + 2) // 3 * 4))
    out.raw(b"resilient_pq:crc32:")
    for i in range(0, size, 3):
        three = 0
        for j in range(3):
            three = three << 8 | (data[i + j] if i + j < size else 0)
        for j in range(4):
            out.byte(BASE64[three >> (18 - 6 * j) & 63] if i + j <= size else 61)  # "="
    return out.found()
