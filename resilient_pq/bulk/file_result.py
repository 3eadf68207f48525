"""The result of one file of a run, which can be pickled and written as a line. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from resilient_pq.errors import (
    FileFullError,
    FormatError,
    NothingToRecoverError,
    NotParquetError,
    ResilientPQError,
    RowsLostError,
    StoreError,
    Where,
    WriterFailedError,
)
from resilient_pq.io.location import scrubbed
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.report import SCHEMA_VERSION, Outcome, Report

#: The outcome of a file of which there is no report.
ERROR = "error"


def exit_code_of(error: Exception) -> int:
    """The exit status of a verb that ends with this error, as docs/cli.md lists them."""
    match error:
        case NothingToRecoverError() | NotParquetError():
            return 3
        case StoreError(misnamed=True):
            return 2
        case StoreError() | WriterFailedError():
            return 4
        case FormatError() | FileFullError() | RowsLostError():
            return 1
        case ResilientPQError():
            return 2
    return 70


@dataclass(frozen=True, slots=True)
class FileError:
    """Why there is no report: an error as data, which can be pickled and written down whatever its class takes.

    Attributes:
        type: Name of its class.
        message: What happened, for people.
        where: The place, as far as it is known.
        hint: What to do next; None when there is nothing to advise.
        exit_code: The exit status of a verb that ends with it.
        notes: More for people; of an error that is a mistake of this package, where it happened.
    """

    type: str
    message: str
    where: Where
    hint: str | None
    exit_code: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, error: Exception) -> FileError:
        """The same of an exception."""
        notes = tuple(getattr(error, "__notes__", ()))
        name, code = type(error).__name__, exit_code_of(error)
        if isinstance(error, ResilientPQError):
            return cls(name, error.message, error.where, error.hint, code, notes)
        hint = "this is a mistake in resilient_pq, not in your file; please report it"
        told = tuple(map(scrubbed, traceback.format_exception(error)))
        return cls(name, scrubbed(str(error)) or name, Where(), hint, code, (*notes, *told))

    def to_json(self) -> dict[str, Any]:
        """As ``error`` in docs/json.md."""
        where = {name: getattr(self.where, name) for name in ("key", "row_group", "column", "page", "offset")}
        return {"type": self.type, "message": self.message, "where": where, "hint": self.hint}


@dataclass(frozen=True, slots=True)
class FileResult:
    """What became of one file.

    Attributes:
        verb: "check", "recover" or "inspect".
        url: The file, as it may be shown: a URL without a user, and with a hash in the place of its query.
        report: What was found; None where an error came instead, and of "inspect".
        error: The error; None where there is none. It concerns this file alone.
        facts: What "inspect" tells of it, as JSON; None of the other verbs.
    """

    verb: str
    url: str
    report: Report | None = None
    error: FileError | None = None
    facts: Mapping[str, Any] | None = None

    @property
    def outcome(self) -> str:
        """That of the report; "error" where there is none, and "read" of what was only inspected."""
        if self.error is not None:
            return ERROR
        return "read" if self.report is None else str(self.report.outcome)

    @property
    def exit_code(self) -> int:
        """What the verb would exit with if this were the only file."""
        if self.error is not None:
            return self.error.exit_code
        return 0 if self.report is None else self.report.exit_code

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with the file."""
        return self.error is None and (self.report is None or self.report.outcome is Outcome.SOUND)

    def to_json(self) -> dict[str, Any]:
        """The document that the verb prints for one file (docs/json.md)."""
        if self.error is not None:
            return {
                "schema_version": SCHEMA_VERSION,
                "verb": self.verb,
                "url": self.url,
                "outcome": ERROR,
                "rows": None,
                "findings": [],
                "next": [],
                "notes": list(self.error.notes),
                "error": self.error.to_json(),
            }
        if self.report is not None:
            return self.report.to_json()
        return dict(self.facts or {})
