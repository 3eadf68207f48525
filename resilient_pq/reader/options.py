"""How files are read, checked once and passed down whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from resilient_pq.errors import SchemaError
from resilient_pq.io import FetchOptions

KiB = 1024


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read.

    Attributes:
        tail_bytes: Bytes asked for from the end of the object when it is opened; a longer footer costs one
            more request.
        fetch: How ranges are merged, and how many requests and bytes may be under way.
        max_threads: Column chunks decoded at one time; None is the number of processors.
        coerce_int96_timestamp_unit: The unit of time stamps that INT96 columns become, "us", "ms" or "s":
            values are cut to whole ones of it. None is nanoseconds, and microseconds for columns with a value
            outside the years 1677 to 2262, which is all that nanoseconds reach; with `File.batches` that may
            differ from one row group to the next.
    """

    tail_bytes: int = 256 * KiB
    fetch: FetchOptions = field(default_factory=FetchOptions)
    max_threads: int | None = None
    coerce_int96_timestamp_unit: Literal["us", "ms", "s"] | None = None

    def __post_init__(self) -> None:
        """Check what would only show when a file is read.

        Raises:
            SchemaError: A setting is out of range.
        """
        threads: object = self.max_threads
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise SchemaError(f"max_threads is {threads!r}; it is a whole number, at least 1")
        unit: str | None = self.coerce_int96_timestamp_unit
        if unit not in (None, "us", "ms", "s"):
            raise SchemaError(
                f'coerce_int96_timestamp_unit is {unit!r}; it must be "us", "ms", "s" or None',
                hint="leave it out for nanoseconds" if unit == "ns" else None,
            )
