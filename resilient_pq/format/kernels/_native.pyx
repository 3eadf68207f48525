# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The kernels of `reference`, compiled: same names, same arguments, same answers, same errors.

What each one does is written there. Cython's own bounds checks are off, so everything that is read from a
buffer is checked here against the buffer's end before it is used. The loops run without the GIL. Only for
little-endian machines: elsewhere the import fails and the reference is used.

One module, in one folder per subject in `native/`. `_native_avx2.pyx` compiles some of them once more.
"""

include "native/declarations.pxi"
include "native/arrays.pxi"
include "native/encodings/rle.pxi"
include "native/encodings/gather.pxi"
include "native/levels/nulls.pxi"
include "native/statistics/numbers.pxi"
include "native/read/pages.pxi"
include "native/encodings/delta.pxi"
include "native/encodings/byte_arrays.pxi"
include "native/encodings/dictionary.pxi"
include "native/encodings/close_numbers.pxi"
include "native/statistics/distinct.pxi"
include "native/levels/levels.pxi"
include "native/metadata/thrift.pxi"
include "native/metadata/thrift_structs.pxi"
include "native/metadata/page_headers.pxi"
include "native/write/flat_chunk.pxi"
include "native/metadata/chunk_numbers.pxi"
include "native/encodings/decimals.pxi"
include "native/statistics/bloom.pxi"
include "native/search.pxi"
include "native/encodings/streams.pxi"
include "native/arrow/views.pxi"
include "native/read/byte_array_runs.pxi"
include "native/gf256.pxi"
include "native/arrow/arrow_arrays.pxi"
include "native/arrow/arrow_schemas.pxi"
include "native/arrow/arrow_streams.pxi"
include "native/read/chunk_batch.pxi"
include "native/read/page_bodies.pxi"
include "native/write/flat_rows.pxi"
include "native/write/flat_writer.pxi"
include "native/metadata/many_columns.pxi"


def _runs_avx2():
    """Whether `_native_avx2`, which is compiled for AVX2, BMI, BMI2 and PCLMUL, runs on this machine."""
    return runs_avx2()
