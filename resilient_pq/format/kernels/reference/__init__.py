"""What every kernel means, in NumPy and plain Python: the definition that the compiled ones are held to.

All are leaf functions: buffers and arrays in, arrays out, no I/O. Three rules hold for all of them and are
not repeated below:

* Bytes from outside are hostile. Whatever they hold, nothing outside a buffer is read or written: the answer
  is right, or `EncodingError` (`ThriftError` from a `StructReader`) is raised. What an output array holds after
  an error is not defined.
* A mistake of the caller, an array of the wrong type, shape or memory layout, is a `TypeError` or
  `ValueError`. Arrays are C-contiguous and native in byte order.
* The compiled kernels release the GIL. Calls may run in as many threads as one likes, as long as nobody
  changes an array that another call reads or writes.

May import NumPy, xxhash and the errors, nothing else of ours.
"""

from __future__ import annotations

from resilient_pq.format.kernels.reference.bloom import bloom_contains as bloom_contains
from resilient_pq.format.kernels.reference.bloom import bloom_insert as bloom_insert
from resilient_pq.format.kernels.reference.bloom import byte_array_hashes as byte_array_hashes
from resilient_pq.format.kernels.reference.bloom import row_hashes as row_hashes
from resilient_pq.format.kernels.reference.byte_array_runs import chosen_size as chosen_size
from resilient_pq.format.kernels.reference.byte_array_runs import copy_chosen_byte_arrays as copy_chosen_byte_arrays
from resilient_pq.format.kernels.reference.byte_array_runs import plain_byte_arrays as plain_byte_arrays
from resilient_pq.format.kernels.reference.byte_array_runs import plain_views as plain_views
from resilient_pq.format.kernels.reference.byte_arrays import byte_array_join as byte_array_join
from resilient_pq.format.kernels.reference.byte_arrays import byte_array_lengths as byte_array_lengths
from resilient_pq.format.kernels.reference.byte_arrays import byte_array_min_max as byte_array_min_max
from resilient_pq.format.kernels.reference.byte_arrays import row_min_max as row_min_max
from resilient_pq.format.kernels.reference.byte_arrays import utf8_valid as utf8_valid
from resilient_pq.format.kernels.reference.decimals import decimals_narrow as decimals_narrow
from resilient_pq.format.kernels.reference.decimals import decimals_widen as decimals_widen
from resilient_pq.format.kernels.reference.delta import delta_binary_decode as delta_binary_decode
from resilient_pq.format.kernels.reference.delta import delta_binary_encode as delta_binary_encode
from resilient_pq.format.kernels.reference.dictionary import dictionary_build as dictionary_build
from resilient_pq.format.kernels.reference.dictionary import (
    dictionary_build_byte_arrays as dictionary_build_byte_arrays,
)
from resilient_pq.format.kernels.reference.dictionary import distinct_in_runs as distinct_in_runs
from resilient_pq.format.kernels.reference.dictionary import (
    distinct_in_runs_byte_arrays as distinct_in_runs_byte_arrays,
)
from resilient_pq.format.kernels.reference.dictionary import gather as gather
from resilient_pq.format.kernels.reference.dictionary import mark_used as mark_used
from resilient_pq.format.kernels.reference.gf256 import gf256_accumulate as gf256_accumulate
from resilient_pq.format.kernels.reference.nesting import level_counts as level_counts
from resilient_pq.format.kernels.reference.nesting import list_offsets as list_offsets
from resilient_pq.format.kernels.reference.nesting import row_entries as row_entries
from resilient_pq.format.kernels.reference.nesting import slot_validity as slot_validity
from resilient_pq.format.kernels.reference.nulls import spread as spread
from resilient_pq.format.kernels.reference.numbers import number_min_max as number_min_max
from resilient_pq.format.kernels.reference.page_headers import chunk_numbers as chunk_numbers
from resilient_pq.format.kernels.reference.page_headers import page_headers as page_headers
from resilient_pq.format.kernels.reference.pages import ChunkBatch as ChunkBatch
from resilient_pq.format.kernels.reference.pages import dictionary_pages as dictionary_pages
from resilient_pq.format.kernels.reference.pages import page_levels as page_levels
from resilient_pq.format.kernels.reference.pages import plain_pages as plain_pages
from resilient_pq.format.kernels.reference.prefixes import join_prefixes as join_prefixes
from resilient_pq.format.kernels.reference.prefixes import shared_prefixes as shared_prefixes
from resilient_pq.format.kernels.reference.rle import rle_decode as rle_decode
from resilient_pq.format.kernels.reference.rle import rle_encode as rle_encode
from resilient_pq.format.kernels.reference.rle import unpack_bits_msb as unpack_bits_msb
from resilient_pq.format.kernels.reference.search import find_all as find_all
from resilient_pq.format.kernels.reference.shred import compact as compact
from resilient_pq.format.kernels.reference.shred import compact_offsets as compact_offsets
from resilient_pq.format.kernels.reference.shred import entries_in_order as entries_in_order
from resilient_pq.format.kernels.reference.shred import lists_in_order as lists_in_order
from resilient_pq.format.kernels.reference.shred import optional_in_order as optional_in_order
from resilient_pq.format.kernels.reference.shred import shred_optional as shred_optional
from resilient_pq.format.kernels.reference.shred import shred_repeated as shred_repeated
from resilient_pq.format.kernels.reference.streams import join_streams as join_streams
from resilient_pq.format.kernels.reference.streams import split_streams as split_streams
from resilient_pq.format.kernels.reference.thrift import StructReader as StructReader
from resilient_pq.format.kernels.reference.views import views_join as views_join
from resilient_pq.format.kernels.reference.views import views_of as views_of
