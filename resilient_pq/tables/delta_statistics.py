"""The statistics of a file as Delta has them: JSON, of the columns whose values its readers compare. Pure."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Sequence
from typing import Any

from resilient_pq.format.indexes.trusted_bounds import ColumnStatistics, chunk_statistics
from resilient_pq.reader.contents import Contents


def statistics_json(contents: Contents) -> str:
    """The rows of a file, and of its columns the bounds and the nulls, as far as all row groups tell them."""
    found: dict[str, Any] = {"numRecords": contents.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf in contents.schema.leaves:
        chunks = [group.columns[leaf.ordinal].meta_data for group in contents.metadata.row_groups]
        if leaf.max_repetition_level or None in chunks:
            continue
        parts = [chunk_statistics(contents.metadata, leaf, chunk) for chunk in chunks if chunk is not None]
        low, high = _bounds(parts)
        for name, value in (("minValues", low), ("maxValues", high), ("nullCount", _null_count(parts))):
            if value is not None:
                _put(found[name], leaf.path, value)
    return json.dumps(found, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _null_count(parts: Sequence[ColumnStatistics]) -> int | None:
    counts = [part.null_count for part in parts if part.null_count is not None]
    return sum(counts) if len(counts) == len(parts) else None


def _bounds(parts: Sequence[ColumnStatistics]) -> tuple[Any, Any]:
    valued = [part for part in parts if not part.all_null]
    if not valued or any(part.low is None or part.high is None for part in valued):
        return None, None
    lowest, highest = min(valued, key=lambda part: part.low), max(valued, key=lambda part: part.high)
    return _in_json(lowest.min), _in_json(highest.max)


def _in_json(value: Any) -> Any:
    """A bound as JSON has it; None for what readers of Delta do not compare, or not exactly."""
    match value:
        case bool():
            return None
        case int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case decimal.Decimal():
            return float(value) if decimal.Decimal(repr(float(value))) == value else None
        case dt.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return f"{text}Z" if value.tzinfo is not None else text
        case dt.date():
            return value.isoformat()
    return None


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
