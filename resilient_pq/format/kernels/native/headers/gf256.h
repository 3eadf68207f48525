/* Sums of products in GF(2^8) with the polynomial 0x11D, of whole arrays: what Reed-Solomon parity is made of. */
#ifndef RPQ_GF256_H
#define RPQ_GF256_H

#include "words.h"

#if defined(__AVX2__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_GFNI_LOOP 1
#define FOR_GFNI __attribute__((target("gfni,avx512f,avx512bw")))
#endif

/* Bytes of each row at a time, and sources: they stay in the first cache while all rows take them. */
#define GF256_BLOCK 2048
#define GF256_SOURCES 8

/* Products of each coefficient: with 0..15, with 16 * (0..15), and as a matrix of bits for GFNI. */
static uint8_t gf256_low[256][16], gf256_high[256][16];
static uint64_t gf256_matrix[256];
#ifdef HAS_GFNI_LOOP
static int gf256_has_gfni = 0;
#endif

static uint8_t gf256_product(uint8_t a, uint8_t b) {
    uint8_t product = 0;
    for (; b; b >>= 1, a = (uint8_t)(a << 1 ^ (a & 0x80 ? 0x1D : 0)))
        if (b & 1) product ^= a;
    return product;
}

/* Makes the tables; called once, when the module is imported. */
static void gf256_prepare(void) {
    for (int factor = 0; factor < 256; ++factor) {
        for (int nibble = 0; nibble < 16; ++nibble) {
            gf256_low[factor][nibble] = gf256_product((uint8_t)factor, (uint8_t)nibble);
            gf256_high[factor][nibble] = gf256_product((uint8_t)factor, (uint8_t)(nibble << 4));
        }
        uint64_t matrix = 0;
        for (int bit = 0; bit < 8; ++bit) {  /* row 7 - i of the matrix makes bit i of the product */
            const uint8_t column = gf256_product((uint8_t)factor, (uint8_t)(1 << bit));
            for (int i = 0; i < 8; ++i)
                matrix |= (uint64_t)(column >> i & 1) << (8 * (7 - i) + bit);
        }
        gf256_matrix[factor] = matrix;
    }
#ifdef HAS_GFNI_LOOP
    gf256_has_gfni = __builtin_cpu_supports("gfni") && __builtin_cpu_supports("avx512bw");
#endif
}

/* to[i] ^= factor * source[i], a vector at a time where the compiler knows how. */
static void gf256_add_row(uint8_t *RESTRICT to, const uint8_t *RESTRICT source, ptrdiff_t size, uint8_t factor) {
    uint8_t of_bit[8];
    for (int bit = 0; bit < 8; ++bit) of_bit[bit] = gf256_product(factor, (uint8_t)(1 << bit));
    if (factor == 1) {
        for (ptrdiff_t i = 0; i < size; ++i) to[i] ^= source[i];
        return;
    }
    for (ptrdiff_t i = 0; i < size; ++i) {
        uint8_t product = 0;
        for (int bit = 0; bit < 8; ++bit) product ^= (uint8_t)-(source[i] >> bit & 1) & of_bit[bit];
        to[i] ^= product;
    }
}

#ifdef __AVX2__
/* Rows that are summed up in registers at a time: eight for sums, five for a source and its factors. */
#define GF256_ROWS 4

/* As below, for some sources and a multiple of 64 bytes. */
INLINED void gf256_add_avx2(uint8_t *const *rows, const int num_rows, const uint8_t *const *sources, int num_sources,
                            const uint8_t *factors, ptrdiff_t stride, ptrdiff_t size) {
    const __m256i nibble = _mm256_set1_epi8(0x0F);
    for (ptrdiff_t i = 0; i < size; i += 64) {
        __m256i sums[2 * GF256_ROWS];
        for (int row = 0; row < num_rows; ++row)
            for (int half = 0; half < 2; ++half)
                sums[2 * row + half] = _mm256_loadu_si256((const __m256i *)(rows[row] + i + 32 * half));
        for (int source = 0; source < num_sources; ++source) {
            const __m256i first = _mm256_loadu_si256((const __m256i *)(sources[source] + i));
            const __m256i second = _mm256_loadu_si256((const __m256i *)(sources[source] + i + 32));
            const __m256i low[2] = {_mm256_and_si256(first, nibble), _mm256_and_si256(second, nibble)};
            const __m256i high[2] = {_mm256_and_si256(_mm256_srli_epi16(first, 4), nibble),
                                     _mm256_and_si256(_mm256_srli_epi16(second, 4), nibble)};
            for (int row = 0; row < num_rows; ++row) {
                const uint8_t factor = factors[row * stride + source];
                const __m256i lows = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)gf256_low[factor]));
                const __m256i highs = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)gf256_high[factor]));
                for (int half = 0; half < 2; ++half)
                    sums[2 * row + half] = _mm256_xor_si256(
                        sums[2 * row + half], _mm256_xor_si256(_mm256_shuffle_epi8(lows, low[half]),
                                                               _mm256_shuffle_epi8(highs, high[half])));
            }
        }
        for (int row = 0; row < num_rows; ++row)
            for (int half = 0; half < 2; ++half)
                _mm256_storeu_si256((__m256i *)(rows[row] + i + 32 * half), sums[2 * row + half]);
    }
}
#endif

