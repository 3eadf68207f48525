"""CRC32 as Parquet, gzip and S3 compute it (polynomial 0x04C11DB7, reflected), by the fastest code at hand."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any


def _fastest() -> Callable[[Any, int], int]:
    try:
        from isal import isal_zlib  # noqa: PLC0415 (has no wheel on some platforms)
    except ImportError:
        return zlib.crc32
    found: Callable[[Any, int], int] = isal_zlib.crc32
    return found


_crc32 = _fastest()


def crc32(data: Any, start: int = 0) -> int:
    """Unsigned CRC32 of `data`, going on from the CRC32 `start` of what came before it."""
    return _crc32(data, start)


def signed(crc: int) -> int:
    """The CRC32 as Thrift stores it: a signed 32-bit integer."""
    return crc - (1 << 32) if crc >= 1 << 31 else crc


def unsigned(crc: int) -> int:
    """The CRC32 as it is compared, from the signed integer that Thrift stores."""
    return crc & 0xFFFFFFFF
