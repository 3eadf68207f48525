"""Errors as S3 sends them."""

from __future__ import annotations


def error_body(code: str) -> bytes:
    """The body of an answer."""
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said so</Message></Error>".encode()
