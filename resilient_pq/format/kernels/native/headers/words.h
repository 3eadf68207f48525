/* Words in bytes. */
#ifndef RPQ_WORDS_H
#define RPQ_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#define INLINED static __forceinline
#define RESTRICT __restrict
#else
#define INLINED static inline __attribute__((always_inline))
#define RESTRICT restrict
#endif

/* Says that a line of the cache will be written soon. */
#if defined(__GNUC__)
#define WANTED_SOON(at) __builtin_prefetch((at), 1)
#else
#define WANTED_SOON(at) ((void)(at))
#endif

INLINED uint64_t load64(const uint8_t *from) { uint64_t word; memcpy(&word, from, 8); return word; }
INLINED uint32_t load32(const uint8_t *from) { uint32_t word; memcpy(&word, from, 4); return word; }
INLINED void store32(uint8_t *to, uint32_t word) { memcpy(to, &word, 4); }
INLINED void store64(uint8_t *to, uint64_t word) { memcpy(to, &word, 8); }

/* A pattern that compilers know for one instruction. */
INLINED uint64_t swapped64(uint64_t word) {
    word = (word & UINT64_C(0x00FF00FF00FF00FF)) << 8 | (word >> 8 & UINT64_C(0x00FF00FF00FF00FF));
    word = (word & UINT64_C(0x0000FFFF0000FFFF)) << 16 | (word >> 16 & UINT64_C(0x0000FFFF0000FFFF));
    return word << 32 | word >> 32;
}

#endif
