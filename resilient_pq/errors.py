"""Every error that resilient_pq raises on purpose, in one tree.

Any package may import this module; `error_chains` pickles errors::

    ResilientPQError                      .hint, .where
    ├─ FormatError (ValueError)           the bytes are not what Parquet says they should be
    │  ├─ NotParquetError                 no Parquet magic, or something else altogether
    │  ├─ TornFileError                   cut short: the footer is missing or incomplete
    │  ├─ ThriftError                     metadata or a page header does not parse
    │  ├─ EncodingError                   values or levels do not decode
    │  ├─ ChecksumError                   .stored, .computed
    │  └─ AuthenticationError             encrypted bytes that somebody changed, moved or exchanged
    ├─ WrongKeyError                      the key that was given opens nothing of the file
    ├─ UnsupportedError (NotImplementedError)
    │  ├─ CodecUnavailableError           .codec
    │  └─ KeyMissingError                 an encrypted footer or column was asked for without its key
    ├─ SchemaError (ValueError)           a batch or a request does not fit the schema
    │  └─ OptionError                     an option has a value that it cannot have
    ├─ FileClosedError (ValueError)       a file was to be read after its block ended, or after `close`
    ├─ SourceError                        the source of the rows failed while it handed them over
    ├─ WriterStateError (RuntimeError)
    │  ├─ WriterClosedError
    │  ├─ WriterFailedError               an earlier write failed; .num_rows_stored
    │  ├─ WriterFencedError               somebody else completed or aborted the upload, or goes on with it
    │  └─ FileFullError                   the file was completed at a limit; go on in the next one
    ├─ StoreError (OSError)               .retryable, .undecided, .keep_upload
    │  ├─ NotFoundError (FileNotFoundError)
    │  │  └─ BucketNotFoundError          not the object is missing, but what it would be in
    │  ├─ AlreadyExistsError (FileExistsError)
    │  ├─ AccessDeniedError (PermissionError)
    │  │  └─ CredentialsExpiredError      they were right before; newer ones may come
    │  ├─ PreconditionError
    │  │  └─ ObjectChangedError           the object was replaced while it was read
    │  ├─ RangeError                      a range beyond the end of the object
    │  ├─ ThrottledError                  .retry_after
    │  └─ TransientError                  resets, timeouts, 5xx, bodies cut short
    ├─ OutOfMemoryError (MemoryError)     this process cannot have the memory that it needs
    └─ RecoveryError
       ├─ RepairError                     more of a file is lost than its parity can rebuild
       ├─ RowsLostError                   a recovery would lose rows, and was told not to
       └─ NothingToRecoverError           .report
"""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Any, ClassVar, Protocol

from resilient_pq.error_chains import Parts, links_of, restored
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """The place an error or a finding speaks of; what is not known is None.

    Attributes:
        key: The URL, path or key of the object, in its display form: without a password, a hash where a query was.
        row_group: Ordinal of the row group, from 0, in the file that was opened: a summary counts those of all
            its files.
        column: Dotted path of the column.
        page: Ordinal of the page within its column chunk, from 0; the dictionary page counts.
        offset: Absolute byte offset in the object.
    """

    key: str | None = None
    row_group: int | None = None
    column: str | None = None
    page: int | None = None
    offset: int | None = None

    def merged_with(self, outer: Where) -> Where:
        """This place, with what it does not know taken from `outer`."""
        known = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        return replace(outer, **known)

    def __str__(self) -> str:
        """The place in the format's words, for people: ``row group 1, column ts, offset 4,711``."""
        offset = None if self.offset is None else f"{self.offset:,}"
        known = ("row group", self.row_group), ("column", self.column), ("page", self.page), ("offset", offset)
        words = [] if self.key is None else [self.key]
        words += [f"{name} {value}" for name, value in known if value is not None]
        return ", ".join(words)


NOWHERE = Where()


