/* Unscaled integers of decimals: little-endian rows of whole words, and big-endian rows of any width. */
#ifndef RPQ_DECIMALS_H
#define RPQ_DECIMALS_H

#include "words.h"

#define MOST_WORDS 4 /* of a decimal256 */

/* Nothing but the sign of a word, and a word shifted down with its sign. */
INLINED uint64_t sign_of(uint64_t word) { return 0 - (word >> 63); }
INLINED uint64_t shifted_down(uint64_t word, int bits) {
    return (word ^ sign_of(word)) >> bits ^ sign_of(word);
}

/* How many rows have eight bytes from their beginning on to read or to write. */
INLINED ptrdiff_t rows_with_words(ptrdiff_t count, ptrdiff_t width) {
    return count * width < 8 ? 0 : (count * width - 8) / width + 1;
}

INLINED void widen_number(uint64_t word, uint8_t *to, const ptrdiff_t size) {
    store64(to, word);
    for (ptrdiff_t at = 8; at < size; at += 8) store64(to + at, sign_of(word));
}

INLINED void widen_i32_by(const uint8_t *from, ptrdiff_t count, uint8_t *to, const ptrdiff_t size) {
    for (ptrdiff_t row = 0; row < count; ++row)
        widen_number((uint64_t)(int64_t)(int32_t)load32(from + 4 * row), to + size * row, size);
}

INLINED void widen_i64_by(const uint8_t *from, ptrdiff_t count, uint8_t *to, const ptrdiff_t size) {
    for (ptrdiff_t row = 0; row < count; ++row)
        widen_number(load64(from + 8 * row), to + size * row, size);
}

/* Little-endian integers of four or eight bytes to rows of 16 or 32. */
static void widen_numbers(const uint8_t *from, ptrdiff_t count, ptrdiff_t width, uint8_t *to, ptrdiff_t size) {
    if (width == 4 && size == 16) widen_i32_by(from, count, to, 16);
    else if (width == 4) widen_i32_by(from, count, to, 32);
    else if (size == 16) widen_i64_by(from, count, to, 16);
    else widen_i64_by(from, count, to, 32);
}

/* Big-endian rows of at most eight bytes. */
INLINED void widen_short_rows_by(const uint8_t *from, ptrdiff_t count, ptrdiff_t width, uint8_t *to,
                                 const ptrdiff_t size) {
    const int beyond = (int)(64 - 8 * width);
    const ptrdiff_t whole = rows_with_words(count, width);
    for (ptrdiff_t row = 0; row < whole; ++row)
        widen_number(shifted_down(swapped64(load64(from + width * row)), beyond), to + size * row, size);
    for (ptrdiff_t row = whole; row < count; ++row) {
        uint8_t bytes[8] = {0};
        memcpy(bytes, from + width * row, (size_t)width);
        widen_number(shifted_down(swapped64(load64(bytes)), beyond), to + size * row, size);
    }
}

/* Big-endian rows of more than eight bytes; whether all fit. */
INLINED int widen_long_rows_by(const uint8_t *from, ptrdiff_t count, ptrdiff_t width, uint8_t *to,
                               const ptrdiff_t size) {
    const ptrdiff_t padding = width > size ? width - size : 0, kept = width - padding;
    uint8_t other = 0;
    for (ptrdiff_t row = 0; row < count; ++row, from += width, to += size) {
        const uint8_t *digits = from + padding;
        const uint64_t first = swapped64(load64(digits));
        for (ptrdiff_t at = 0; at < padding; ++at) other |= from[at] ^ (uint8_t)sign_of(first);
        for (ptrdiff_t at = 0; at < size; at += 8) {
            const ptrdiff_t left = kept - at;
            store64(to + at, left >= 8  ? swapped64(load64(digits + left - 8))
                             : left > 0 ? shifted_down(first, (int)(64 - 8 * left))
                                        : sign_of(first));
        }
    }
    return other == 0;
}

static int widen_rows(const uint8_t *from, ptrdiff_t count, ptrdiff_t width, uint8_t *to, ptrdiff_t size) {
    if (width > 8)
        return size == 16 ? widen_long_rows_by(from, count, width, to, 16)
                          : widen_long_rows_by(from, count, width, to, 32);
    if (width == 0) memset(to, 0, (size_t)(count * size));
    else if (size == 16) widen_short_rows_by(from, count, width, to, 16);
    else widen_short_rows_by(from, count, width, to, 32);
    return 1;
}

/* A little-endian row of 4, 8, 16 or 32 bytes as words. */
INLINED void load_words(uint64_t *words, const uint8_t *from, const ptrdiff_t size) {
    words[0] = size == 4 ? (uint64_t)(int64_t)(int32_t)load32(from) : load64(from);
    for (int at = 1; at < MOST_WORDS; ++at)
        words[at] = 8 * at < size ? load64(from + 8 * at) : sign_of(words[at - 1]);
}

