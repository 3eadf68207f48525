"""A key management service in memory, which wraps keys as the one of parquet-java's own tests does."""

from __future__ import annotations

import base64
import os

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: The master keys of the files in parquet-testing.
MASTER_KEYS = {"kf": b"0123456789012345", "kc1": b"1234567890123450", "kc2": b"1234567890123451"}


class InMemoryKms:
    """Wraps keys with master keys of 16 bytes, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []  # The function and the id of the master key of each request
        self.refused: set[str] = set()  # Ids of master keys that nobody may use

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:
        self._note("wrap", master_key_identifier)
        nonce = os.urandom(12)
        sealed = self._cipher(master_key_identifier).encrypt(nonce, key_bytes, master_key_identifier.encode())
        return base64.b64encode(nonce + sealed).decode()

    def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:
        self._note("unwrap", master_key_identifier)
        sealed = base64.b64decode(wrapped_key)
        return self._cipher(master_key_identifier).decrypt(sealed[:12], sealed[12:], master_key_identifier.encode())

    def _note(self, what: str, master_key_id: str) -> None:
        self.asked.append((what, master_key_id))
        if master_key_id in self.refused:
            raise PermissionError(f"the master key {master_key_id} may not be used")

    def _cipher(self, master_key_id: str) -> AESGCM:
        return AESGCM(MASTER_KEYS[master_key_id])


class WaitingKms(InMemoryKms):
    """The same with functions that wait."""

    async def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> str:  # type: ignore[override]
        return super().wrap_key(key_bytes, master_key_identifier)

    async def unwrap_key(self, wrapped_key: str, master_key_identifier: str) -> bytes:  # type: ignore[override]
        return super().unwrap_key(wrapped_key, master_key_identifier)
