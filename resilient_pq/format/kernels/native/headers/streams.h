/* Rows of bytes, and streams of the first bytes of all rows, the second ones, and so on: a transposition. */
#ifndef RPQ_STREAMS_H
#define RPQ_STREAMS_H

#include "words.h"

/* Rows that are turned at one time: so many that a stream gets a word. */
#define TURNED 8

/* Of two words, the pieces of `bits` bits that stand apart from the diagonal change places. */
INLINED void exchange(uint64_t *one, uint64_t *other, int bits, uint64_t mask) {
    const uint64_t different = (*one >> bits ^ *other) & mask;
    *other ^= different;
    *one ^= different << bits;
}

/* Eight words: byte i of word j becomes byte j of word i. */
INLINED void turn_words(uint64_t words[8]) {
    for (int at = 0; at < 8; at += 2) exchange(words + at, words + at + 1, 8, UINT64_C(0x00FF00FF00FF00FF));
    for (int at = 0; at < 8; ++at)
        if (!(at & 2)) exchange(words + at, words + at + 2, 16, UINT64_C(0x0000FFFF0000FFFF));
    for (int at = 0; at < 4; ++at) exchange(words + at, words + at + 4, 32, UINT64_C(0x00000000FFFFFFFF));
}

/* Four words, each half for itself: byte i of half word j becomes byte j of half word i. */
INLINED void turn_halves(uint64_t words[4]) {
    exchange(words, words + 1, 8, UINT64_C(0x00FF00FF00FF00FF));
    exchange(words + 2, words + 3, 8, UINT64_C(0x00FF00FF00FF00FF));
    exchange(words, words + 2, 16, UINT64_C(0x0000FFFF0000FFFF));
    exchange(words + 1, words + 3, 16, UINT64_C(0x0000FFFF0000FFFF));
}

/* `count` rows of `width` bytes to as many streams, one every `stride` bytes. */
static void split_streams_of(const uint8_t *RESTRICT from, ptrdiff_t count, ptrdiff_t width, uint8_t *RESTRICT to,
                             ptrdiff_t stride) {
    ptrdiff_t row = 0;
    uint64_t words[8];
    if (width == 8)
        for (; row + TURNED <= count; row += TURNED) {
            for (int at = 0; at < 8; ++at) words[at] = load64(from + 8 * (row + at));
            turn_words(words);
            for (int byte = 0; byte < 8; ++byte) store64(to + byte * stride + row, words[byte]);
        }
    else if (width == 4)
        for (; row + TURNED <= count; row += TURNED) {
            for (int at = 0; at < 4; ++at)
                words[at] = load32(from + 4 * (row + at)) | (uint64_t)load32(from + 4 * (row + at + 4)) << 32;
            turn_halves(words);
            for (int byte = 0; byte < 4; ++byte) store64(to + byte * stride + row, words[byte]);
        }
    for (; row < count; ++row)
        for (ptrdiff_t byte = 0; byte < width; ++byte) to[byte * stride + row] = from[width * row + byte];
}

/* The same, back: the first `count` bytes of each stream. */
static void join_streams_of(const uint8_t *RESTRICT from, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t width,
                            uint8_t *RESTRICT to) {
    ptrdiff_t row = 0;
    uint64_t words[8];
    if (width == 8)
        for (; row + TURNED <= count; row += TURNED) {
            for (int byte = 0; byte < 8; ++byte) words[byte] = load64(from + byte * stride + row);
            turn_words(words);
            for (int at = 0; at < 8; ++at) store64(to + 8 * (row + at), words[at]);
        }
    else if (width == 4)
        for (; row + TURNED <= count; row += TURNED) {
            for (int byte = 0; byte < 4; ++byte) words[byte] = load64(from + byte * stride + row);
            turn_halves(words);
            for (int at = 0; at < 4; ++at) {
                store32(to + 4 * (row + at), (uint32_t)words[at]);
                store32(to + 4 * (row + at + 4), (uint32_t)(words[at] >> 32));
            }
        }
    for (; row < count; ++row)
        for (ptrdiff_t byte = 0; byte < width; ++byte) to[width * row + byte] = from[byte * stride + row];
}

#endif
