/* Blocks of split-block bloom filters. */
#ifndef RPQ_BLOOM_H
#define RPQ_BLOOM_H

#include "words.h"

/* One bit in each of the eight words of a block of a split-block bloom filter. */
static const uint32_t BLOOM_SALTS[8] = {0x47B6137BU, 0x44974D91U, 0x8824AD5BU, 0xA2B7289DU,
                                        0x705495C7U, 0x2DF1424BU, 0x9EFC4947U, 0x5C6BFB31U};

INLINED void bloom_set(uint32_t *block, uint32_t hash) {
    for (int word = 0; word < 8; ++word) block[word] |= UINT32_C(1) << (hash * BLOOM_SALTS[word] >> 27);
}
INLINED int bloom_has(const uint32_t *block, uint32_t hash) {
    uint32_t missing = 0;
    for (int word = 0; word < 8; ++word)
        missing |= ~block[word] & UINT32_C(1) << (hash * BLOOM_SALTS[word] >> 27);
    return !missing;
}

#endif