class ResilientPQError(Exception):
    """Base of every error that resilient_pq raises on purpose.

    Attributes:
        message: What happened, without the place.
        where: The place, as far as it is known.
        hint: What to do next, often a command; None when there is nothing to advise.
    """

    default_hint: ClassVar[str | None] = None

    def __init__(self, message: str, *, where: Where = NOWHERE, hint: str | None = None) -> None:
        """Keep the three parts apart, so that a caller can show them as it likes."""
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint or self.default_hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors pass from process to process whole, with what caused them, whatever their class takes to be made."""
        return restored, (links_of(self, _parts),)

    def detached(self) -> ResilientPQError:
        """The error as another process gets it: its causes are such that every way of pickling keeps them."""
        error: ResilientPQError = restored(links_of(self, _parts))
        return error.with_traceback(self.__traceback__)

    def at(self, where: Where) -> ResilientPQError:
        """Add what the caller knows of the place; what is known already is kept. Returns self."""
        self.where = self.where.merged_with(where)
        return self

    def __str__(self) -> str:
        """Message, place and hint on one line each where they are known."""
        text = self.message
        place = str(self.where)
        if place:
            text = f"{text} (at {place})"
        if self.hint:
            text = f"{text}\nhint: {self.hint}"
        return text


def _parts(error: BaseException) -> Parts | None:
    """What one of our errors is made of; None of another library's."""
    return (type(error), error.args, error.__dict__) if isinstance(error, ResilientPQError) else None


class FormatError(ResilientPQError, ValueError):
    """The bytes are not what the Parquet specification, or our own, says they should be."""


class NotParquetError(FormatError):
    """The object carries no Parquet magic, or is something else altogether."""


class TornFileError(FormatError):
    """The object begins like Parquet but its end, the footer, is missing or incomplete."""


class ThriftError(FormatError):
    """File metadata, a page header or an index does not parse as its Thrift struct."""


class EncodingError(FormatError):
    """Levels or values of a page do not decode."""


class ChecksumError(FormatError):
    """A checksum does not hold: the bytes changed after they were written.

    Attributes:
        stored: The CRC32, or the xxh3-64, that the file names, unsigned.
        computed: The one of the bytes read, unsigned.
    """

    def __init__(
        self, message: str, *, stored: int, computed: int, where: Where = NOWHERE, hint: str | None = None
    ) -> None:
        """Keep both sums beside the message."""
        super().__init__(f"{message}: stored {stored:08x}, computed {computed:08x}", where=where, hint=hint)
        self.stored = stored
        self.computed = computed


class AuthenticationError(FormatError):
    """Encrypted bytes are not what was sealed with this key for this place: they were changed, moved or exchanged."""


class WrongKeyError(ResilientPQError):
    """The key that was given opens nothing of the file: it is another one."""


class UnsupportedError(ResilientPQError, NotImplementedError):
    """The file is right, but uses what this version does not read or write."""


class CodecUnavailableError(UnsupportedError):
    """The codec of a column chunk cannot be used here.

    Attributes:
        codec: Name of the codec as the specification spells it.
    """

    def __init__(self, codec: str, *, where: Where = NOWHERE, hint: str | None = None) -> None:
        """Name the codec."""
        super().__init__(f"the codec {codec} is not available", where=where, hint=hint)
        self.codec = codec


class KeyMissingError(UnsupportedError):
    """No key was given for a footer or a column that was asked for."""


class SchemaError(ResilientPQError, ValueError):
    """A batch does not fit the schema of the file, or a request names what the schema does not have."""


class OptionError(SchemaError):
    """An option has a value that it cannot have; nothing was opened."""


class FileClosedError(ResilientPQError, ValueError):
    """A file was to be read after its ``with`` block ended, or after `close`."""

    default_hint = "read it inside of the `with` block, or open it again"


class SourceError(ResilientPQError):
    """The source of the rows failed while it handed them over; the rows before it were taken, and the writer failed."""


class WriterStateError(ResilientPQError, RuntimeError):
    """The writer cannot do this in the state it is in."""


class WriterClosedError(WriterStateError):
    """The writer has been closed or aborted."""


class WriterFailedError(WriterStateError):
    """An earlier write failed; nothing more can be written.

    Attributes:
        num_rows_stored: Rows that survive, counted from the start of the file.
    """

    def __init__(
        self, message: str, *, num_rows_stored: int = 0, where: Where = NOWHERE, hint: str | None = None
    ) -> None:
        """Say how many rows survive."""
        super().__init__(message, where=where, hint=hint)
        self.num_rows_stored = num_rows_stored


