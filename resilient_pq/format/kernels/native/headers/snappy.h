/* Snappy data decompressed: a length, then literals and copies of what stands before (its "format_description"). */
#ifndef RPQ_SNAPPY_H
#define RPQ_SNAPPY_H

#include "words.h"

/* A copy has at most so many bytes. */
#define LONGEST_COPY 64

/* `length` bytes from `distance` before; there is room for LONGEST_COPY and 16 more, whose bytes are written later. */
INLINED void copy_back(uint8_t *to, ptrdiff_t distance, ptrdiff_t length) {
    uint8_t bytes[16];
    ptrdiff_t at = 0;
    if (distance >= 16) {
        for (; at < length; at += 16) {
            memcpy(bytes, to + at - distance, 16);
            memcpy(to + at, bytes, 16);
        }
        return;
    }
    if (distance < 8) { /* what repeats every few bytes repeats every multiple of these as well */
        const ptrdiff_t multiple = distance * ((7 + distance) / distance);
        for (; at < multiple - distance; ++at) to[at] = to[at - distance];
        distance = multiple;
    }
    for (; at < length; at += 8) store64(to + at, load64(to + at - distance));
}

/* Whether the data are whole and have filled all the room, neither less nor more. */
static int fill_from_snappy(const uint8_t *from, ptrdiff_t size, uint8_t *to, ptrdiff_t room) {
    ptrdiff_t at = 0, done = 0, length, distance;
    uint64_t stated = 0;
    for (int shift = 0;; shift += 7) {
        if (at >= size || shift > 28) return 0;
        stated |= (uint64_t)(from[at] & 0x7F) << shift;
        if (from[at++] < 0x80) break;
    }
    if (room < 0 || stated != (uint64_t)room) return 0;
    while (at < size) {
        const uint8_t tag = from[at++];
        if ((tag & 3) == 0) {
            length = (tag >> 2) + 1;
            if (length <= 16 && size - at >= 16 && room - done >= 16) {
                memcpy(to + done, from + at, 16);
            } else {
                if (length > 60) {
                    const ptrdiff_t bytes = length - 60;
                    uint64_t number = 1;
                    if (size - at < bytes) return 0;
                    for (ptrdiff_t byte = 0; byte < bytes; ++byte) number += (uint64_t)from[at + byte] << 8 * byte;
                    at += bytes;
                    if (number > (uint64_t)(size - at)) return 0;
                    length = (ptrdiff_t)number;
                }
                if (length > size - at || length > room - done) return 0;
                memcpy(to + done, from + at, (size_t)length);
            }
            at += length;
            done += length;
            continue;
        }
        if ((tag & 3) == 1) {
            if (size - at < 1) return 0;
            length = 4 + (tag >> 2 & 7);
            distance = (ptrdiff_t)(tag >> 5) << 8 | from[at];
            at += 1;
        } else if ((tag & 3) == 2) {
            if (size - at < 2) return 0;
            length = (tag >> 2) + 1;
            distance = (ptrdiff_t)from[at] | (ptrdiff_t)from[at + 1] << 8;
            at += 2;
        } else {
            if (size - at < 4) return 0;
            length = (tag >> 2) + 1;
            distance = (ptrdiff_t)load32(from + at);
            at += 4;
        }
        if (distance <= 0 || distance > done || length > room - done) return 0;
        if (room - done >= LONGEST_COPY + 16)
            copy_back(to + done, distance, length);
        else
            for (ptrdiff_t byte = 0; byte < length; ++byte) to[done + byte] = to[done + byte - distance];
        done += length;
    }
    return done == room;
}

#endif
