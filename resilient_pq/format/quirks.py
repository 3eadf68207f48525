"""Deviations of known writers from the specification, by the writer's name in the file."""

from __future__ import annotations

import re
from functools import lru_cache

from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.version import MAKER

_MAX_HEADER = 100  # A dictionary page's header is smaller than this


@dataclass(frozen=True, slots=True)
class Quirks:
    """How a writer's files differ from the specification, or keep to more than it asks for."""

    zero_crc_is_none: bool = False  # it computes no page CRC32, and leaves 0 for it
    #: It begins every data page with a row, which the specification asks for only beside an OffsetIndex.
    row_aligned: bool = False
    #: It packs BIT_PACKED levels from the least significant bit on, not from the most significant.
    lsb_levels: bool = False
    uncounted_bytes: int = 0  # how many bytes of a chunk its size may lack: a dictionary page's header (PARQUET-816)

    @classmethod
    @lru_cache(maxsize=64)  # asked for each chunk of a file
    def of(cls, created_by: str | None) -> Quirks:
        """The quirks of a file by its footer's `created_by`."""
        name = (created_by or "").lower()
        return cls(
            zero_crc_is_none=name.startswith("parquet.jl"),
            row_aligned=name.startswith(MAKER),
            lsb_levels=name.startswith("impala"),  # IMPALA-3006
            uncounted_bytes=_MAX_HEADER if _is_old_parquet_mr(name) else 0,
        )


def _is_old_parquet_mr(name: str) -> bool:
    """Whether it is parquet-mr up to 1.2.8."""
    if not name.startswith("parquet-mr"):
        return False
    version = re.search(r"version (\d+)\.(\d+)\.(\d+)", name)
    return version is None or tuple(int(part) for part in version.groups()) <= (1, 2, 8)


NO_QUIRKS = Quirks()