class WriterFencedError(WriterStateError):
    """Somebody else took over: the upload was completed, aborted or resumed, and this writer can spoil nothing."""


class FileFullError(WriterStateError):
    """The file reached a limit of the format and was completed; the rows of this call are not in it."""


class OutOfMemoryError(ResilientPQError, MemoryError):
    """This process cannot have the memory that was needed; the file may be sound."""

    default_hint = "ask for fewer columns or rows at a time, write smaller row groups, or give the process more memory"


class StoreError(ResilientPQError, OSError):
    """A store could not do what it was asked.

    Attributes:
        retryable: True where the same request may well succeed later.
        undecided: True where the request was sent whole and got no definite answer: it may have been carried
            out, or may be yet.
        keep_upload: True where the upload that it is about is whole and must not be aborted: completing it
            again may succeed, or did already.
        status: The HTTP status that the store answered with, where the error is about such an answer.
        misnamed: True where the URL or path that was given names nothing, which no store was asked about.
    """

    retryable: ClassVar[bool] = False
    undecided: bool = False
    keep_upload: bool = False
    status: int | None = None
    misnamed: bool = False


class NotFoundError(StoreError, FileNotFoundError):
    """No such object, bucket, folder or upload."""


class BucketNotFoundError(NotFoundError):
    """There is no such bucket, so nothing can be in it, and nothing was."""


class AlreadyExistsError(StoreError, FileExistsError):
    """The object exists and the caller asked not to replace it."""


class AccessDeniedError(StoreError, PermissionError):
    """The credentials, or the permissions of the file system, do not allow it."""


class CredentialsExpiredError(AccessDeniedError):
    """The credentials were right before, and have expired; asking again may find newer ones."""

    retryable = True


class PreconditionError(StoreError):
    """A condition of the request (If-Match, If-None-Match) does not hold."""


class ObjectChangedError(PreconditionError):
    """The object was replaced while it was read: bytes of two versions are never mixed."""

    default_hint = "open it again to read the new version"


class RangeError(StoreError):
    """The range lies beyond the end of the object."""


class ThrottledError(StoreError):
    """The store asks to slow down.

    Attributes:
        retry_after: Seconds that the store asked to wait, or None.
    """

    retryable = True

    def __init__(
        self, message: str, *, retry_after: float | None = None, where: Where = NOWHERE, hint: str | None = None
    ) -> None:
        """Keep the store's own wish."""
        super().__init__(message, where=where, hint=hint)
        self.retry_after = retry_after


class TransientError(StoreError):
    """A reset, a timeout, a 5xx or a body cut short: the same request may succeed when repeated."""

    retryable = True


class RecoveryError(ResilientPQError):
    """A recovery could not be carried out as asked."""


class RepairError(RecoveryError):
    """A file cannot be rebuilt bit for bit: more of it is lost than its parity covers."""


class RowsLostError(RecoveryError):
    """A recovery would lose rows or values, and was told not to."""


class NothingToRecoverError(RecoveryError):
    """Not one row could be kept, so no output was written.

    Attributes:
        report: What was looked at and found, a `resilient_pq.recovery.report.Report`.
    """

    def __init__(self, message: str, *, report: Any, where: Where = NOWHERE, hint: str | None = None) -> None:
        """Carry the report, which may still name the schema."""
        super().__init__(message, where=where, hint=hint)
        self.report = report


class Placed(Protocol):
    """Something that knows where it is."""

    @property
    def where(self) -> Where:
        """Its place, for errors."""


class located:  # noqa: N801 (a context manager, used as a function is)
    """Add a place to any error of ours that passes through; a lack of memory becomes an error of ours."""

    __slots__ = ("_place",)

    def __init__(self, place: Where | Placed) -> None:
        self._place = place

    def __enter__(self) -> None:
        """Nothing to do yet."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, MemoryError) and not isinstance(error, ResilientPQError):
            with located(self._place):
                raise OutOfMemoryError(str(error) or "there is not enough memory") from error
        if isinstance(error, ResilientPQError):
            where = self._place if isinstance(self._place, Where) else self._place.where
            error.at(where).__cause__ = error.__cause__  # as `raise from` does: its context is not shown
