"""Storage options of S3 under the names of `object_store` (Polars, delta-rs), as those of s3fs; others are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from resilient_pq.errors import UnsupportedError
from resilient_pq.io.option_kinds import (
    ENDPOINT,
    NUMBER,
    OPTIONS,
    TEXT,
    WHOLE,
    Kind,
    check_kinds,
    check_names,
    close_name,
    option_at,
)
from resilient_pq.io.s3.plain_access import UNDERSTOOD

_TRUE: Final = frozenset({"true", "1", "yes", "y", "on", "t"})


def s3fs_options(storage_options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options, as s3fs takes them."""
    known = _OF_S3FS
    if any(name not in known and _canonical_name(name) not in _MEANINGS for name in storage_options):
        known = _known_names()
    found = {name: value for name, value in storage_options.items() if name in known}
    check_kinds(found, _KINDS)
    said_by: dict[str, str] = {}
    for name, value in storage_options.items():
        if name in known:
            continue
        meaning = _MEANINGS.get(_canonical_name(name))
        if meaning is None:
            raise UnsupportedError(f"storage_options: there is no {name!r} for S3", hint=_suggest(name))
        place, ours = meaning[0], meaning[1](value)
        if ours is None:
            continue
        if (before := option_at(found, place)) is not None and before != ours:
            raise UnsupportedError(
                f"storage_options: {said_by.get(place, place)!r} and {name!r} contradict each other",
                hint="give one of them",
            )
        said_by[place] = name
        _set_option(found, place, ours)
    check_kinds(found, _KINDS)
    for place, usual in _USUAL_WITHIN.items():
        if not usual.issuperset(found.get(place) or ()):
            check_names(found, place, _known_nested_names()[place])
    return found


def _parse_bool(value: Any) -> bool:
    return value.strip().lower() in _TRUE if isinstance(value, str) else bool(value)


def _as_is(value: Any) -> Any:
    return value


def _addressing_style(value: Any) -> str:
    return "virtual" if _parse_bool(value) else "path"


def _ignore(_: Any) -> None:
    """Of what goes without saying here."""


#: Where each thing belongs that others call so, in small letters and without ``aws_``, and how its value is said there.
_MEANINGS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "access_key_id": ("key", _as_is),
    "secret_access_key": ("secret", _as_is),
    "session_token": ("token", _as_is),
    "token": ("token", _as_is),
    "endpoint": ("endpoint_url", _as_is),
    "endpoint_url": ("endpoint_url", _as_is),
    "endpoint_url_s3": ("endpoint_url", _as_is),
    "region": ("client_kwargs.region_name", _as_is),
    "region_name": ("client_kwargs.region_name", _as_is),
    "default_region": ("client_kwargs.region_name", _as_is),
    "skip_signature": ("anon", _parse_bool),
    "request_payer": ("requester_pays", _parse_bool),
    "profile": ("profile", _as_is),
    "virtual_hosted_style_request": ("config_kwargs.s3.addressing_style", _addressing_style),
    "allow_http": ("allow_http", _ignore),  # the endpoint says so
    "unsigned_payload": ("unsigned_payload", _ignore),  # they are, where the connection is secure
}
#: Of the options that a client would take as they are, and say in its own words later that it cannot.
_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("client_kwargs", "config_kwargs", "s3_additional_kwargs"), OPTIONS),
    **dict.fromkeys(("config_kwargs.s3", "config_kwargs.proxies", "config_kwargs.retries"), OPTIONS),
    **dict.fromkeys(("key", "secret", "token", "username", "password", "profile"), TEXT),
    **dict.fromkeys(("client_kwargs.region_name", "config_kwargs.region_name"), TEXT),
    **{f"client_kwargs.aws_{name}": TEXT for name in ("access_key_id", "secret_access_key", "session_token")},
    **dict.fromkeys(("endpoint_url", "client_kwargs.endpoint_url"), ENDPOINT),
    **dict.fromkeys(("config_kwargs.connect_timeout", "config_kwargs.read_timeout"), NUMBER),
    "config_kwargs.max_pool_connections": WHOLE,
    **dict.fromkeys(("config_kwargs.retries.max_attempts", "config_kwargs.retries.total_max_attempts"), WHOLE),
    "client_kwargs.verify": (lambda value: isinstance(value, bool | str), "true, false or the path of certificates"),
    "session": (lambda value: hasattr(value, "get_component"), "a session of aiobotocore"),
}
#: What every aiobotocore takes in options that are dicts; it is imported for other names.
_USUAL_WITHIN: Final[dict[str, frozenset[str]]] = {
    "client_kwargs": frozenset(
        {"region_name", "endpoint_url", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "verify"}
    ),
    "config_kwargs": frozenset(
        {"connect_timeout", "max_pool_connections", "proxies", "read_timeout", "retries", "s3", "signature_version"}
    ),
}
#: What s3fs takes of others, and gives to nobody: of fsspec itself.
_OF_FSSPEC: Final = frozenset({"use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"})

#: What every s3fs takes: for other names the installed one is asked, which takes 0.2 s where it is not imported.
_OF_S3FS: Final = UNDERSTOOD | {"password", "profile", "s3_additional_kwargs", "session", "username"}


def _canonical_name(name: str) -> str:
    return name.lower().removeprefix("aws_")


@cache
def _known_names() -> frozenset[str]:
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


@cache
def _known_nested_names() -> dict[str, frozenset[str]]:
    """What the installed aiobotocore takes in options that are dicts."""
    from aiobotocore.config import AioConfig  # noqa: PLC0415
    from aiobotocore.session import AioSession  # noqa: PLC0415

    client = inspect.signature(AioSession._create_client).parameters
    config = {*inspect.signature(AioConfig.__init__).parameters, *AioConfig.OPTION_DEFAULTS}
    # Those that s3fs gives by itself would be given twice.
    ours = {"self", "service_name", "config", "kwargs", "args", "client_kwargs"}
    return {"client_kwargs": frozenset(client) - ours, "config_kwargs": frozenset(config) - {"self", "kwargs"}}


def _suggest(name: str) -> str:
    """What may be meant."""
    names = {each.lower(): each for each in _known_names()}
    if (close := close_name(name.lower(), names)) is not None:
        return f"did you mean {names[close]!r}?"
    if (close := close_name(_canonical_name(name), _MEANINGS)) is not None:
        prefix = "aws_" if name.lower().startswith("aws_") else ""
        return f"did you mean {prefix + close!r}?"
    return "options are those of s3fs, such as key, secret, token, profile, endpoint_url, client_kwargs, config_kwargs"


def _set_option(options: dict[str, Any], place: str, value: Any) -> None:
    """Set an option, in a dict of its own where it lies in one: the caller's stays as it is."""
    *folders, last = place.split(".")
    for name in folders:
        inner = options.get(name)
        options[name] = dict(inner) if isinstance(inner, Mapping) else {}
        options = options[name]
    options[last] = value