/* Not 0 where the words need more than `width` bytes. */
INLINED uint64_t too_wide(const uint64_t *words, ptrdiff_t width) {
    if (width >= 8 * MOST_WORDS) return 0;
    const int top = (int)((width - 1) / 8), beyond = (int)(8 * (8 * (top + 1) - width));
    uint64_t lost = shifted_down(words[top] << beyond, beyond) ^ words[top];
    for (int above = top + 1; above < MOST_WORDS; ++above) lost |= words[above] ^ sign_of(words[top]);
    return lost;
}

INLINED uint64_t narrow_numbers_by(const uint8_t *from, ptrdiff_t count, const ptrdiff_t size, uint8_t *to,
                                   const ptrdiff_t width) {
    uint64_t words[MOST_WORDS], lost = 0;
    for (ptrdiff_t row = 0; row < count; ++row) {
        load_words(words, from + size * row, size);
        lost |= too_wide(words, width);
        memcpy(to + width * row, words, (size_t)width);
    }
    return lost;
}

INLINED uint64_t narrow_short_rows_by(const uint8_t *from, ptrdiff_t count, const ptrdiff_t size, uint8_t *to,
                                      ptrdiff_t width) {
    const int beyond = (int)(64 - 8 * width);
    const ptrdiff_t whole = rows_with_words(count, width);
    uint64_t words[MOST_WORDS], lost = 0;
    for (ptrdiff_t row = 0; row < count; ++row) {
        load_words(words, from + size * row, size);
        lost |= shifted_down(words[0] << beyond, beyond) ^ words[0];
        for (int above = 1; above < MOST_WORDS; ++above) lost |= words[above] ^ sign_of(words[0]);
        const uint64_t digits = swapped64(words[0] << beyond);
        if (row < whole) store64(to + width * row, digits); /* the next row is written over what is too much */
        else memcpy(to + width * row, &digits, (size_t)width);
    }
    return lost;
}

INLINED uint64_t narrow_long_rows_by(const uint8_t *from, ptrdiff_t count, const ptrdiff_t size, uint8_t *to,
                                     ptrdiff_t width) {
    uint64_t words[MOST_WORDS], lost = 0;
    for (ptrdiff_t row = 0; row < count; ++row, to += width) {
        load_words(words, from + size * row, size);
        lost |= too_wide(words, width);
        ptrdiff_t left = width;
        for (int at = 0; at < MOST_WORDS && left >= 8; ++at, left -= 8)
            store64(to + left - 8, swapped64(words[at]));
        /* What is left is part of the next word, or sign where there is none. */
        const ptrdiff_t done = width - left;
        uint64_t word = done < 8 * MOST_WORDS ? words[done / 8] : sign_of(words[MOST_WORDS - 1]);
        for (; left > 0; --left, word = shifted_down(word, 8)) to[left - 1] = (uint8_t)word;
    }
    return lost;
}

INLINED uint64_t narrow_by(const uint8_t *from, ptrdiff_t count, const ptrdiff_t size, uint8_t *to,
                           ptrdiff_t width, int numbers) {
    if (numbers)
        return width == 4 ? narrow_numbers_by(from, count, size, to, 4)
                          : narrow_numbers_by(from, count, size, to, 8);
    return width <= 8 ? narrow_short_rows_by(from, count, size, to, width)
                      : narrow_long_rows_by(from, count, size, to, width);
}

/* Rows of 4, 8, 16 or 32 bytes to little-endian numbers of 4 or 8, or to big-endian rows of at least one byte.
   Not 0 where one does not fit. */
static uint64_t narrow_rows(const uint8_t *from, ptrdiff_t count, ptrdiff_t size, uint8_t *to, ptrdiff_t width,
                            int numbers) {
    switch (size) {
    case 4: return narrow_by(from, count, 4, to, width, numbers);
    case 8: return narrow_by(from, count, 8, to, width, numbers);
    case 16: return narrow_by(from, count, 16, to, width, numbers);
    default: return narrow_by(from, count, 32, to, width, numbers);
    }
}

/* The first row that does not fit into `width` bytes; -1 if all do. */
static ptrdiff_t first_too_wide(const uint8_t *from, ptrdiff_t count, ptrdiff_t size, ptrdiff_t width) {
    uint64_t words[MOST_WORDS];
    for (ptrdiff_t row = 0; row < count; ++row) {
        load_words(words, from + size * row, size);
        if (too_wide(words, width)) return row;
    }
    return -1;
}

#endif
