"""The loops that time is spent in, compiled where possible and in NumPy everywhere else.

`reference` defines every kernel; `_native` may replace any of them with a compiled one of the same meaning, and
`_native_avx2` those that are faster when compiled for processors with AVX2.
Which are used is decided once, at import, by the environment variable ``RESILIENT_PQ_KERNELS``:

=============  ===============================================================================
``auto``       the compiled ones where they were built, else the reference (the default)
``native``     the compiled ones; `ImportError` where they are missing
``baseline``   as ``native``, but those for every processor, also where this one has AVX2
``reference``  the reference
=============  ===============================================================================

May import the errors and NumPy, nothing else of ours.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeVar

from resilient_pq.format.kernels import reference
from resilient_pq.format.kernels.reference import KeptStructs as KeptStructs
from resilient_pq.format.kernels.reference import StructField as StructField

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


_NOT_COMPILED: Final = (
    "resilient_pq has no compiled kernels, so that reading and writing take many times as long: install it again where"
    " a C compiler is at hand, or set RESILIENT_PQ_KERNELS=reference to use NumPy without this warning"
)


def _choose(wanted: str) -> list[ModuleType]:
    """The compiled modules that the environment asks for; a kernel is taken from the first that has it."""
    if wanted not in ("auto", "native", "baseline", "reference"):
        raise ValueError(f"RESILIENT_PQ_KERNELS is {wanted!r}, not auto, native, baseline or reference")
    if wanted == "reference":
        return []
    try:
        chosen = [import_module(f"{__name__}._native")]
    except ImportError as error:
        if wanted == "auto":
            # An import that a signal interrupts fails, too.
            if isinstance(error, ModuleNotFoundError) and error.name == f"{__name__}._native":
                warnings.warn(_NOT_COMPILED, RuntimeWarning, stacklevel=2)
            return []
        raise ImportError(
            f"RESILIENT_PQ_KERNELS={wanted}, but the compiled kernels cannot be imported: install resilient_pq"
            f" where a C compiler is at hand, or unset the variable ({error})"
        ) from error
    if wanted != "baseline" and chosen[0]._runs_avx2():
        with suppress(ImportError):  # a compiler that knows no AVX2
            chosen.insert(0, import_module(f"{__name__}._native_avx2"))
    return chosen


_chosen = _choose(os.environ.get("RESILIENT_PQ_KERNELS", "auto"))


def _kernel(definition: _Kernel) -> _Kernel:
    """The compiled version of a kernel, or its definition where there is none."""
    compiled: Any = (getattr(module, definition.__name__, None) for module in _chosen)
    return next(filter(None, compiled), definition)


active: Final[str] = "native" if _chosen else "reference"
"""Which kernels are used, ``native`` or ``reference``."""


def described() -> str:
    """The kernels that are used, for people: ``native, avx2``, ``native`` or ``numpy``."""
    return ", ".join(["native", *["avx2"] * (len(_chosen) > 1)]) if _chosen else "numpy"


#: What describes chunks of one page in Thrift, and puts places of indexes into what is described. None without
#: compiled kernels: then the structs of `format.file_metadata` do it, in the same bytes.
FlatChunk: Any = next((module.FlatChunk for module in _chosen if hasattr(module, "FlatChunk")), None)

ChunkBatch = _kernel(reference.ChunkBatch)
StructReader = _kernel(reference.StructReader)
bloom_contains = _kernel(reference.bloom_contains)
bloom_insert = _kernel(reference.bloom_insert)
byte_array_hashes = _kernel(reference.byte_array_hashes)
byte_array_join = _kernel(reference.byte_array_join)
byte_array_lengths = _kernel(reference.byte_array_lengths)
byte_array_min_max = _kernel(reference.byte_array_min_max)
chosen_size = _kernel(reference.chosen_size)
compact = _kernel(reference.compact)
compact_offsets = _kernel(reference.compact_offsets)
copy_chosen_byte_arrays = _kernel(reference.copy_chosen_byte_arrays)
decimals_narrow = _kernel(reference.decimals_narrow)
decimals_widen = _kernel(reference.decimals_widen)
delta_binary_decode = _kernel(reference.delta_binary_decode)
delta_binary_encode = _kernel(reference.delta_binary_encode)
dictionary_build = _kernel(reference.dictionary_build)
dictionary_build_byte_arrays = _kernel(reference.dictionary_build_byte_arrays)
dictionary_pages = _kernel(reference.dictionary_pages)
distinct_in_runs = _kernel(reference.distinct_in_runs)
distinct_in_runs_byte_arrays = _kernel(reference.distinct_in_runs_byte_arrays)
entries_in_order = _kernel(reference.entries_in_order)
find_all = _kernel(reference.find_all)
gather = _kernel(reference.gather)
gf256_accumulate = _kernel(reference.gf256_accumulate)
join_prefixes = _kernel(reference.join_prefixes)
join_streams = _kernel(reference.join_streams)
level_counts = _kernel(reference.level_counts)
list_offsets = _kernel(reference.list_offsets)
lists_in_order = _kernel(reference.lists_in_order)
mark_used = _kernel(reference.mark_used)
number_min_max = _kernel(reference.number_min_max)
optional_in_order = _kernel(reference.optional_in_order)
page_headers = _kernel(reference.page_headers)
page_levels = _kernel(reference.page_levels)
plain_byte_arrays = _kernel(reference.plain_byte_arrays)
plain_pages = _kernel(reference.plain_pages)
plain_views = _kernel(reference.plain_views)
rle_decode = _kernel(reference.rle_decode)
rle_encode = _kernel(reference.rle_encode)
row_entries = _kernel(reference.row_entries)
row_hashes = _kernel(reference.row_hashes)
row_min_max = _kernel(reference.row_min_max)
shared_prefixes = _kernel(reference.shared_prefixes)
shred_optional = _kernel(reference.shred_optional)
shred_repeated = _kernel(reference.shred_repeated)
slot_validity = _kernel(reference.slot_validity)
split_streams = _kernel(reference.split_streams)
spread = _kernel(reference.spread)
unpack_bits_msb = _kernel(reference.unpack_bits_msb)
utf8_valid = _kernel(reference.utf8_valid)
views_join = _kernel(reference.views_join)
views_of = _kernel(reference.views_of)
