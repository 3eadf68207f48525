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
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from resilient_pq.format.kernels.structs import KeptStructs as KeptStructs
from resilient_pq.format.kernels.structs import StructField as StructField

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


active: Final[str] = "native" if _chosen else "reference"
"""Which kernels are used, ``native`` or ``reference``."""


def described() -> str:
    """The kernels that are used, for people: ``native, avx2``, ``native`` or ``numpy``."""
    return ", ".join(["native", *["avx2"] * (len(_chosen) > 1)]) if _chosen else "numpy"


def _compiled(name: str) -> Any:
    """A kernel that has no reference, as what it shortens works without; None where it is not compiled."""
    return next((getattr(module, name) for module in _chosen if hasattr(module, name)), None)


#: What describes chunks of one page in Thrift, and puts places of indexes into what is described. Without it the
#: structs of `format.file_metadata` do it, in the same bytes.
FlatChunk: Any = _compiled("FlatChunk")
records_like: Any = _compiled("records_like")  # The records before some of them
#: Bytes that Arrow schemas have in common which say the same, by the address of one, and how deep it may be nested.
schema_key: Any = _compiled("schema_key")
#: Rows and column chunks of all row groups of a footer, without objects for them.
row_group_sizes: Any = _compiled("row_group_sizes")
#: A stream of the Arrow C stream interface over arrays in chunks, of a schema, and how deep it may be nested.
batch_stream: Any = _compiled("batch_stream")
#: Rows of flat columns in Arrow's buffers, and what makes chunks of them: see `format.pages.flat_chunk`.
FlatRows: Any = _compiled("FlatRows")
FlatWriter: Any = _compiled("FlatWriter")
#: Many objects of a class at once, what many columns have in common by Thrift and by Arrow, and their Arrow schemas.
instances: Any = _compiled("instances")
alike_elements: Any = _compiled("alike_elements")
alike_fields: Any = _compiled("alike_fields")
LeafSchemas: Any = _compiled("LeafSchemas")

if TYPE_CHECKING:
    from resilient_pq.format.kernels import reference as reference
    from resilient_pq.format.kernels.reference import *
else:

    def __getattr__(name: str) -> Any:
        """The compiled version of a kernel, or its definition where there is none."""
        for module in _chosen:
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
        if name.startswith("__"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        reference = import_module(f"{__name__}.reference")
        return reference if name == "reference" else globals().setdefault(name, getattr(reference, name))
