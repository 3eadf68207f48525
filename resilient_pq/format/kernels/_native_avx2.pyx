# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels that are faster when compiled for processors with AVX2, BMI and BMI2.

Compilers make wider loops of the plain ones then, and `native/headers/bits.h` has one of its own.
`resilient_pq.format.kernels` takes these before those of `_native` where the processor runs them.
"""

include "native/declarations.pxi"
include "native/arrays.pxi"
include "native/rle.pxi"
include "native/gather.pxi"
include "native/nulls.pxi"
include "native/numbers.pxi"
include "native/pages.pxi"
include "native/delta.pxi"
include "native/gf256.pxi"
include "native/byte_arrays.pxi"
include "native/thrift.pxi"
include "native/page_headers.pxi"
include "native/streams.pxi"
include "native/views.pxi"
include "native/byte_array_runs.pxi"
include "native/arrow_arrays.pxi"
include "native/chunk_batch.pxi"
include "native/page_bodies.pxi"
