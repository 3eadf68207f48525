/* Values of a few bits each, packed and unpacked. */
#ifndef RPQ_BITS_H
#define RPQ_BITS_H

#include "words.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/* Groups of eight values of `width` bits; each is `width` bytes. Whole words are read and written: up to
   GROUP_SLACK bytes behind the last group. The inner loops unroll, as each copy has its own width. */
#define GROUP_SLACK 16

#define DEFINE_GROUPS(TYPE, NAME)                                                                     \
INLINED void unpack_##NAME##_by(const uint8_t *RESTRICT from, TYPE *RESTRICT to, ptrdiff_t groups,    \
                                const int width) {                                                    \
    const uint64_t mask = ~(uint64_t)0 >> (64 - width);                                               \
    for (; groups > 0; --groups, from += width, to += 8)                                              \
        for (int lane = 0; lane < 8; ++lane) {                                                        \
            const int byte = lane * width >> 3, shift = lane * width & 7;                             \
            uint64_t word = load64(from + byte) >> shift;                                             \
            if (shift + width > 64) word |= (uint64_t)from[byte + 8] << (64 - shift);                 \
            to[lane] = (TYPE)(word & mask);                                                           \
        }                                                                                             \
}                                                                                                     \
INLINED void pack_##NAME##_by(const TYPE *RESTRICT from, uint8_t *RESTRICT to, ptrdiff_t groups,      \
                              const int width) {                                                      \
    for (; groups > 0; --groups, from += 8, to += width) {                                            \
        uint64_t words[8] = {0};                                                                      \
        for (int lane = 0; lane < 8; ++lane) {                                                        \
            const int word = lane * width >> 6, shift = lane * width & 63;                            \
            words[word] |= (uint64_t)from[lane] << shift;                                             \
            if (shift + width > 64) words[word + 1] |= (uint64_t)from[lane] >> (64 - shift);          \
        }                                                                                             \
        for (int word = 0; 8 * word < width; ++word) memcpy(to + 8 * word, words + word, 8);          \
    }                                                                                                 \
}

/* The same for bits in bytes, which most levels are: eight of them make one word. */
static void unpack_bits(const uint8_t *RESTRICT from, uint8_t *RESTRICT to, ptrdiff_t groups) {
    for (ptrdiff_t group = 0; group < groups; ++group) {
        const uint64_t apart = from[group] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
        const uint64_t bits = (apart + UINT64_C(0x7F7F7F7F7F7F7F7F)) >> 7 & UINT64_C(0x0101010101010101);
        memcpy(to + 8 * group, &bits, 8);
    }
}
static void pack_bits(const uint8_t *RESTRICT from, uint8_t *RESTRICT to, ptrdiff_t groups) {
    for (ptrdiff_t group = 0; group < groups; ++group)
        to[group] = (uint8_t)(load64(from + 8 * group) * UINT64_C(0x0102040810204080) >> 56);
}

DEFINE_GROUPS(uint8_t, u8)
DEFINE_GROUPS(uint16_t, u16)
DEFINE_GROUPS(uint32_t, u32)
DEFINE_GROUPS(uint64_t, u64)

#ifdef __AVX2__
/* The same, eight values at a time: the four bytes that each begins in go to its lane, and are shifted there. Values
   of more than 25 bits may lie in five. The second half of a group begins in its byte `width` / 2. */
#define FIRST_BIT(LANE) ((LANE) * width - (LANE) / 4 * (width / 2 * 8))
#define FROM_BYTE(LANE, BYTE) (char)(FIRST_BIT(LANE) / 8 + (BYTE))
#define LANE_FROM(LANE) FROM_BYTE(LANE, 0), FROM_BYTE(LANE, 1), FROM_BYTE(LANE, 2), FROM_BYTE(LANE, 3)
INLINED void unpack_u32_at_once(const uint8_t *RESTRICT from, uint32_t *RESTRICT to, ptrdiff_t groups,
                                const int width) {
    if (width > 25) {
        unpack_u32_by(from, to, groups, width);
        return;
    }
    const __m256i bytes = _mm256_setr_epi8(LANE_FROM(0), LANE_FROM(1), LANE_FROM(2), LANE_FROM(3), LANE_FROM(4),
                                           LANE_FROM(5), LANE_FROM(6), LANE_FROM(7));
    const __m256i shifts = _mm256_setr_epi32(FIRST_BIT(0) % 8, FIRST_BIT(1) % 8, FIRST_BIT(2) % 8, FIRST_BIT(3) % 8,
                                             FIRST_BIT(4) % 8, FIRST_BIT(5) % 8, FIRST_BIT(6) % 8, FIRST_BIT(7) % 8);
    const __m256i mask = _mm256_set1_epi32((int)(((uint32_t)1 << width) - 1));
    for (; groups > 0; --groups, from += width, to += 8) {
        const __m128i low = _mm_loadu_si128((const __m128i *)from);
        const __m128i high = _mm_loadu_si128((const __m128i *)(from + width / 2));
        const __m256i lanes = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), bytes);
        _mm256_storeu_si256((__m256i *)to, _mm256_and_si256(_mm256_srlv_epi32(lanes, shifts), mask));
    }
}
#else
#define unpack_u32_at_once unpack_u32_by
#endif

#define CASE(CALL, W) case W: CALL(from, to, groups, W); break;
#define CASES8(CALL, W) CASE(CALL, W + 1) CASE(CALL, W + 2) CASE(CALL, W + 3) CASE(CALL, W + 4)       \
                        CASE(CALL, W + 5) CASE(CALL, W + 6) CASE(CALL, W + 7) CASE(CALL, W + 8)
#define CASES32(CALL, W) CASES8(CALL, W) CASES8(CALL, W + 8) CASES8(CALL, W + 16) CASES8(CALL, W + 24)

static void unpack_u8(const uint8_t *from, uint8_t *to, ptrdiff_t groups, int width) {
    if (width == 1) unpack_bits(from, to, groups);
    else switch (width) { CASES8(unpack_u8_by, 0) }
}
static void unpack_u32(const uint8_t *from, uint32_t *to, ptrdiff_t groups, int width) {
    switch (width) { CASES32(unpack_u32_at_once, 0) }
}
static void unpack_u64(const uint8_t *from, uint64_t *to, ptrdiff_t groups, int width) {
    switch (width) { CASES32(unpack_u64_by, 0) CASES32(unpack_u64_by, 32) }
}
static void pack_u8(const uint8_t *from, uint8_t *to, ptrdiff_t groups, int width) {
    if (width == 1) pack_bits(from, to, groups);
    else switch (width) { CASES8(pack_u8_by, 0) }
}
static void pack_u16(const uint16_t *from, uint8_t *to, ptrdiff_t groups, int width) {
    switch (width) { CASES8(pack_u16_by, 0) CASES8(pack_u16_by, 8) }
}
static void pack_u32(const uint32_t *from, uint8_t *to, ptrdiff_t groups, int width) {
    switch (width) { CASES32(pack_u32_by, 0) }
}
static void pack_u64(const uint64_t *from, uint8_t *to, ptrdiff_t groups, int width) {
    switch (width) { CASES32(pack_u64_by, 0) CASES32(pack_u64_by, 32) }
}

#endif
