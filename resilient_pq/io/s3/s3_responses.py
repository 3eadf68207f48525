"""Errors of S3 and of its client as errors of this package, by codes and statuses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

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
    Where,
)
from resilient_pq.io.location import scrubbed
from resilient_pq.io.transfer.retry import retry_after

# The same request may succeed later, though the status says that the client was wrong.
_TRANSIENT = frozenset(
    {
        "RequestTimeout",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "XAmzContentChecksumMismatch",
        "ConditionalRequestConflict",
        "OperationAborted",
    }
)
_THROTTLED = frozenset(
    {
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequests",
        "TooManyRequestsException",
        "ServiceUnavailable",
    }
)
# What the server may carry out still, though it said that it failed. Other refusals are definite: of a body
# with the wrong digest, or of one that came too slowly, nothing is kept.
_UNDECIDED = frozenset({408, 500, 502, 504})
# A header that the store does not know, or knows and does not want. Of a completion InvalidRequest and
# InvalidPart say more: a size or a checksum did not hold.
_UNKNOWN_PARAMETER = frozenset({"NotImplemented", "InvalidArgument", "MalformedXML", "UnsupportedArgument"})
# Requests about no object, which cannot be missing then.
_OF_BUCKETS = frozenset({"list_multipart_uploads", "list_objects_v2"})
_DENIED = {
    "InvalidAccessKeyId": "the access key is not known to this endpoint; check `key` and `endpoint_url`",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key; check `secret`",
    "ExpiredToken": "the session token has expired; get a new one",
    "ExpiredTokenException": "the session token has expired; get a new one",
    "InvalidToken": "the session token is not valid; check `token`",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
}
_DENIED_HINT = "check the credentials and the policy of the bucket; `anon=True` reads public buckets"
_ENDPOINT_HINT = "check `endpoint_url` (or AWS_ENDPOINT_URL) and the network"
_CREDENTIALS_HINT = (
    "give `key` and `secret` in storage_options, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "name a `profile`, or read public buckets with `anon=True`"
)


def from_s3_error(error: BaseException, *, bucket: str, url: str, doing: str) -> StoreError | UnsupportedError | None:
    """The error of ours that says the same, or None for what is a bug and not the store's doing."""
    # It is `undecided` where no definite answer came; whether the request was sent at all, the caller knows.
    import aiohttp  # noqa: PLC0415 (there once a client is, and slow to import before)
    from botocore import exceptions as botocore  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    where = Where(key=url)
    if (answer := _answer_behind(error)) is not None:
        ours = _from_answer(answer, bucket, where, doing)
        if isinstance(ours, StoreError):
            ours.status = _code_and_status(answer)[1] or None
        return ours
    if isinstance(
        error,
        botocore.NoCredentialsError
        | botocore.PartialCredentialsError
        | botocore.CredentialRetrievalError
        | botocore.ProfileNotFound,
    ):
        return AccessDeniedError(
            f"no credentials for bucket {bucket}: {_reason(error)}", where=where, hint=_CREDENTIALS_HINT
        )
    if isinstance(error, botocore.NoRegionError | botocore.InvalidRegionError):
        return StoreError(f"{doing}: {_reason(error)}", where=where, hint="set AWS_DEFAULT_REGION")
    # What botocore wraps whatever it is: of what the options say, which no repetition mends.
    within = error.kwargs.get("error") if isinstance(error, botocore.HTTPClientError) else None
    if isinstance(error, botocore.SSLError | botocore.ParamValidationError | UnicodeError) or (
        isinstance(within, TypeError | ValueError | AttributeError) and not isinstance(within, aiohttp.ClientError)
    ):
        return StoreError(f"{doing}: {_reason(error)}", where=where)
    if isinstance(
        error,
        botocore.HTTPClientError
        | botocore.ConnectionError
        | botocore.IncompleteReadError
        | ResponseParserError
        | aiohttp.ClientError
        | TimeoutError
        | ConnectionError,
    ):
        return _undecided(TransientError(f"{doing}: {_reason(error)}", where=where, hint=_ENDPOINT_HINT))
    # botocore has no error of its own for an endpoint that is no URL.
    if isinstance(error, botocore.BotoCoreError | OSError) or (
        isinstance(error, ValueError) and "endpoint" in str(error)
    ):
        return StoreError(f"{doing}: {_reason(error)}", where=where)
    return None


