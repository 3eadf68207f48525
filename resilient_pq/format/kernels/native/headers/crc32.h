/* CRC32 as zlib computes it: polynomial 0x04C11DB7, reflected. */
#ifndef RPQ_CRC32_H
#define RPQ_CRC32_H

#include "words.h"

#if defined(__AVX2__) && defined(__PCLMUL__)
#include <immintrin.h>
#define MULTIPLIES_CRC32 1
#else
#define MULTIPLIES_CRC32 0
#endif

/* [n][b] is the sum of byte b with n zeros behind it. */
static uint32_t crc32_tables[8][256];

/* To be called once before any sum is computed. */
static void prepare_crc32(void) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? UINT32_C(0xEDB88320) : 0);
        crc32_tables[0][byte] = sum;
    }
    for (int zeros = 1; zeros < 8; ++zeros)
        for (int byte = 0; byte < 256; ++byte) {
            const uint32_t before = crc32_tables[zeros - 1][byte];
            crc32_tables[zeros][byte] = before >> 8 ^ crc32_tables[0][before & 0xFF];
        }
}

/* The register after more bytes. */
INLINED uint32_t crc32_goes_on(uint32_t sum, const uint8_t *from, ptrdiff_t size) {
    for (; size >= 8; size -= 8, from += 8) {
        const uint64_t word = load64(from) ^ sum;
        sum = crc32_tables[7][word & 0xFF] ^ crc32_tables[6][word >> 8 & 0xFF] ^ crc32_tables[5][word >> 16 & 0xFF] ^
              crc32_tables[4][word >> 24 & 0xFF] ^ crc32_tables[3][word >> 32 & 0xFF] ^
              crc32_tables[2][word >> 40 & 0xFF] ^ crc32_tables[1][word >> 48 & 0xFF] ^ crc32_tables[0][word >> 56];
    }
    for (; size > 0; --size, ++from) sum = sum >> 8 ^ crc32_tables[0][(sum ^ *from) & 0xFF];
    return sum;
}

#if MULTIPLIES_CRC32
#define CRC32_LANES 4

/* 16 bytes, moved on by as many as the factors stand for: the halves of these are powers of x, modulo the polynomial. */
INLINED __m128i moved_on(__m128i bytes, __m128i factors, const uint8_t *onto) {
    const __m128i low = _mm_clmulepi64_si128(bytes, factors, 0x00), high = _mm_clmulepi64_si128(bytes, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)onto));
}
#endif

static uint32_t crc32_of(const uint8_t *from, ptrdiff_t size) {
    uint32_t sum = UINT32_C(0xFFFFFFFF);
#if MULTIPLIES_CRC32
    if (size >= 16 * CRC32_LANES) {
        /* x to the powers of 512 + 32 and 512 - 32, 128 + 32 and 128 - 32; reflected, and a bit to the left. */
        const __m128i by_64 = _mm_set_epi64x(INT64_C(0x1c6e41596), INT64_C(0x154442bd4));
        const __m128i by_16 = _mm_set_epi64x(INT64_C(0x0ccaa009e), INT64_C(0x1751997d0));
        __m128i lanes[CRC32_LANES];
        uint8_t rest[16];
        for (int lane = 0; lane < CRC32_LANES; ++lane) lanes[lane] = _mm_loadu_si128((const __m128i *)(from + 16 * lane));
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)sum));
        for (from += 64, size -= 64; size >= 64; from += 64, size -= 64)
            for (int lane = 0; lane < CRC32_LANES; ++lane) lanes[lane] = moved_on(lanes[lane], by_64, from + 16 * lane);
        for (int lane = 1; lane < CRC32_LANES; ++lane) {
            _mm_storeu_si128((__m128i *)rest, lanes[lane]);
            lanes[0] = moved_on(lanes[0], by_16, rest);
        }
        for (; size >= 16; from += 16, size -= 16) lanes[0] = moved_on(lanes[0], by_16, from);
        _mm_storeu_si128((__m128i *)rest, lanes[0]);
        sum = crc32_goes_on(0, rest, 16);
    }
#endif
    return ~crc32_goes_on(sum, from, size);
}

#endif
