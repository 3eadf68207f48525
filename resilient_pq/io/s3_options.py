"""Storage options of S3 in the words of others, as those of s3fs; and what is in nobody's words, by its name.

Polars, delta-rs and obstore take the names of the Rust crate `object_store`, in small letters or in capitals, with
``aws_`` before them or without.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from resilient_pq.errors import UnsupportedError

_TRUE: Final = frozenset({"true", "1", "yes", "y", "on", "t"})


def s3fs_options(storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, as s3fs takes them.

    Raises:
        UnsupportedError: One is named that nobody knows, or one thing is said in two ways that differ. No value is in
            the message: it may be a secret.
    """
    known = _OF_S3FS
    if any(name not in known and _bare(name) not in _MEANINGS for name in storage_options):
        known = _known()
    found = {name: value for name, value in storage_options.items() if name in known}
    for name in _OF_OPTIONS & set(found):
        if not isinstance(found[name], Mapping | None):
            raise UnsupportedError(
                f"storage_options: {name!r} is not a dict of options",
                hint=f'as JSON: {name}={{"name": "value"}}',
            )
    said_by: dict[str, str] = {}
    for name, value in storage_options.items():
        if name in known:
            continue
        meaning = _MEANINGS.get(_bare(name))
        if meaning is None:
            raise UnsupportedError(f"storage_options: there is no {name!r} for S3", hint=_nearest(name))
        place, ours = meaning[0], meaning[1](value)
        if ours is None:
            continue
        if (before := _at(found, place)) is not None and before != ours:
            raise UnsupportedError(
                f"storage_options: {said_by.get(place, place)!r} and {name!r} contradict each other",
                hint="give one of them",
            )
        said_by[place] = name
        _put(found, place, ours)
    return found


def _truth(value: Any) -> bool:
    return value.strip().lower() in _TRUE if isinstance(value, str) else bool(value)


def _same(value: Any) -> Any:
    return value


def _addressing(value: Any) -> str:
    return "virtual" if _truth(value) else "path"


def _nothing(_: Any) -> None:
    """Of what goes without saying here."""


#: Where each thing belongs that others call so, in small letters and without ``aws_``, and how its value is said there.
_MEANINGS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "access_key_id": ("key", _same),
    "secret_access_key": ("secret", _same),
    "session_token": ("token", _same),
    "token": ("token", _same),
    "endpoint": ("endpoint_url", _same),
    "endpoint_url": ("endpoint_url", _same),
    "endpoint_url_s3": ("endpoint_url", _same),
    "region": ("client_kwargs.region_name", _same),
    "region_name": ("client_kwargs.region_name", _same),
    "default_region": ("client_kwargs.region_name", _same),
    "skip_signature": ("anon", _truth),
    "request_payer": ("requester_pays", _truth),
    "profile": ("profile", _same),
    "virtual_hosted_style_request": ("config_kwargs.s3.addressing_style", _addressing),
    "allow_http": ("allow_http", _nothing),  # the endpoint says so
    "unsigned_payload": ("unsigned_payload", _nothing),  # they are, where the connection is secure
}
#: Whose values are options themselves.
_OF_OPTIONS: Final = frozenset({"client_kwargs", "config_kwargs", "s3_additional_kwargs"})
#: What s3fs takes of others, and gives to nobody: of fsspec itself.
_OF_FSSPEC: Final = frozenset(
    {"use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"}
)

#: What every s3fs takes: for other names the installed one is asked, which takes 0.2 s where it is not imported.
_OF_S3FS: Final = (
    _OF_OPTIONS
    | _OF_FSSPEC
    | {
        "anon",
        "asynchronous",
        "cache_regions",
        "default_block_size",
        "default_cache_type",
        "default_fill_cache",
        "endpoint_url",
        "fixed_upload_size",
        "key",
        "loop",
        "max_concurrency",
        "password",
        "profile",
        "requester_pays",
        "secret",
        "session",
        "token",
        "use_ssl",
        "username",
        "version_aware",
    }
)


def _bare(name: str) -> str:
    return name.lower().removeprefix("aws_")


@cache
def _known() -> frozenset[str]:
    """What the installed s3fs takes itself, or hands on to aiobotocore."""
    import s3fs  # noqa: PLC0415 (whoever makes a client has it)
    from aiobotocore.session import AioSession  # noqa: PLC0415

    takes = {
        name
        for each in (s3fs.S3FileSystem.__init__, AioSession.__init__)
        for name, parameter in inspect.signature(each).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    return frozenset(takes - {"self"}) | _OF_FSSPEC


def _nearest(name: str) -> str:
    """What may be meant."""
    names = {each.lower(): each for each in _known()}
    bare = {each: each for each in _MEANINGS}
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.7)
    if close:
        return f"did you mean {names[close[0]]!r}?"
    close = difflib.get_close_matches(_bare(name), bare, n=1, cutoff=0.7)
    if close:
        prefix = "aws_" if name.lower().startswith("aws_") else ""
        return f"did you mean {prefix + close[0]!r}?"
    return "options are those of s3fs, such as key, secret, token, profile, endpoint_url, client_kwargs, config_kwargs"


def _at(options: Mapping[str, Any], place: str) -> Any:
    found: Any = options
    for name in place.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _put(options: dict[str, Any], place: str, value: Any) -> None:
    """Set an option, in a dict of its own where it lies in one: the caller's stays as it is."""
    *folders, last = place.split(".")
    for name in folders:
        inner = options.get(name)
        options[name] = dict(inner) if isinstance(inner, Mapping) else {}
        options = options[name]
    options[last] = value
