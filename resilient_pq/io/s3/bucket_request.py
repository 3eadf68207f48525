"""What all GETs from one bucket have in common, and how each is signed (AWS Signature Version 4). Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, urlsplit

from resilient_pq.lazy_dataclass import dataclass


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


Credentials = tuple[str, str, str | None]  # Access key, secret key and token


@dataclass(slots=True)
class BucketRequest:
    """What all GETs from one bucket have in common."""

    base: str  # The URL, up to the key
    host: str  # The Host header that belongs to it
    path: str  # The path in it
    headers: dict[str, str]  # Those that are the same, by their names in lower case
    signed: frozenset[str] | None  # The names of those that are signed; None where nothing is
    region: str  # That they are signed for
    proven: bool = False  # One was granted

    def get(self, parameters: Mapping[str, Any], credentials: Credentials | None, when: datetime) -> SimpleNamespace:
        """The request for an object, as sessions of aiobotocore take it; signed where there are credentials."""
        encoded = encoded_key(parameters["Key"])
        fresh = {"range": parameters["Range"]}
        if "IfMatch" in parameters:
            fresh["if-match"] = parameters["IfMatch"]
        if self.signed is not None and credentials is not None:
            access_key, secret_key, token = credentials
            fresh["x-amz-date"] = amz_date(when)
            if token:
                fresh["x-amz-security-token"] = token
            fresh["authorization"] = authorization(
                "GET",
                self.path + encoded,
                {"host": self.host, **fresh, **{name: self.headers[name] for name in self.signed}},
                when=when,
                region=self.region,
                access_key=access_key,
                secret_key=secret_key,
            )
        headers = {**self.headers, **fresh}
        return SimpleNamespace(method="GET", url=self.base + encoded, headers=headers, body=None, stream_output=True)


def encoded_key(key: str) -> str:
    """A key as it stands in a URL."""
    return quote(key, safe="/~")


def host_of(url: str) -> str:
    """The Host header as it is sent and signed: in lower case, without a port that goes without saying."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
    return host if parts.port in (None, {"http": 80, "https": 443}[parts.scheme]) else f"{host}:{parts.port}"
