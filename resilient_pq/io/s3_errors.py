"""What S3 and its client say, as errors of ours: one table of codes, one of statuses."""

from __future__ import annotations

import aiohttp
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    PreconditionError,
    RangeError,
    StoreError,
    ThrottledError,
    TransientError,
    UnsupportedError,
    Where,
)
from resilient_pq.io.retry import retry_after

# The same request may succeed later, though the status says that the client was wrong.
_TRANSIENT = frozenset(
    {
        "RequestTimeout",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "ConditionalRequestConflict",
        "OperationAborted",
        "InternalError",
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
_DENIED = {
    "InvalidAccessKeyId": "the access key is not known to this endpoint; check `key` and `endpoint_url`",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key; check `secret`",
    "ExpiredToken": "the session token has expired; get a new one",
    "InvalidToken": "the session token is not valid; check `token`",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
}
_DENIED_HINT = "check the credentials and the policy of the bucket; `anon=True` reads public buckets"
_ENDPOINT_HINT = "check `endpoint_url` (or AWS_ENDPOINT_URL) and the network"
_CREDENTIALS_HINT = (
    "give `key` and `secret` in storage_options, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "name a `profile`, or read public buckets with `anon=True`"
)


def from_s3_error(
    error: BaseException, *, bucket: str, url: str, doing: str
) -> StoreError | UnsupportedError | None:
    """The error of ours that says the same, or None for what is a bug and not the store's doing.

    Args:
        error: What s3fs, botocore or aiohttp raised; s3fs hides the answer behind the error it raised from.
        bucket: Named in the message where the bucket is the trouble.
        url: The object it was about.
        doing: The operation, as S3 calls it.
    """
    where = Where(key=url)
    for cause in (error, error.__cause__):
        if isinstance(cause, ClientError):
            return _from_answer(cause, bucket, where, doing)
    if isinstance(
        error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError | ProfileNotFound
    ):
        return AccessDeniedError(
            f"no credentials for bucket {bucket}: {error}", where=where, hint=_CREDENTIALS_HINT
        )
    if isinstance(error, NoRegionError | InvalidRegionError):
        return StoreError(f"{doing}: {error}", where=where, hint="set AWS_DEFAULT_REGION")
    if isinstance(error, SSLError | ParamValidationError | UnicodeError):
        return StoreError(f"{doing}: {error}", where=where)
    if isinstance(
        error,
        HTTPClientError
        | BotoConnectionError
        | IncompleteReadError
        | ResponseParserError
        | aiohttp.ClientError
        | TimeoutError
        | ConnectionError,
    ):
        return TransientError(f"{doing}: {_reason(error)}", where=where, hint=_ENDPOINT_HINT)
    # botocore has no error of its own for an endpoint that is no URL.
    if isinstance(error, BotoCoreError | OSError) or (
        isinstance(error, ValueError) and "endpoint" in str(error)
    ):
        return StoreError(f"{doing}: {_reason(error)}", where=where)
    return None


def _from_answer(error: ClientError, bucket: str, where: Where, doing: str) -> StoreError | UnsupportedError:
    """By the code in the body, which says more, then by the status."""
    answer = error.response
    code = str(answer.get("Error", {}).get("Code", ""))
    said = str(answer.get("Error", {}).get("Message", "")) or code
    meta = answer.get("ResponseMetadata", {})
    status = int(code) if code.isdecimal() else int(meta.get("HTTPStatusCode", 0))
    message = (
        f"{doing} in bucket {bucket}: {said}" if said else f"{doing} in bucket {bucket}: status {status}"
    )
    if code in _THROTTLED or status in (429, 503):
        headers = meta.get("HTTPHeaders", {})
        return ThrottledError(message, retry_after=retry_after(headers.get("retry-after")), where=where)
    if code in _TRANSIENT or status in (408, 500, 502, 504):
        return TransientError(message, where=where)
    if code in ("NoSuchBucket", "NoSuchUpload") or status == 404:
        return _not_found(code, bucket, where)
    if code in _DENIED or status in (401, 403):
        return AccessDeniedError(message, where=where, hint=_DENIED.get(code, _DENIED_HINT))
    if code == "PreconditionFailed" or status == 412:
        return PreconditionError(message, where=where)
    if code == "InvalidRange" or status == 416:
        return RangeError(message, where=where)
    if code == "NotImplemented" or status in (405, 501):
        return UnsupportedError(message, where=where, hint="this store does not offer that operation")
    if status in (301, 307) or code == "AuthorizationHeaderMalformed":
        return StoreError(
            message, where=where, hint="the bucket is in another region: set AWS_DEFAULT_REGION"
        )
    return StoreError(f"{message} ({code or status})", where=where)


def _not_found(code: str, bucket: str, where: Where) -> NotFoundError:
    if code == "NoSuchBucket":
        return NotFoundError(
            f"no such bucket: {bucket}", where=where, hint="check the name and `endpoint_url`"
        )
    if code == "NoSuchUpload":
        return NotFoundError(
            f"no such upload in bucket {bucket}: it was completed or aborted by somebody else", where=where
        )
    return NotFoundError(f"no such object in bucket {bucket}", where=where)


def _reason(error: BaseException) -> str:
    return str(error) or ("no progress" if isinstance(error, TimeoutError) else type(error).__name__)
