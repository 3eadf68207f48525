/* Hashes of bytes and numbers. */
#ifndef RPQ_HASHES_H
#define RPQ_HASHES_H

#include "words.h"

/* 64 x 64 bits multiplied to 128, both halves folded into one. */
INLINED uint64_t folded(uint64_t a, uint64_t b) {
#if defined(__SIZEOF_INT128__)
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
#else
    const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
    const uint64_t middle = a_high * b_low + (a_low * b_low >> 32);
    const uint64_t other = a_low * b_high + (uint32_t)middle;
    return (a * b) ^ (a_high * b_high + (middle >> 32) + (other >> 32));
#endif
}

INLINED uint64_t hash_bytes(const uint8_t *from, ptrdiff_t size, uint64_t secret, uint64_t other_secret) {
    uint64_t hash = secret ^ (uint64_t)size, first = 0, last = 0;
    for (; size > 16; from += 16, size -= 16)
        hash = folded(load64(from) ^ other_secret, load64(from + 8) ^ hash);
    if (size >= 8) { first = load64(from); last = load64(from + size - 8); }
    else if (size >= 4) { first = load32(from); last = load32(from + size - 4); }
    else if (size > 0) first = (uint64_t)from[0] << 16 | (uint64_t)from[size >> 1] << 8 | from[size - 1];
    return folded(first ^ other_secret, last ^ hash);
}

/* xxh64 with seed 0, as BloomFilter.md asks for it. */
#define XXH_1 UINT64_C(0x9E3779B185EBCA87)
#define XXH_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define XXH_3 UINT64_C(0x165667B19E3779F9)
#define XXH_4 UINT64_C(0x85EBCA77C2B2AE63)
#define XXH_5 UINT64_C(0x27D4EB2F165667C5)

INLINED uint64_t rotated(uint64_t word, int by) { return word << by | word >> (64 - by); }
INLINED uint64_t xxh_round(uint64_t lane, uint64_t word) { return rotated(lane + word * XXH_2, 31) * XXH_1; }

INLINED uint64_t xxh64(const uint8_t *from, ptrdiff_t size) {
    uint64_t hash = XXH_5;
    const uint64_t length = (uint64_t)size;
    if (size >= 32) {
        uint64_t lanes[4] = {XXH_1 + XXH_2, XXH_2, 0, 0 - XXH_1};
        for (; size >= 32; from += 32, size -= 32)
            for (int lane = 0; lane < 4; ++lane) lanes[lane] = xxh_round(lanes[lane], load64(from + 8 * lane));
        hash = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
        for (int lane = 0; lane < 4; ++lane) hash = (hash ^ xxh_round(0, lanes[lane])) * XXH_1 + XXH_4;
    }
    hash += length;
    for (; size >= 8; from += 8, size -= 8) hash = rotated(hash ^ xxh_round(0, load64(from)), 27) * XXH_1 + XXH_4;
    if (size >= 4) {
        hash = rotated(hash ^ load32(from) * XXH_1, 23) * XXH_2 + XXH_3;
        from += 4;
        size -= 4;
    }
    for (; size > 0; ++from, --size) hash = rotated(hash ^ *from * XXH_5, 11) * XXH_1;
    hash = (hash ^ hash >> 33) * XXH_2;
    hash = (hash ^ hash >> 29) * XXH_3;
    return hash ^ hash >> 32;
}

#endif
