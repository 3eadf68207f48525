"""The uploads of an object, of a prefix, or of names that match a pattern."""

from __future__ import annotations

from datetime import timedelta

import typer

import resilient_pq as rpq
from resilient_pq.bulk.name_pattern import is_pattern, matcher, split_pattern
from resilient_pq.io import WriteStore, resolve
from resilient_pq.io.location import shown


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
