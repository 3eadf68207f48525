"""What an epoch object says: who writes a file now, and which uploads hold it. Pure.

It lies beside the object, as ``_NAME.rpq-epoch``, from before the first part of an upload is sent until the object is
complete. Its name begins with ``_``, so that Hive, Spark, DuckDB and our own listings pass over it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from resilient_pq.errors import FormatError, UnsupportedError
from resilient_pq.lazy_dataclass import dataclass

EPOCH_SUFFIX = ".rpq-epoch"  # What the name of an epoch object ends with
MOST_EPOCH_BYTES = 256 * 1024  # No epoch object is larger; the names of some hundred uploads fit in

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch of a file: the time in which one writer holds it."""

    owner: str  # Drawn at random for each holder
    number: int  # Of the epoch, from 0
    began: float  # When the first epoch of the file began, in seconds since 1970, by the clock of its first writer
    file_id: str | None = None  # Of the file, hexadecimal; None where nobody knows it yet
    upload_id: str | None = None  # The upload that the holder writes to; None before it is begun
    before: tuple[str, ...] = ()  # Uploads of earlier epochs that may still be open and hold rows of the file
    # The version of the object, by its ETag, that the uploads begin with and are to replace; None for none
    base: str | None = None

    @property
    def uploads(self) -> tuple[str, ...]:
        """All uploads that may hold rows of the file."""
        return self.before if self.upload_id is None else (*self.before, self.upload_id)

    def following(self, *, file_id: str | None, before: Sequence[str]) -> Epoch:
        """The next epoch of the same file, by another holder."""
        base = self.base if file_id == self.file_id else None
        return Epoch(new_owner(), self.number + 1, self.began, file_id, None, tuple(before), base)

    def named(self, upload_id: str, *, file_id: str | None, before: Sequence[str]) -> Epoch:
        """This epoch, its upload begun."""
        return replace(self, upload_id=upload_id, file_id=file_id, before=tuple(before))

    def to_json(self) -> bytes:
        """As it lies in the store."""
        return json.dumps(
            {
                "format": _FORMAT,
                "owner": self.owner,
                "epoch": self.number,
                "began": self.began,
                "file_id": self.file_id,
                "upload_id": self.upload_id,
                "before": list(self.before),
                **({} if self.base is None else {"base": self.base}),
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class FoundEpoch:
    """An epoch object as it was found."""

    epoch: Epoch  # What it says
    etag: str | None  # The version of it that says so


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How a writer comes to hold an object."""

    file_id: str | None  # Of the file that is written, hexadecimal; None where that is found out later
    # Whether the epoch object must still be what was `found`; otherwise a new file is begun, whatever epoch there is.
    # An object that one request could write is an upload all the same, which the next holder can end
    exclusive: bool = False
    strict: bool = False  # Whether nothing at all is written where the credentials do not allow the lease
    found: FoundEpoch | None = None  # The epoch that was found; None for none
    before: tuple[str, ...] = ()  # Uploads of earlier epochs that may hold rows of the file
    standing: str | None = None  # The version of the object that was found, by its ETag; None for none
    appends: bool = False  # Whether rows are written behind that version


def epoch_name(name: str) -> str:
    """The name of the epoch object that lies beside an object."""
    return f"_{name}{EPOCH_SUFFIX}"


def named_by_epoch(name: str) -> str | None:
    """The name of the object that an epoch object lies beside, by its own; None for what is none."""
    if not name.startswith("_") or not name.endswith(EPOCH_SUFFIX):
        return None
    return name[1 : -len(EPOCH_SUFFIX)]


def new_owner() -> str:
    """What no other holder calls itself."""
    import secrets  # noqa: PLC0415 (it brings hashlib, and reads need neither)

    return secrets.token_hex(16)


def parse_epoch(data: bytes) -> Epoch:
    """What an epoch object says."""
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, Mapping) or not _is_epoch(said):
        raise FormatError("this is no epoch object", hint="if nobody writes the file that it lies beside, remove it")
    if said["format"] != _FORMAT:
        raise UnsupportedError(
            f"the epoch object has format {said['format']}, which this version does not know",
            hint="resume it with the version that wrote it, or a newer one",
        )
    return Epoch(
        said["owner"],
        said["epoch"],
        float(said["began"]),
        said.get("file_id"),
        said.get("upload_id"),
        tuple(said.get("before", ())),
        said.get("base"),
    )


def _is_epoch(said: Mapping[str, Any]) -> bool:
    if type(said.get("format")) is not int:
        return False
    if said["format"] != _FORMAT:
        return True  # a newer one may say it in other words
    names = ("file_id", "upload_id", "base")
    texts = [said.get("owner"), *(said[name] for name in names if said.get(name) is not None)]
    before = said.get("before", [])
    return (
        isinstance(before, list)
        and all(isinstance(text, str) and text for text in (*texts, *before))
        and type(said.get("epoch")) is int
        and said["epoch"] >= 0
        and type(said.get("began")) in (int, float)
    )
