/* Snappy data decompressed. */
#ifndef RPQ_SNAPPY_H
#define RPQ_SNAPPY_H

#include "words.h"

/* Repeats `size` bytes from `distance` before `to`; up to `slack` bytes behind them may be written, too. */
INLINED void repeat_bytes(uint8_t *to, ptrdiff_t distance, ptrdiff_t size, ptrdiff_t slack) {
    if (distance >= 16 && slack >= 16) {
        for (ptrdiff_t at = 0; at < size; at += 16) memcpy(to + at, to + at - distance, 16);
    } else if (distance >= 8 && slack >= 8) {
        for (ptrdiff_t at = 0; at < size; at += 8) memcpy(to + at, to + at - distance, 8);
    } else if (distance == 1) {
        memset(to, to[-1], size);
    } else {
        for (; size > distance; distance *= 2) {  /* what is repeated is twice as long each time */
            memcpy(to, to - distance, distance);
            to += distance;
            size -= distance;
        }
        memcpy(to, to - distance, size);
    }
}

/* Fills `to` with what `from` was before it was compressed; 0 where that is damaged, or has another size. */
static int unpack_snappy(const uint8_t *from, ptrdiff_t size, uint8_t *to, ptrdiff_t room) {
    const uint8_t *const end = from + size;
    uint8_t *const begin = to, *const stop = to + room;
    uint64_t length = 0;
    for (int shift = 0;; shift += 7) {
        if (from == end || shift > 28) return 0;
        length |= (uint64_t)(*from & 0x7F) << shift;
        if (*from++ < 0x80) break;
    }
    if (length != (uint64_t)room) return 0;
    while (from < end) {
        const uint32_t tag = *from++;
        uint64_t run = (tag >> 2) + 1, distance = 0;
        if ((tag & 3) == 0) {
            if (run > 60) {
                const int bytes = (int)run - 60;
                if (end - from < bytes) return 0;
                run = 1;
                for (int byte = 0; byte < bytes; ++byte) run += (uint64_t)from[byte] << 8 * byte;
                from += bytes;
            }
            if (run > (uint64_t)(end - from) || run > (uint64_t)(stop - to)) return 0;
            if (run <= 16 && end - from >= 16 && stop - to >= 16) memcpy(to, from, 16);
            else memcpy(to, from, run);
            from += run;
            to += run;
            continue;
        }
        const int bytes = (tag & 3) == 3 ? 4 : (int)(tag & 3);
        if (end - from < bytes) return 0;
        for (int byte = 0; byte < bytes; ++byte) distance |= (uint64_t)from[byte] << 8 * byte;
        from += bytes;
        if (bytes == 1) {
            run = (tag >> 2 & 7) + 4;
            distance |= (uint64_t)(tag >> 5) << 8;
        }
        if (!distance || distance > (uint64_t)(to - begin) || run > (uint64_t)(stop - to)) return 0;
        repeat_bytes(to, (ptrdiff_t)distance, (ptrdiff_t)run, stop - to - (ptrdiff_t)run);
        to += run;
    }
    return to == stop;
}

#endif
