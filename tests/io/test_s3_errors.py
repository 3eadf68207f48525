"""What S3 and its client say, in our words."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    ReadTimeoutError,
    SSLError,
)

from resilient_pq.errors import (
    AccessDeniedError,
    BucketNotFoundError,
    NotFoundError,
    PreconditionError,
    RangeError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
)
from resilient_pq.io.s3.s3_responses import code_of, from_s3_error, refuses_parameter, status_of


def said(code: str, status: int, message: str = "said so", **headers: str) -> ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return ClientError(answer, "Operation")


def ours(error: BaseException) -> Any:
    return from_s3_error(error, bucket="my-bucket", url="s3://my-bucket/a", doing="get_object")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("NoSuchKey", 404, NotFoundError),
        ("404", 404, NotFoundError),
        ("NoSuchBucket", 404, BucketNotFoundError),
        ("NoSuchUpload", 404, NotFoundError),
        ("AccessDenied", 403, AccessDeniedError),
        ("403", 403, AccessDeniedError),
        ("ExpiredToken", 400, AccessDeniedError),
        ("InvalidAccessKeyId", 403, AccessDeniedError),
        ("RequestTimeTooSkewed", 403, AccessDeniedError),
        ("PreconditionFailed", 412, PreconditionError),
        ("412", 412, PreconditionError),
        ("InvalidRange", 416, RangeError),
        ("SlowDown", 503, ThrottledError),
        ("SlowDown", 400, ThrottledError),
        ("ServiceUnavailable", 503, ThrottledError),
        ("429", 429, ThrottledError),
        ("InternalError", 500, TransientError),
        ("InternalError", 200, TransientError),
        ("502", 502, TransientError),
        ("RequestTimeout", 400, TransientError),
        ("BadDigest", 400, TransientError),
        ("ConditionalRequestConflict", 409, TransientError),
        ("NotImplemented", 501, UnsupportedError),
        ("MethodNotAllowed", 405, UnsupportedError),
        ("PermanentRedirect", 301, StoreError),
        ("AuthorizationHeaderMalformed", 400, StoreError),
        ("EntityTooSmall", 400, StoreError),
        ("InvalidPart", 400, StoreError),
        ("", 400, StoreError),
    ],
)
def test_answers(code: str, status: int, kind: type[StoreError]) -> None:
    error = ours(said(code, status))
    assert type(error) is kind
    assert "my-bucket" in error.message
    assert error.where.key == "s3://my-bucket/a"
    assert getattr(error, "retryable", False) == issubclass(kind, TransientError | ThrottledError)


def test_what_answers_a_listing_and_is_no_s3() -> None:
    """A proxy, or a website: no object was asked for, so that none is missing."""
    place: dict[str, Any] = {"bucket": "my-bucket", "url": "s3://my-bucket/", "doing": "list_multipart_uploads"}
    error = from_s3_error(said("404", 404), **place)
    assert isinstance(error, NotFoundError) and "no such object" not in error.message
    assert error.hint is not None and "endpoint_url" in error.hint
    error = from_s3_error(said("NoSuchBucket", 404), **place)
    assert isinstance(error, NotFoundError) and error.message == "no such bucket: my-bucket"


def test_answers_behind_the_errors_of_s3fs() -> None:
    """s3fs raises an OSError from the answer, and keeps little of it."""
    error = PermissionError("Access Denied")
    error.__cause__ = said("InvalidAccessKeyId", 403)
    assert "access key" in ours(error).hint


def test_what_an_answer_tells_is_passed_on() -> None:
    assert ours(said("SlowDown", 503, **{"retry-after": "3"})).retry_after == 3
    assert ours(said("EntityTooSmall", 400)).message == "get_object in bucket my-bucket: said so (EntityTooSmall)"
    assert ours(said("PermanentRedirect", 301)).hint.startswith("the bucket is in another region")
    assert ours(said("", 400, message="")).message == "get_object in bucket my-bucket: status 400 (400)"


@pytest.mark.parametrize(
    ("code", "status", "undecided"),
    [
        ("InternalError", 500, True),
        ("InternalError", 200, True),
        ("504", 504, True),
        ("408", 408, True),
        ("SlowDown", 503, False),
        ("BadDigest", 400, False),
        ("RequestTimeout", 400, False),
        ("ConditionalRequestConflict", 409, False),
        ("AccessDenied", 403, False),
    ],
)
def test_what_may_be_carried_out_yet(code: str, status: int, undecided: bool) -> None:
    assert ours(said(code, status)).undecided == undecided
    assert ours(ReadTimeoutError(endpoint_url="http://x")).undecided


def test_the_answer_is_found_behind_an_error() -> None:
    error = ours(said("NotImplemented", 501))
    error.__cause__ = said("NotImplemented", 501)
    assert (code_of(error), status_of(error), refuses_parameter(error)) == ("NotImplemented", 501, True)
    silent = TimeoutError()
    assert (code_of(silent), status_of(silent), refuses_parameter(silent)) == ("", 0, False)
    for code in ("InvalidRequest", "InvalidPart", "BadDigest"):
        assert not refuses_parameter(said(code, 400)), "of a completion, these say that it is wrong"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoCredentialsError(), AccessDeniedError),
        (NoRegionError(), StoreError),
        (ParamValidationError(report="bad name"), StoreError),
        (SSLError(endpoint_url="https://x", error="certificate"), StoreError),
        (EndpointConnectionError(endpoint_url="http://x"), TransientError),
        (ReadTimeoutError(endpoint_url="http://x"), TransientError),
        (aiohttp.ClientPayloadError("cut"), TransientError),
        (TimeoutError(), TransientError),
        (ConnectionResetError("reset"), TransientError),
        (OSError("something else"), StoreError),
        (ValueError("Invalid endpoint: localhost"), StoreError),
    ],
)
def test_errors_of_the_client(error: Exception, kind: type[StoreError]) -> None:
    assert type(ours(error)) is kind


def test_bugs_are_not_dressed_up() -> None:
    for bug in (ValueError("ours"), TypeError("ours"), KeyError("ours")):
        assert ours(bug) is None
