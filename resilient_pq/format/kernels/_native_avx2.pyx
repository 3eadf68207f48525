# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernels that are faster when compiled for processors with AVX2, BMI and BMI2; the others are those of `_native`.

Compilers make wider loops of the plain ones then, and `native/headers/bits.h` has one of its own.
`resilient_pq.format.kernels` takes this module where the processor runs it.
"""

include "native/declarations.pxi"
include "native/arrays.pxi"
include "native/rle.pxi"
include "native/gather.pxi"
include "native/nulls.pxi"
include "native/numbers.pxi"
include "native/pages.pxi"
include "native/delta.pxi"

from resilient_pq.format.kernels._native import (
    StructReader,
    bloom_contains,
    bloom_insert,
    byte_array_gather,
    byte_array_gather_lengths,
    byte_array_hashes,
    byte_array_join,
    byte_array_lengths,
    byte_array_min_max,
    byte_array_split,
    chosen_size,
    compact,
    compact_offsets,
    copy_chosen_byte_arrays,
    decimals_narrow,
    decimals_widen,
    dictionary_build,
    dictionary_build_byte_arrays,
    distinct_in_runs,
    distinct_in_runs_byte_arrays,
    entries_in_order,
    find_all,
    join_prefixes,
    join_streams,
    level_counts,
    list_offsets,
    lists_in_order,
    optional_in_order,
    page_headers,
    plain_byte_arrays,
    plain_views,
    row_entries,
    row_hashes,
    row_min_max,
    shared_prefixes,
    shred_optional,
    shred_repeated,
    slot_validity,
    split_streams,
    utf8_valid,
    views_join,
    views_of,
)
