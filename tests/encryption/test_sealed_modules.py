"""Modules against published vectors: nonces are given here, and nowhere else."""

from __future__ import annotations

import pytest

from resilient_pq.format.crypto.modules import KeyCipher, ModuleType

KEY = "feffe9928665731c6d6a8f9467308308"
CONTENT = (
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
)
AAD, NONCE = "feedfacedeadbeeffeedfacedeadbeefabaddad2", "cafebabefacedbaddecaf888"
#: Test cases 1, 2, 4, 10 and 16 of "The Galois/Counter Mode of Operation", which SP 800-38D names: key, nonce, AAD,
#: content, ciphertext and tag.
GCM = [
    (32 * "0", 24 * "0", "", "", "58e2fccefa7e3061367f1d57a4e7455a"),
    (32 * "0", 24 * "0", "", 32 * "0", "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"),
    (
        KEY, NONCE, AAD, CONTENT,
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac97"
        "3d58e0915bc94fbc3221a5db94fae95ae7121a47",
    ),
    (
        KEY + KEY[:16], NONCE, AAD, CONTENT,
        "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9"
        "ccda27102519498e80f1478f37ba55bd6d27618c",
    ),
    (
        KEY + KEY, NONCE, AAD, CONTENT,
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0a"
        "bcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
    ),
]  # fmt: skip
#: Test vectors 1 and 7 of RFC 3686, whose counter begins with 1 as Parquet's does.
CTR = [
    ("ae6852f8121067cc4bf7a5765577f39e", "000000300000000000000000", "e4095d4fb7a7b3792d6175a3261311b8"),
    (
        "776beff2851db06f4c8a0542c8696f6c6a81af1eec96b4d37fc1d689e6c1c104",
        "00000060db5672c97aa8f0b2",
        "145ad01dbf824ec7560863dc71e3e0c0",
    ),
]


@pytest.mark.parametrize(("key", "nonce", "aad", "content", "expected"), GCM)
def test_gcm(key: str, nonce: str, aad: str, content: str, expected: str) -> None:
    cipher = KeyCipher(bytes.fromhex(key))
    given = bytes.fromhex(nonce)
    module = cipher.seal(bytes.fromhex(content), ModuleType.DATA_PAGE, bytes.fromhex(aad), lambda _: given)
    assert module == len(module[4:]).to_bytes(4, "little") + given + bytes.fromhex(expected)
    opened = cipher.open(memoryview(module), ModuleType.DATA_PAGE, bytes.fromhex(aad))
    assert opened == bytes.fromhex(content)


@pytest.mark.parametrize(("key", "nonce", "expected"), CTR)
def test_counter_mode(key: str, nonce: str, expected: str) -> None:
    cipher = KeyCipher(bytes.fromhex(key), tagged_pages=False)
    given = bytes.fromhex(nonce)
    module = cipher.seal(b"Single block msg", ModuleType.DATA_PAGE, b"", lambda _: given)
    assert module == b"\x1c\0\0\0" + given + bytes.fromhex(expected)
    assert cipher.open(memoryview(module), ModuleType.DATA_PAGE, b"") == b"Single block msg"
