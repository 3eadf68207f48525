"""Metadata of other formats, whose values are bytes, as Parquet's key-value metadata, whose values are text."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

#: What the name of a key ends in whose value is no UTF-8.
BASE64_SUFFIX: Final = ".base64"
#: Keys that mean something else in a file of ours.
_RESERVED: Final = ("rpq.", "ARROW:schema")


def text_metadata(pairs: Mapping[str, bytes]) -> dict[str, str]:
    """Pairs as text: values that are no UTF-8 are in base64, under a key that says so. Keys of our own are left out."""
    found = {}
    for name, value in pairs.items():
        if name.startswith(_RESERVED):
            continue
        try:
            found[name] = value.decode()
        except UnicodeDecodeError:
            found[f"{name}{BASE64_SUFFIX}"] = base64.b64encode(value).decode()
    return found
