# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels that are faster when compiled for processors with AVX2, BMI, BMI2 and PCLMUL.

Compilers make wider loops of the plain ones then, and `native/headers/bits.h` has one of its own.
`resilient_pq.format.kernels` takes these before those of `_native` where the processor runs them.
"""

include "native/declarations.pxi"
include "native/arrays.pxi"
include "native/encodings/rle.pxi"
include "native/encodings/gather.pxi"
include "native/levels/nulls.pxi"
include "native/statistics/numbers.pxi"
include "native/read/pages.pxi"
include "native/encodings/delta.pxi"
include "native/gf256.pxi"
include "native/encodings/byte_arrays.pxi"
include "native/metadata/thrift.pxi"
include "native/metadata/page_headers.pxi"
include "native/encodings/streams.pxi"
include "native/arrow/views.pxi"
include "native/read/byte_array_runs.pxi"
include "native/arrow/arrow_arrays.pxi"
include "native/read/chunk_batch.pxi"
include "native/read/page_bodies.pxi"
