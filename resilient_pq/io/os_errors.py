"""Errors of the operating system as errors of this package, with a hint."""

from __future__ import annotations

import errno
from types import TracebackType

from resilient_pq.errors import AccessDeniedError, AlreadyExistsError, NotFoundError, StoreError, Where
from resilient_pq.io.location import scrubbed

_FULL = frozenset(
    number for number in (errno.ENOSPC, getattr(errno, "EDQUOT", None), errno.EFBIG) if number is not None
)


class explained:  # noqa: N801 (a context manager, used as a function is)
    """Raise whatever the operating system refuses within the block as an error of ours; see `from_os_error`."""

    __slots__ = ("_doing", "_hint", "_path")

    def __init__(self, doing: str, path: str, *, hint: str | None = None) -> None:
        self._doing, self._path, self._hint = doing, path, hint

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise from_os_error(error, self._doing, self._path, hint=self._hint) from error


def from_os_error(error: OSError, doing: str, path: str, *, hint: str | None = None) -> StoreError:
    """The `StoreError` for an error of the operating system; `doing` begins its message: ``"cannot write"``."""
    where = Where(key=path)
    reason = scrubbed(error.strerror or str(error)) or type(error).__name__
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFoundError(f"{doing}: {reason}", where=where, hint=hint)
    if isinstance(error, FileExistsError):
        return AlreadyExistsError(f"{doing}: {reason}", where=where, hint=hint)
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return AccessDeniedError(
            f"{doing}: {reason}", where=where, hint=hint or "check the permissions of the file and its folder"
        )
    if isinstance(error, IsADirectoryError):
        return StoreError(f"{doing}: it is a folder", where=where, hint=hint or "name a file in it")
    if error.errno in _FULL:
        again = "free some space, then begin again, or resume what a writer kept in NAME.partial"
        return StoreError(f"{doing}: {reason}", where=where, hint=hint or again)
    return StoreError(f"{doing}: {reason}", where=where, hint=hint)
