"""What rows are partitioned by, and the values in the name of a partition's folder. Pure.

A key is a column, or a transform of one as Iceberg has them: ``year(at)``, ``month(at)``, ``day(at)``, ``hour(at)``,
``bucket(16, id)``. The folders of a transform are named as Iceberg names them: ``at_day=2026-08-01``, ``id_bucket=7``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Self
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import SchemaError
from resilient_pq.lazy_dataclass import dataclass

#: What stands for null (Hive's ``hive.exec.default.partition.name``).
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
#: The transforms of times, and their units as NumPy has them.
UNITS: Final[dict[str, Any]] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_TRANSFORM: Final = re.compile(r"(?:(year|month|day|hour)s?|bucket)\((?:(\d{1,9}),\s*)?([^,()]+)\)")


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A column that rows are partitioned by, or a transform of it."""

    column: str  # its name
    transform: str = "identity"  # as Iceberg writes it: ``day``, ``bucket[16]``

    @classmethod
    def parse(cls, text: str) -> Self:
        """A key as a caller writes it."""
        found = _TRANSFORM.fullmatch(text)
        if found is None or bool(found[1]) == bool(found[2]):
            return cls(text)
        return cls(found[3].strip(), found[1] or f"bucket[{int(found[2])}]")

    def __str__(self) -> str:
        """As a caller may write it."""
        if self.num_buckets:
            return f"bucket({self.num_buckets}, {self.column})"
        return self.column if self.is_column else f"{self.transform}({self.column})"

    @property
    def num_buckets(self) -> int:
        """The buckets that there are; 0 of other transforms."""
        return int(self.transform[7:-1]) if self.transform.startswith("bucket[") else 0

    @property
    def is_column(self) -> bool:
        """Whether it is the column itself."""
        return self.transform == "identity"

    @property
    def name(self) -> str:
        """What its folders are called."""
        return self.column if self.is_column else f"{self.column}_{self.transform.partition('[')[0]}"

    def texts(self, values: NDArray[Any]) -> list[str]:
        """The values of a transform, as folders have them."""
        if self.num_buckets:
            return [str(value) for value in values.tolist()]
        return [str(each).replace("T", "-") for each in values.astype(f"M8[{UNITS[self.transform]}]")]

    def value(self, text: str) -> int:
        """The value of a transform, or a date, that a folder has, as Iceberg counts it: days since 1970."""
        if self.num_buckets:
            return int(text)
        unit = UNITS.get(self.transform, "D")
        time = f"{text[:10]}T{text[11:]}" if self.transform == "hour" else text
        return int(np.datetime64(time, unit).astype(np.int64))


def words(keys: Sequence[PartitionKey]) -> str:
    """Keys for people."""
    return ", ".join(map(str, keys)) or "nothing"


def partition_text(folder: str, key: str) -> str | None:
    """The text of one value in the name of a folder; None for null."""
    found = partition_values(folder)
    if key not in found:
        raise SchemaError(f"the file lies in {folder or 'no folder'}, which does not name {key!r}, as its table does")
    return found[key]


def partition_values(folder: str) -> dict[str, str | None]:
    """The text of each value in the name of a folder, ``day=2026-08-01/country=FR``; None for null."""
    pairs = (segment.partition("=") for segment in re.split(r"[/\\]", folder))
    return {name: None if text == NULL else unquote(text) for name, equals, text in pairs if name and equals}
