/* Strings copied and compared. */
#ifndef RPQ_BYTES_H
#define RPQ_BYTES_H

#include "words.h"

/* Most strings are short: one copy of fixed size is cheaper than a call that finds out how many bytes to
   move. What it writes too much lies within the output, and the next string is written over it. */
INLINED void copy_bytes(uint8_t *to, ptrdiff_t to_room, const uint8_t *from, ptrdiff_t from_room,
                        ptrdiff_t size) {
    if (size <= 32 && to_room >= 32 && from_room >= 32)
        memcpy(to, from, 32);
    else if (size > 0)
        memcpy(to, from, size);
}

/* The same where the output may begin within the 32 bytes that are read. */
INLINED void copy_bytes_before(uint8_t *to, ptrdiff_t to_room, const uint8_t *from, ptrdiff_t from_room,
                               ptrdiff_t size) {
    if (size <= 32 && to_room >= 32 && from_room >= 32) {
        uint8_t bytes[32];
        memcpy(bytes, from, 32);
        memcpy(to, bytes, 32);
    } else if (size > 0)
        memcpy(to, from, size);
}

/* One row of bytes: of 4 to 16 by two words that may overlap, which is cheaper than a call. */
INLINED void copy_row(uint8_t *to, const uint8_t *from, ptrdiff_t width) {
    if (width >= 8 && width <= 16) {
        const uint64_t first = load64(from), last = load64(from + width - 8);
        store64(to, first);
        store64(to + width - 8, last);
    } else if (width >= 4 && width < 8) {
        const uint32_t first = load32(from), last = load32(from + width - 4);
        store32(to, first);
        store32(to + width - 4, last);
    } else
        memcpy(to, from, (size_t)width);
}

/* Rows by their numbers, back to back; with a `step` of 0 the first one again and again. */
static void copy_rows(uint8_t *RESTRICT to, const uint8_t *RESTRICT from, ptrdiff_t width,
                      const int32_t *RESTRICT numbers, ptrdiff_t step, ptrdiff_t count) {
    if (width == 0) return;
    if (width == 16) /* views, most of all */
        for (ptrdiff_t at = 0; at < count; ++at) copy_row(to + 16 * at, from + 16 * (ptrdiff_t)numbers[step * at], 16);
    else
        for (ptrdiff_t at = 0; at < count; ++at)
            copy_row(to + width * at, from + width * numbers[step * at], width);
}

INLINED ptrdiff_t shared_bytes(const uint8_t *a, const uint8_t *b, ptrdiff_t limit) {
    ptrdiff_t at = 0;
    while (at + 8 <= limit && load64(a + at) == load64(b + at)) at += 8;
    while (at < limit && a[at] == b[at]) ++at;
    return at;
}

INLINED int equal_bytes(const uint8_t *a, const uint8_t *b, ptrdiff_t size) {
    ptrdiff_t at = 0;
    if (size >= 8) {
        for (; at + 8 < size; at += 8)
            if (load64(a + at) != load64(b + at)) return 0;
        return load64(a + size - 8) == load64(b + size - 8);
    }
    if (size >= 4) return load32(a) == load32(b) && load32(a + size - 4) == load32(b + size - 4);
    for (; at < size; ++at)
        if (a[at] != b[at]) return 0;
    return 1;
}

/* Eight of the bytes of a value of at most 32, those behind its end as zeros; there are 32 to read. */
INLINED uint64_t masked_word(const uint8_t *from, ptrdiff_t size, int at) {
    static const uint8_t ONES_AND_ZEROS[64] = {
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    return load64(from + at) & load64(ONES_AND_ZEROS + 32 - size + at);
}

/* The first eight bytes as a number that sorts as they do; a shorter string is filled up with zeros. */
INLINED uint64_t sort_prefix(const uint8_t *from, ptrdiff_t room, ptrdiff_t size) {
    const int known = size < 8 ? (int)size : 8;
    uint64_t word = 0, prefix = 0;
    if (room >= 8) word = load64(from);
    else if (known > 0) memcpy(&word, from, known);
    for (int byte = 0; byte < 8; ++byte) prefix |= (word >> (8 * byte) & 0xFF) << (56 - 8 * byte);
    return prefix & ~(~(uint64_t)0 >> (4 * known) >> (4 * known)); /* in two halves: 64 is no shift */
}

/* Numbers that sort as the first bytes of rows do, as many as eight. */
INLINED uint64_t row_prefix(const uint8_t *from, ptrdiff_t width) {
    uint64_t word = 0;
    memcpy(&word, from, width < 8 ? (size_t)width : 8);
    return swapped64(word);
}

INLINED int row_before(uint64_t prefix, const uint8_t *row, uint64_t other_prefix, const uint8_t *other,
                       ptrdiff_t width) {
    if (prefix != other_prefix) return prefix < other_prefix;
    return width > 8 && memcmp(row + 8, other + 8, (size_t)(width - 8)) < 0;
}

/* The first smallest and the first largest row; `flipped` bits sort the other way around. */
static void rows_min_max(const uint8_t *rows, ptrdiff_t count, ptrdiff_t width, uint64_t flipped,
                         ptrdiff_t *smallest, ptrdiff_t *largest) {
    const uint8_t *low = rows, *high = rows, *row = rows;
    uint64_t low_prefix = row_prefix(rows, width) ^ flipped, high_prefix = low_prefix;
    const ptrdiff_t whole = width < 8 ? count - 8 : 0; /* of these, eight bytes can be read at once */
    for (ptrdiff_t at = 0; at < count; ++at, row += width) {
        uint64_t prefix;
        if (width >= 8) prefix = swapped64(load64(row));
        else if (at < whole) prefix = swapped64(load64(row)) & ~(~(uint64_t)0 >> 8 * width);
        else prefix = row_prefix(row, width);
        prefix ^= flipped;
        if (row_before(prefix, row, low_prefix, low, width)) low = row, low_prefix = prefix;
        if (row_before(high_prefix, high, prefix, row, width)) high = row, high_prefix = prefix;
    }
    *smallest = (low - rows) / width;
    *largest = (high - rows) / width;
}

#endif
