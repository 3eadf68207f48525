/* CRC32 as Parquet has it, where the processor multiplies polynomials. */
#ifndef RPQ_CRC32_H
#define RPQ_CRC32_H

#include "words.h"

#if defined(__PCLMUL__) && defined(__SSE4_1__)
#include <immintrin.h>
#define HAS_CRC32 1

static uint32_t crc32_of_byte[256];

static void prepare_crc32(void) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? UINT32_C(0xEDB88320) : 0);
        crc32_of_byte[byte] = rest;
    }
}

INLINED uint32_t crc32_bytewise(uint32_t crc, const uint8_t *data, ptrdiff_t size) {
    for (; size > 0; --size) crc = crc >> 8 ^ crc32_of_byte[(crc ^ *data++) & 0xFF];
    return crc;
}

INLINED __m128i loaded(const uint8_t *data) { return _mm_loadu_si128((const __m128i *)data); }

/* 16 bytes, moved over those `next` by two powers of x modulo the polynomial, one for each half. */
INLINED __m128i folded(__m128i bytes, __m128i powers, __m128i next) {
    const __m128i low = _mm_clmulepi64_si128(bytes, powers, 0x00), high = _mm_clmulepi64_si128(bytes, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* All bytes but the last are folded into 16 of the same remainder, which a table takes to the end. */
static uint32_t crc32_of(const uint8_t *data, ptrdiff_t size) {
    const __m128i over64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4), over16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    uint8_t left[16];
    if (size < 64) return ~crc32_bytewise(~UINT32_C(0), data, size);
    __m128i a = _mm_xor_si128(loaded(data), _mm_cvtsi32_si128(-1));
    __m128i b = loaded(data + 16), c = loaded(data + 32), d = loaded(data + 48);
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        a = folded(a, over64, loaded(data));
        b = folded(b, over64, loaded(data + 16));
        c = folded(c, over64, loaded(data + 32));
        d = folded(d, over64, loaded(data + 48));
    }
    a = folded(folded(folded(a, over16, b), over16, c), over16, d);
    for (; size >= 16; data += 16, size -= 16) a = folded(a, over16, loaded(data));
    _mm_storeu_si128((__m128i *)left, a);
    return ~crc32_bytewise(crc32_bytewise(0, left, 16), data, size);
}
#else
#define HAS_CRC32 0
static void prepare_crc32(void) {}
static uint32_t crc32_of(const uint8_t *data, ptrdiff_t size) { (void)data; (void)size; return 0; }
#endif

#endif
