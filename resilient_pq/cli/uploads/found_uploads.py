"""The uploads that a URL names, and what is told of one: in words, in a row of a table, and as JSON."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import typer

import resilient_pq as rpq
from resilient_pq.bulk.name_pattern import is_pattern, matcher, split_pattern
from resilient_pq.cli.output.wording import counted, in_bytes, in_units
from resilient_pq.cli.shared_options import SECONDS_OF
from resilient_pq.io import WriteStore, resolve
from resilient_pq.io.location import shown

#: Of `row`; the first two are names.
HEADER = ("url", "upload id", "begun", "age", "parts", "size", "completable", "by", "rows")


def row(upload: rpq.Upload, now: datetime) -> tuple[str, ...]:
    """An upload as a row of a table."""
    begun = upload.initiated
    return (
        upload.url,
        upload.upload_id,
        "?" if begun is None else begun.strftime("%Y-%m-%d %H:%M"),
        "?" if begun is None else age(now - begun),
        f"{upload.num_parts:,}",
        in_units(upload.num_bytes),
        in_units(upload.completable_bytes),
        "rule" if upload.fits_rule else "gap-free",
        "unknown" if upload.num_rows is None else f"{upload.num_rows:,}",
    )


def as_json(upload: rpq.Upload) -> dict[str, Any]:
    """As in docs/json.md."""
    return {
        "url": upload.url,
        "upload_id": upload.upload_id,
        "initiated": None if upload.initiated is None else upload.initiated.isoformat(),
        "parts": upload.num_parts,
        "size": upload.num_bytes,
        "fits_rule": upload.fits_rule,
        "stored_bytes": upload.stored_bytes,
        "gap_free_bytes": upload.gap_free_bytes,
        "gap": upload.gap,
        "rows": upload.num_rows,
    }


def holds(upload: rpq.Upload) -> str:
    """The rows that completing it would keep: ``12.2 MiB up to the newest checkpoint stored, 128 rows``."""
    if not upload.completable_bytes:
        missing = "no part is there" if not upload.num_parts else "part 1 is missing"
        return f"nothing that could be completed: {missing}"
    size = in_bytes(upload.completable_bytes)
    if not upload.fits_rule:
        return f"{size} before the first part that is missing; the parts are not as a writer of ours leaves them"
    rows = "unknown rows" if upload.num_rows is None else counted(upload.num_rows, "row")
    return f"{size} up to the newest checkpoint that was stored, {rows}"


def age(since: timedelta) -> str:
    """``5h``, in the largest unit of which there is one whole; as ``--older-than`` takes it."""
    seconds = max(0, int(since.total_seconds()))
    unit = max((unit for unit in SECONDS_OF if SECONDS_OF[unit] <= max(seconds, 1)), key=SECONDS_OF.__getitem__)
    return f"{seconds // SECONDS_OF[unit]}{unit}"


def means_many(url: str) -> bool:
    """Whether a URL is a prefix with its slash, or a pattern; anything else may be an object."""
    return url.endswith("/") or is_pattern(url)


def refuse_young(url: str, older_than: timedelta | None) -> None:
    """Refuse to touch uploads of any age: writers that are alive could not go on."""
    if means_many(url) and older_than is None:
        raise typer.BadParameter(
            f"{shown(url)} may mean uploads of writers that are alive: say how old they have to be, such as 1d",
            param_hint="--older-than",
        )


async def uploads_of(
    store: WriteStore, url: str, key: str, *, older_than: timedelta | None = None, log: str | None = None
) -> list[rpq.Upload]:
    """The open uploads of a URL, oldest first; `key` is that of `place_of`, `log` that of their writer."""
    found = await rpq.list_uploads((store, key), older_than=older_than, log=log)
    if not is_pattern(url):
        return found
    matches = matcher(split_pattern(url)[1]).match
    return [upload for upload in found if matches(upload.key.removeprefix(key))]


def place_of(url: str, options: dict[str, object], *, bucket_alone: bool = True) -> tuple[WriteStore, str]:
    """The store of a URL, and its key there; of a pattern that of the folder before it."""
    folder = split_pattern(url)[0] if is_pattern(url) else url
    return resolve(folder, options, bucket_alone=bucket_alone)
