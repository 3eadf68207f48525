"""AWS Signature Version 4 of requests for objects on S3. Pure: no clock, no credentials of its own.

As "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API Reference has it, for requests without a
query: S3 signs a path as it is sent, encoded once and not normalised.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache


def authorization(
    method: str, path: str, headers: Mapping[str, str], *, when: datetime, region: str, access_key: str, secret_key: str
) -> str:
    """The Authorization header."""
    names = sorted(headers)
    signed = ";".join(names)
    rows = [method, path, "", *(f"{name}:{' '.join(headers[name].split())}" for name in names), "", signed]
    canonical = "\n".join([*rows, headers["x-amz-content-sha256"]])
    day = when.strftime("%Y%m%d")
    scope = f"{day}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    to_sign = f"AWS4-HMAC-SHA256\n{amz_date(when)}\n{scope}\n{digest}"
    signature = _hmac(_signing_key(secret_key, day, region), to_sign).hex()
    return f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"


def amz_date(when: datetime) -> str:
    """The `x-amz-date` header of a time in UTC."""
    return when.strftime("%Y%m%dT%H%M%SZ")


@lru_cache(maxsize=16)
def _signing_key(secret_key: str, day: str, region: str) -> bytes:
    key = _hmac(f"AWS4{secret_key}".encode(), day)
    for part in (region, "s3", "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), hashlib.sha256)
