"""Modules: bytes that are encrypted by themselves, and bound to their place by the AAD (Encryption.md, section 4.4).

On disk a module is ``u32 length | 12 bytes nonce | ciphertext | 16 bytes tag``; the length counts what follows it.
Bodies of pages and bitsets have no tag where the algorithm is AES_GCM_CTR_V1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

from resilient_pq.errors import FormatError, OptionError, UnsupportedError
from resilient_pq.lazy_dataclass import dataclass

LENGTH_SIZE: Final = 4
NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16
#: What a module has more bytes than its content, with a tag and without.
GCM_OVERHEAD: Final = LENGTH_SIZE + NONCE_SIZE + TAG_SIZE
CTR_OVERHEAD: Final = LENGTH_SIZE + NONCE_SIZE
KEY_SIZES: Final = (16, 24, 32)  # Encryption.md, section 5.1: AES-128, AES-192, AES-256
#: Keys given by a caller may not encrypt more modules than this with random nonces (NIST SP 800-38D, section 8.3).
MAX_MODULES_OF_KEY: Final = 1 << 32
#: Bytes that tell whether a module begins as footers or metadata of columns do, or as page headers do: a small number,
#: then a list, or another number.
_PEEKED: Final = 3
_BEGINNINGS: Final = ((0x15, range(0, 16, 2), 0x19), (0x15, range(0, 8, 2), 0x15))
MAX_ORDINAL: Final = 0x7FFF  # Ordinals in an AAD are of 2 bytes (Encryption.md, section 4.4.2)

#: Gives so many random bytes; every module takes 12 of them, and never the same ones again.
RandomBytes = Callable[[int], bytes]


class ModuleType(IntEnum):
    """What a module is (Encryption.md, section 4.4.2)."""

    FOOTER = 0
    COLUMN_METADATA = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5
    COLUMN_INDEX = 6
    OFFSET_INDEX = 7
    BLOOM_FILTER_HEADER = 8
    BLOOM_FILTER_BITSET = 9
    RECORD = 128  # The payload of a record of ours; the kind of the record is added


#: Modules that AES_GCM_CTR_V1 encrypts without a tag (Encryption.md, section 4.2.2).
_WITHOUT_TAG: Final = (ModuleType.DATA_PAGE, ModuleType.DICTIONARY_PAGE)


class WrongTagError(Exception):
    """A module does not open: another key, another place, or other bytes than were sealed."""


@dataclass(frozen=True, slots=True)
class ModulePlace:
    """What the AAD of a module says of it: its type, and the ordinals that such a module has."""

    type: int
    row_group: int | None = None
    column: int | None = None
    page: int | None = None

    def aad(self, file_aad: bytes | None) -> bytes:
        """The AAD of the module in a file whose AAD, prefix and all, is given; None in files that bind nothing."""
        if file_aad is None:
            return b""
        ordinals = [ordinal for ordinal in (self.row_group, self.column, self.page) if ordinal is not None]
        if any(not 0 <= ordinal <= MAX_ORDINAL for ordinal in ordinals):
            raise FormatError(f"ordinals in an encrypted file are at most {MAX_ORDINAL:,}, not {max(ordinals):,}")
        return file_aad + bytes([self.type]) + struct.pack(f"<{len(ordinals)}h", *ordinals)


def record_aad(file_aad: bytes | None, kind: int, number: int) -> bytes:
    """The AAD of the payload of a record of ours, which has a number in its file (docs/format.md)."""
    return (file_aad or b"") + bytes([ModuleType.RECORD + kind]) + number.to_bytes(4, "little")


class KeyCipher:
    """Seals and opens modules with one key. Its repr shows nothing of the key."""

    def __init__(self, key: bytes, *, tagged_pages: bool = True) -> None:
        """Take a key of 16, 24 or 32 bytes; `tagged_pages` is False with AES_GCM_CTR_V1."""
        #: Modules whose tag was right, those made, and bodies of pages with neither a tag nor a CRC32.
        self.num_opened = self.num_sealed = self.num_unverified = 0
        self._key = checked_key(key)
        self._tagged_pages = tagged_pages

    def __repr__(self) -> str:
        """The size of the key alone."""
        return f"KeyCipher({len(self._key) * 8} bits)"

    @cached_property
    def _gcm(self) -> Any:
        return aes_gcm()(self._key)

    def overhead(self, module_type: int) -> int:
        """What a module of a type has more bytes than its content."""
        return CTR_OVERHEAD if self._is_ctr(module_type) else GCM_OVERHEAD

    def _is_ctr(self, module_type: int) -> bool:
        return not self._tagged_pages and module_type in _WITHOUT_TAG

    def seal(self, content: Any, module_type: int, aad: bytes, random_bytes: RandomBytes) -> bytearray:
        """The module of some content."""
        self.num_sealed += 1
        if self.num_sealed > MAX_MODULES_OF_KEY:
            raise OptionError("the key has encrypted 2**32 modules", hint="give every file a key of its own")
        size = len(content) + self.overhead(module_type)
        module = bytearray(size)
        nonce = random_bytes(NONCE_SIZE)
        module[:LENGTH_SIZE] = (size - LENGTH_SIZE).to_bytes(4, "little")
        module[LENGTH_SIZE:CTR_OVERHEAD] = nonce
        behind = memoryview(module)[CTR_OVERHEAD:]
        if self._is_ctr(module_type):
            self._counter_mode(nonce, content, behind)
        else:
            self._gcm.encrypt_into(nonce, content, aad, behind)
        return module

    def open_into(self, module: memoryview, module_type: int, aad: bytes, out: memoryview) -> None:
        """Put the content of a module, of which the length has been checked, into `out`, which has its size."""
        nonce = module[LENGTH_SIZE:CTR_OVERHEAD]
        if self._is_ctr(module_type):
            self._counter_mode(bytes(nonce), module[CTR_OVERHEAD:], out)
            return
        gcm = self._gcm
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (an extra)

        try:
            gcm.decrypt_into(nonce, module[CTR_OVERHEAD:], aad, out)
        except InvalidTag:
            raise WrongTagError from None
        self.num_opened += 1

    def open(self, module: memoryview, module_type: int, aad: bytes) -> bytearray:
        """The content of a module, of which the length has been checked."""
        content = bytearray(len(module) - self.overhead(module_type))
        self.open_into(module, module_type, aad, memoryview(content))
        return content

    def seems_right_for(self, module: memoryview) -> bool:
        """Whether the key makes the beginning of a footer or a page header of a module, whatever its tag says."""
        # Where the module was changed, or moved, or its AAD is another one, that proves the key all the same: other
        # keys make such a beginning once in a million times.
        first = bytearray(_PEEKED)
        begin = module[CTR_OVERHEAD : CTR_OVERHEAD + _PEEKED]
        if len(begin) == _PEEKED:
            self._counter_mode(bytes(module[LENGTH_SIZE:CTR_OVERHEAD]), begin, first, first_counter=2)
        return any(first[0] == head and first[1] in values and first[2] == tail for head, values, tail in _BEGINNINGS)

    def _counter_mode(self, nonce: bytes, source: Any, out: Any, first_counter: int = 1) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # noqa: PLC0415 (an extra)

        Cipher(algorithms.AES(self._key), modes.CTR(nonce + first_counter.to_bytes(4, "big"))).encryptor().update_into(
            source, out
        )

    def signature(self, metadata: Any, nonce: bytes, aad: bytes) -> bytes:
        """Nonce and tag of a plaintext footer (Encryption.md, section 5.3)."""
        return nonce + bytes(self._gcm.encrypt(nonce, metadata, aad)[-TAG_SIZE:])


def aes_gcm() -> Any:
    """The cipher of `cryptography`."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 (an extra)
    except ImportError:
        hint = "pip install 'resilient_pq[encryption]'"
        raise UnsupportedError("encrypted files need the package cryptography", hint=hint) from None
    return AESGCM


def checked_key(key: object) -> bytes:
    """A key, if it can be one; the error says nothing of its bytes."""
    found = bytes(key) if isinstance(key, bytes | bytearray | memoryview) else None
    if found is None or len(found) not in KEY_SIZES:
        what = type(key).__name__ if found is None else f"{len(found)} bytes"
        raise OptionError(f"an encryption key is bytes, 16, 24 or 32 of them, not {what}")
    return found


def module_size(data: memoryview, at: int, end: int, overhead: int) -> int:
    """The size of the module at an offset, its length included; it lies before `end`, and has at least `overhead`."""
    if not 0 <= at <= end - overhead:
        raise FormatError("an encrypted module is cut short")
    size = LENGTH_SIZE + int.from_bytes(data[at : at + LENGTH_SIZE], "little")
    if size < overhead or size > end - at:
        raise FormatError(f"an encrypted module says that it has {size:,} bytes, where {end - at:,} are left")
    return size
