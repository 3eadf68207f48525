"""Encrypted files: the keys that open them, and where these come from (docs/guides/encryption.md)."""