def status_of(error: BaseException) -> int:
    """The HTTP status of the answer behind an error, ours or the client's; 0 where none came."""
    answer = _answer_behind(error)
    return 0 if answer is None else _code_and_status(answer)[1]


def code_of(error: BaseException) -> str:
    """What S3 calls the error behind an error, ours or the client's: ``"NoSuchKey"``; empty where no answer came."""
    answer = _answer_behind(error)
    return "" if answer is None else _code_and_status(answer)[0]


def refuses_parameter(error: BaseException) -> bool:
    """Whether the store may have refused a request for a parameter, or a header, that it does not know."""
    return code_of(error) in _UNKNOWN_PARAMETER or status_of(error) == 501


def _answer_behind(error: BaseException | None) -> dict[str, Any] | None:
    """The answer that an error was raised for; s3fs hides it behind the error it raised from, and so do we."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    while error is not None:
        if isinstance(error, ClientError):
            return dict(error.response)
        error = error.__cause__
    return None


def _code_and_status(answer: dict[str, Any]) -> tuple[str, int]:
    code = str(answer.get("Error", {}).get("Code", ""))
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code, int(code) if code.isdecimal() else int(status)


def _undecided(error: TransientError) -> TransientError:
    error.undecided = True
    return error


class _Refusal(NamedTuple):
    """What codes and statuses of answers mean."""

    codes: Collection[str]
    statuses: Collection[int]
    kind: type[StoreError | UnsupportedError]
    hint: str | None = None


#: The first that has the code, which says more than the status, or the status.
_REFUSALS = (
    _Refusal(_THROTTLED, (429, 503), ThrottledError),
    _Refusal(("InternalError",), _UNDECIDED, TransientError),
    _Refusal(_TRANSIENT, (), TransientError),
    _Refusal(("NoSuchBucket", "NoSuchUpload"), (404,), NotFoundError),
    _Refusal(_DENIED, (401, 403), AccessDeniedError, _DENIED_HINT),
    _Refusal(("PreconditionFailed",), (412,), PreconditionError),
    _Refusal(("InvalidRange",), (416,), RangeError),
    _Refusal(("NotImplemented",), (405, 501), UnsupportedError, "this store does not offer that operation"),
    _Refusal(
        ("AuthorizationHeaderMalformed",),
        (301, 307),
        StoreError,
        "the bucket is in another region: set AWS_DEFAULT_REGION",
    ),
)


def _from_answer(answer: dict[str, Any], bucket: str, where: Where, doing: str) -> StoreError | UnsupportedError:
    """The error for an answer that refuses a request."""
    code, status = _code_and_status(answer)
    said = scrubbed(str(answer.get("Error", {}).get("Message", ""))) or code
    message = f"{doing} in bucket {bucket}: {said}" if said else f"{doing} in bucket {bucket}: status {status}"
    refusal = next((each for each in _REFUSALS if code in each.codes or status in each.statuses), None)
    if refusal is None:
        return StoreError(f"{message} ({code or status})", where=where)
    if refusal.kind is ThrottledError:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return ThrottledError(message, retry_after=retry_after(headers.get("retry-after")), where=where)
    if refusal.kind is NotFoundError:
        return _not_found(code, bucket, where, doing)
    hint = _DENIED.get(code, refusal.hint) if refusal.kind is AccessDeniedError else refusal.hint
    error = refusal.kind(message, where=where, hint=hint)
    if isinstance(error, TransientError):
        error.undecided = refusal.codes is not _TRANSIENT
    return error


def _not_found(code: str, bucket: str, where: Where, doing: str) -> NotFoundError:
    if code == "NoSuchBucket" or doing == "head_bucket":
        return BucketNotFoundError(f"no such bucket: {bucket}", where=where, hint="check the name and `endpoint_url`")
    if code == "NoSuchUpload":
        return NotFoundError(
            f"no such upload in bucket {bucket}: it was completed or aborted, or never begun", where=where
        )
    if doing in _OF_BUCKETS and not code.startswith("NoSuch"):
        # S3 has codes for what may be missing there. This came from something else, such as a proxy or a website.
        return NotFoundError(
            f"{doing} in bucket {bucket}: not found, and not said as S3 says it", where=where, hint=_ENDPOINT_HINT
        )
    return NotFoundError(f"no such object in bucket {bucket}", where=where)


def _reason(error: BaseException) -> str:
    return scrubbed(str(error)) or ("no progress" if isinstance(error, TimeoutError) else type(error).__name__)