#ifdef HAS_GFNI_LOOP
/* The same with a multiplication of matrices of bits for each 64 bytes. */
FOR_GFNI INLINED void gf256_add_gfni(uint8_t *const *rows, const int num_rows, const uint8_t *const *sources,
                                     int num_sources, const uint8_t *factors, ptrdiff_t stride, ptrdiff_t size) {
    for (ptrdiff_t i = 0; i < size; i += 64) {
        __m512i sums[GF256_ROWS];
        for (int row = 0; row < num_rows; ++row) sums[row] = _mm512_loadu_si512(rows[row] + i);
        for (int source = 0; source < num_sources; ++source) {
            const __m512i bytes = _mm512_loadu_si512(sources[source] + i);
            for (int row = 0; row < num_rows; ++row) {
                const __m512i matrix = _mm512_set1_epi64((long long)gf256_matrix[factors[row * stride + source]]);
                sums[row] = _mm512_xor_si512(sums[row], _mm512_gf2p8affine_epi64_epi8(bytes, matrix, 0));
            }
        }
        for (int row = 0; row < num_rows; ++row) _mm512_storeu_si512(rows[row] + i, sums[row]);
    }
}

#define GF256_CASES(ADD) switch (num_rows) {                                                \
    case 1: ADD(rows, 1, sources, num_sources, factors, stride, size); break;                \
    case 2: ADD(rows, 2, sources, num_sources, factors, stride, size); break;                \
    case 3: ADD(rows, 3, sources, num_sources, factors, stride, size); break;                \
    default: ADD(rows, 4, sources, num_sources, factors, stride, size); }
FOR_GFNI static void gf256_add_some_gfni(uint8_t *const *rows, int num_rows, const uint8_t *const *sources,
                                         int num_sources, const uint8_t *factors, ptrdiff_t stride, ptrdiff_t size) {
    GF256_CASES(gf256_add_gfni)
}
static void gf256_add_some_avx2(uint8_t *const *rows, int num_rows, const uint8_t *const *sources,
                                int num_sources, const uint8_t *factors, ptrdiff_t stride, ptrdiff_t size) {
    GF256_CASES(gf256_add_avx2)
}
#endif

/* Adds to each of `num_rows` rows, `row_stride` bytes apart, the sum of its factors times the sources, which are
   `source_stride` bytes apart; of all, `size` bytes. Factors are `num_sources` for each row. */
static void gf256_add(uint8_t *to, ptrdiff_t num_rows, ptrdiff_t row_stride, const uint8_t *from, ptrdiff_t num_sources,
                      ptrdiff_t source_stride, const uint8_t *factors, ptrdiff_t size, int with_gfni) {
    for (ptrdiff_t at = 0; at < size; at += GF256_BLOCK) {
        const ptrdiff_t block = size - at < GF256_BLOCK ? size - at : GF256_BLOCK;
        ptrdiff_t done = 0;
#ifdef HAS_GFNI_LOOP
        done = block & ~(ptrdiff_t)63;
        for (ptrdiff_t first = 0; done && first < num_sources; first += GF256_SOURCES) {
            const uint8_t *sources[GF256_SOURCES];
            const int count = num_sources - first < GF256_SOURCES ? (int)(num_sources - first) : GF256_SOURCES;
            for (int i = 0; i < count; ++i) sources[i] = from + (first + i) * source_stride + at;
            for (ptrdiff_t row = 0; row < num_rows; row += GF256_ROWS) {
                uint8_t *rows[GF256_ROWS];
                const int together = num_rows - row < GF256_ROWS ? (int)(num_rows - row) : GF256_ROWS;
                for (int i = 0; i < together; ++i) rows[i] = to + (row + i) * row_stride + at;
                (with_gfni && gf256_has_gfni ? gf256_add_some_gfni : gf256_add_some_avx2)(
                    rows, together, sources, count, factors + row * num_sources + first, num_sources, done);
            }
        }
#endif
        for (ptrdiff_t row = 0; done < block && row < num_rows; ++row)
            for (ptrdiff_t source = 0; source < num_sources; ++source)
                gf256_add_row(to + row * row_stride + at + done, from + source * source_stride + at + done,
                              block - done, factors[row * num_sources + source]);
    }
    (void)with_gfni;
}

#endif
