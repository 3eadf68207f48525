/* Bytes of an open file at a position. */
#ifndef RPQ_FILES_H
#define RPQ_FILES_H

#include "words.h"

#include <errno.h>

#ifdef _WIN32
static ptrdiff_t read_at(int descriptor, uint8_t *to, ptrdiff_t size, int64_t at) { errno = ENOSYS; return -1; }
#else
#include <unistd.h>
static ptrdiff_t read_at(int descriptor, uint8_t *to, ptrdiff_t size, int64_t at) {
    ptrdiff_t found;
    do found = pread(descriptor, to, (size_t)size, (off_t)at);
    while (found < 0 && errno == EINTR);
    return found;
}
#endif

#endif
