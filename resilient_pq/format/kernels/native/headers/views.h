/* Arrow's string and binary views: the length, then up to twelve bytes of value, or its first four, the number of a
   buffer and the offset therein. */
#ifndef RPQ_VIEWS_H
#define RPQ_VIEWS_H

#include "words.h"

#define RPQ_INLINE_VIEW 12

/* What of the first four and of the next eight bytes belongs to a value of 0 to 12 bytes. */
static const uint32_t RPQ_VIEW_FRONT[RPQ_INLINE_VIEW + 1] = {
    0, 0xFF, 0xFFFF, 0xFFFFFF, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u, ~0u,
};
static const uint64_t RPQ_VIEW_REST[RPQ_INLINE_VIEW + 1] = {
    0, 0, 0, 0, 0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFF, 0xFFFFFFFFFFFF, 0xFFFFFFFFFFFFFF,
    ~(uint64_t)0,
};

/* Writes the view of the `size` bytes at `from`, behind which `room` bytes can be read. */
INLINED void store_view(uint8_t *to, const uint8_t *from, ptrdiff_t room, uint32_t size, uint32_t buffer,
                        uint32_t offset) {
    uint32_t front;
    uint64_t rest;
    if (size > RPQ_INLINE_VIEW) {
        front = load32(from);
        rest = (uint64_t)offset << 32 | buffer;
    } else if (room >= RPQ_INLINE_VIEW) {
        front = load32(from) & RPQ_VIEW_FRONT[size];
        rest = load64(from + 4) & RPQ_VIEW_REST[size];
    } else {
        uint8_t bytes[RPQ_INLINE_VIEW] = {0};
        if (size) memcpy(bytes, from, size);
        front = load32(bytes);
        rest = load64(bytes + 4);
    }
    store32(to, size);
    store32(to + 4, front);
    memcpy(to + 8, &rest, 8);
}

#endif
