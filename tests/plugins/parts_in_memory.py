"""Stores whose files are uploads in parts, as those of S3 are."""

from __future__ import annotations

from typing import Any

from resilient_pq.io import MemoryStore, MultipartSink, ObjectSink, SinkOptions
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS


class InParts:
    """Has a store take files in parts."""

    async def create(self: Any, key: str, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> ObjectSink:
        return MultipartSink(self, key, options)


class PartStore(InParts, MemoryStore):
    """Memory that takes files in parts."""
