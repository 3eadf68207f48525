/* Text looked at. */
#ifndef RPQ_UTF8_H
#define RPQ_UTF8_H

#include "words.h"

#define RPQ_HIGH_BITS 0x8080808080808080u

/* Where the first byte is that is not ASCII, or `end`. */
INLINED const uint8_t *skip_ascii(const uint8_t *at, const uint8_t *end) {
    while (end - at >= 32) {
        const uint64_t seen = load64(at) | load64(at + 8) | load64(at + 16) | load64(at + 24);
        if (seen & RPQ_HIGH_BITS) break;
        at += 32;
    }
    while (end - at >= 8 && !(load64(at) & RPQ_HIGH_BITS)) at += 8;
    while (at < end && *at < 0x80) ++at;
    return at;
}

/* The bytes of the character at `at`, which is not ASCII; 0 where it is none (Unicode, table 3-7: no overlong
   forms, no surrogates, nothing beyond U+10FFFF), or ends behind `end`. */
INLINED ptrdiff_t character_size(const uint8_t *at, const uint8_t *end) {
    const uint8_t lead = at[0];
    const ptrdiff_t room = end - at;
    uint8_t low = 0x80, high = 0xBF; /* of the second byte */
    if (lead < 0xC2 || lead > 0xF4 || room < 2) return 0;
    if (lead < 0xE0) return (at[1] & 0xC0) == 0x80 ? 2 : 0;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (at[1] < low || at[1] > high || room < 3 || (at[2] & 0xC0) != 0x80) return 0;
    if (lead < 0xF0) return 3;
    return room >= 4 && (at[3] & 0xC0) == 0x80 ? 4 : 0;
}

/* Whether the `size` bytes are whole characters of UTF-8. */
INLINED int is_utf8(const uint8_t *at, ptrdiff_t size) {
    const uint8_t *const end = at + size;
    while ((at = skip_ascii(at, end)) < end) {
        do { /* what is not ASCII seldom stands alone */
            const ptrdiff_t taken = character_size(at, end);
            if (!taken) return 0;
            at += taken;
        } while (at < end && *at >= 0x80);
    }
    return 1;
}

#endif
