"""Tables of each format, written by sinks and read by others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import resilient_pq as rpq


@dataclass(frozen=True)
class Place:
    """A table, and the folder of a data set whose files are committed to it."""

    folder: Path
    make: Callable[..., Any]
    read: Callable[[Any], list[int]]

    @property
    def data(self) -> str:
        return str(self.folder / "events")

    def settings(self, **given: Any) -> Any:
        return self.make(self, **given)

    def ids(self) -> list[int]:
        """The column `id` of every row of the table, in order, as its own library reads it."""
        return sorted(self.read(self))


def iceberg(place: Place, **given: Any) -> rpq.IcebergTable:
    return rpq.IcebergTable("web.events", **{"catalog": place.folder, **given})


def loaded(place: Place) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", type="sql", uri=f"sqlite:///{place.folder / 'catalog.db'}").load_table("web.events")


def read_iceberg(place: Place) -> list[int]:
    found: list[int] = loaded(place).scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()
    return found


def delta(place: Place, **given: Any) -> rpq.DeltaTable:
    return rpq.DeltaTable(place.folder, **given)


def read_delta(place: Place) -> list[int]:
    import deltalake

    found: list[int] = deltalake.DeltaTable(place.folder).to_pyarrow_table(columns=["id"])["id"].to_pylist()
    return found


KINDS = {"iceberg": (iceberg, read_iceberg), "delta": (delta, read_delta)}
