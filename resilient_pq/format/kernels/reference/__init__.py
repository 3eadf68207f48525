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

from resilient_pq.format.kernels.reference.bloom import (
    bloom_contains,
    bloom_insert,
    byte_array_hashes,
    row_hashes,
)
from resilient_pq.format.kernels.reference.byte_array_runs import (
    chosen_size,
    copy_chosen_byte_arrays,
    plain_byte_arrays,
    plain_views,
)
from resilient_pq.format.kernels.reference.byte_arrays import (
    byte_array_join,
    byte_array_lengths,
    byte_array_min_max,
    row_min_max,
    utf8_valid,
)
from resilient_pq.format.kernels.reference.decimals import decimals_narrow, decimals_widen
from resilient_pq.format.kernels.reference.delta import delta_binary_decode, delta_binary_encode
from resilient_pq.format.kernels.reference.dictionary import (
    dictionary_build,
    dictionary_build_byte_arrays,
    distinct_in_runs,
    distinct_in_runs_byte_arrays,
    gather,
    mark_used,
)
from resilient_pq.format.kernels.reference.kept import KeptStructs
from resilient_pq.format.kernels.reference.nesting import (
    level_counts,
    list_offsets,
    row_entries,
    slot_validity,
)
from resilient_pq.format.kernels.reference.nulls import spread
from resilient_pq.format.kernels.reference.numbers import number_min_max
from resilient_pq.format.kernels.reference.page_headers import page_headers
from resilient_pq.format.kernels.reference.pages import (
    dictionary_pages,
    page_levels,
    plain_pages,
)
from resilient_pq.format.kernels.reference.prefixes import join_prefixes, shared_prefixes
from resilient_pq.format.kernels.reference.rle import rle_decode, rle_encode, unpack_bits_msb
from resilient_pq.format.kernels.reference.search import find_all
from resilient_pq.format.kernels.reference.shred import (
    compact,
    compact_offsets,
    entries_in_order,
    lists_in_order,
    optional_in_order,
    shred_optional,
    shred_repeated,
)
from resilient_pq.format.kernels.reference.streams import join_streams, split_streams
from resilient_pq.format.kernels.reference.thrift import StructField, StructReader
from resilient_pq.format.kernels.reference.views import views_join, views_of

__all__ = [
    "KeptStructs",
    "StructField",
    "StructReader",
    "bloom_contains",
    "bloom_insert",
    "byte_array_hashes",
    "byte_array_join",
    "byte_array_lengths",
    "byte_array_min_max",
    "chosen_size",
    "compact",
    "compact_offsets",
    "copy_chosen_byte_arrays",
    "decimals_narrow",
    "decimals_widen",
    "delta_binary_decode",
    "delta_binary_encode",
    "dictionary_build",
    "dictionary_build_byte_arrays",
    "dictionary_pages",
    "distinct_in_runs",
    "distinct_in_runs_byte_arrays",
    "entries_in_order",
    "find_all",
    "gather",
    "join_prefixes",
    "join_streams",
    "level_counts",
    "list_offsets",
    "lists_in_order",
    "mark_used",
    "number_min_max",
    "optional_in_order",
    "page_headers",
    "page_levels",
    "plain_byte_arrays",
    "plain_pages",
    "plain_views",
    "rle_decode",
    "rle_encode",
    "row_entries",
    "row_hashes",
    "row_min_max",
    "shared_prefixes",
    "shred_optional",
    "shred_repeated",
    "slot_validity",
    "split_streams",
    "spread",
    "unpack_bits_msb",
    "utf8_valid",
    "views_join",
    "views_of",
]
