# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernels of `reference`, compiled: same names, same arguments, same answers, same errors.

What each one does is written there. Cython's own bounds checks are off, so everything that is read from a
buffer is checked here against the buffer's end before it is used. The loops run without the GIL. Only for
little-endian machines: elsewhere the import fails and the reference is used.

One module, in one file per subject in `native/`. `_native_avx2.pyx` compiles some of them once more.
"""

include "native/declarations.pxi"
include "native/arrays.pxi"
include "native/rle.pxi"
include "native/gather.pxi"
include "native/nulls.pxi"
include "native/numbers.pxi"
include "native/pages.pxi"
include "native/delta.pxi"
include "native/byte_arrays.pxi"
include "native/dictionary.pxi"
include "native/close_numbers.pxi"
include "native/distinct.pxi"
include "native/levels.pxi"
include "native/thrift.pxi"
include "native/thrift_structs.pxi"
include "native/page_headers.pxi"
include "native/flat_chunk.pxi"
include "native/chunk_numbers.pxi"
include "native/decimals.pxi"
include "native/bloom.pxi"
include "native/search.pxi"
include "native/streams.pxi"
include "native/views.pxi"
include "native/byte_array_runs.pxi"
include "native/gf256.pxi"
include "native/arrow_arrays.pxi"
include "native/arrow_schemas.pxi"
include "native/arrow_streams.pxi"
include "native/chunk_batch.pxi"
include "native/page_bodies.pxi"
include "native/flat_rows.pxi"
include "native/flat_writer.pxi"
include "native/many_columns.pxi"
include "native/file_ranges.pxi"


def _runs_avx2():
    """Whether `_native_avx2`, which is compiled for AVX2, BMI and BMI2, runs on this machine."""
    return runs_avx2()
