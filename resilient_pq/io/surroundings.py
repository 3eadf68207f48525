"""What clients of stores take from their surroundings besides their options: the environment, configuration files."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

#: What the names of variables begin with that botocore, fsspec or aiohttp read; and other such names.
_PREFIXES: Final = ("AWS_", "FSSPEC_", "BOTO_")
_NAMES: Final = frozenset(
    {"HOME", "USERPROFILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"}
)


def surroundings(protocol: str) -> tuple[dict[str, str], list[object], dict[str, Any]]:
    """Variables, files of configuration with their times, and defaults of fsspec: clients differ where these do."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if (upper := name.upper()).startswith(_PREFIXES) or upper in _NAMES
    }
    return variables, [_state(path) for path in configuration_files(variables)], fsspec_defaults(protocol)


def configuration_files(variables: Mapping[str, str]) -> tuple[str, str]:
    """The paths of AWS's files of configuration and of credentials."""
    config = variables.get("AWS_CONFIG_FILE", "~/.aws/config")
    credentials = variables.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    return os.path.expanduser(config), os.path.expanduser(credentials)


def fsspec_defaults(protocol: str) -> dict[str, Any]:
    """Options that were configured for all file systems of fsspec in this process."""
    config = sys.modules.get("fsspec.config")
    found: dict[str, Any] = getattr(config, "conf", {}).get(protocol) or {}
    return found


def _state(path: str) -> object:
    """What changes when a file does; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
