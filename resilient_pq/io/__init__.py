"""Stores: named bytes with ranges, uploads and retries, on this machine, on S3, or wherever fsspec reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resilient_pq.io.local_store import LocalStore
from resilient_pq.io.object_sink import Buffer, Fencing, ObjectSink, SinkOptions, StoredState
from resilient_pq.io.protocols import Capabilities, GrowingStore, OpenObject, ReadStore, WriteStore
from resilient_pq.io.resolve import Stores, place_of, resolve, with_retry
from resilient_pq.io.stored_object import ListedObject, ObjectInfo, ObjectTail, bare_etag, folder_prefix, names_of
from resilient_pq.io.transfer.coalescing import MergeOptions
from resilient_pq.io.transfer.fetch import FetchOptions, ObjectRange, fetch, fetch_groups, fetch_places, merge_all
from resilient_pq.io.transfer.fetch_counters import FetchCounters, counting
from resilient_pq.io.transfer.retry import READING, WRITING, RetryPolicy
from resilient_pq.io.upload.epoch import FoundEpoch, LeaseTerms

if TYPE_CHECKING:
    from resilient_pq.io.fsspec_store import FsspecStore
    from resilient_pq.io.http_store import HttpStore
    from resilient_pq.io.memory_store import MemoryStore
    from resilient_pq.io.multipart_store import MIN_PART_BYTES, MultipartStore, Part, UploadInfo
    from resilient_pq.io.obstore_store import ObstoreStore
    from resilient_pq.io.s3.s3_store import S3Store
    from resilient_pq.io.upload.lease import Lease, find_epoch
    from resilient_pq.io.upload.multipart import MultipartSink

__all__ = [
    "MIN_PART_BYTES",
    "READING",
    "WRITING",
    "Buffer",
    "Capabilities",
    "Fencing",
    "FetchCounters",
    "FetchOptions",
    "FoundEpoch",
    "FsspecStore",
    "GrowingStore",
    "HttpStore",
    "Lease",
    "LeaseTerms",
    "ListedObject",
    "LocalStore",
    "MemoryStore",
    "MergeOptions",
    "MultipartSink",
    "MultipartStore",
    "ObjectInfo",
    "ObjectRange",
    "ObjectSink",
    "ObjectTail",
    "ObstoreStore",
    "OpenObject",
    "Part",
    "ReadStore",
    "RetryPolicy",
    "S3Store",
    "SinkOptions",
    "StoredState",
    "Stores",
    "UploadInfo",
    "WriteStore",
    "bare_etag",
    "counting",
    "fetch",
    "fetch_groups",
    "fetch_places",
    "find_epoch",
    "folder_prefix",
    "merge_all",
    "names_of",
    "place_of",
    "resolve",
    "with_retry",
]

#: What reading and writing files of this machine needs not, and the modules that have it.
_LAZY = {
    "FsspecStore": "fsspec_store",
    "HttpStore": "http_store",
    "Lease": "upload.lease",
    "MIN_PART_BYTES": "multipart_store",
    "MemoryStore": "memory_store",
    "MultipartSink": "upload.multipart",
    "MultipartStore": "multipart_store",
    "ObstoreStore": "obstore_store",
    "Part": "multipart_store",
    "S3Store": "s3.s3_store",
    "UploadInfo": "multipart_store",
    "find_epoch": "upload.lease",
}


def __getattr__(name: str) -> Any:
    """What is imported now, such as a store with its client."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
