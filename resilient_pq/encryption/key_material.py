"""Key material: what a file, or the file of JSON beside it, says of a wrapped key, in the form of parquet-java."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from resilient_pq.errors import FormatError, NotFoundError, Where, located
from resilient_pq.io import ReadStore
from resilient_pq.io.partial_file import SUFFIX
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.parity.sidecar import file_name

_TYPE: Final = "PKMT1"
#: How the material of the footer is called in a file beside the data.
FOOTER_REFERENCE: Final = "footerKey"
#: A file of key material has some 400 bytes for each column with a key of its own; a larger one than this is not read.
_MAX_BYTES: Final = 64 << 20

T = TypeVar("T", str, bool)


@dataclass(frozen=True, slots=True)
class KeyMaterial:
    """A data key as it is stored: wrapped by a master key, or by a key encryption key (KEK) that a master key wraps."""

    master_key_id: str  # What the KMS calls the master key
    wrapped_key: str  # The data key: what the KMS made of it, or nonce, ciphertext and tag in base64
    is_footer: bool  # Whether it is the key of a footer
    kek_id: str | None = None  # The id of the KEK in base64; None where the master key wraps the data key itself
    wrapped_kek: str | None = None  # What the KMS made of the KEK

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> KeyMaterial:
        """The material in a JSON object; what it says of the address of a KMS is left aside."""
        is_double = _field(fields, "doubleWrapping", bool)
        return cls(
            _field(fields, "masterKeyID", str),
            _field(fields, "wrappedDEK", str),
            _field(fields, "isFooterKey", bool),
            _field(fields, "keyEncryptionKeyID", str) if is_double else None,
            _field(fields, "wrappedKEK", str) if is_double else None,
        )

    def to_json(self, *, internal: bool) -> str:
        """The JSON object: key metadata of a file if `internal`, else a value in a file of key material."""
        fields: dict[str, Any] = {"keyMaterialType": _TYPE}
        if internal:
            fields["internalStorage"] = True
        fields["isFooterKey"] = self.is_footer
        if self.is_footer:  # other readers look for these
            fields |= {"kmsInstanceID": "DEFAULT", "kmsInstanceURL": "DEFAULT"}
        fields |= {"masterKeyID": self.master_key_id, "wrappedDEK": self.wrapped_key}
        fields["doubleWrapping"] = self.kek_id is not None
        if self.kek_id is not None:
            fields |= {"keyEncryptionKeyID": self.kek_id, "wrappedKEK": self.wrapped_kek}
        return _json(fields)


def parse_key_metadata(key_metadata: bytes) -> KeyMaterial | str:
    """The material in key metadata, or its name in the file of key material."""
    fields = _object(key_metadata, "the key metadata")
    internal = _field(fields, "internalStorage", bool)
    return KeyMaterial.parse(fields) if internal else _field(fields, "keyReference", str)


def reference_metadata(name: str) -> str:
    """The key metadata of a key whose material is called so in the file of key material."""
    return _json({"keyMaterialType": _TYPE, "internalStorage": False, "keyReference": name})


def material_key(store: ReadStore, key: str) -> str:
    """Where the key material of a file lies; of one that is being written, where that of the whole file lies."""
    return store.beside(key, f"_KEY_MATERIAL_FOR_{file_name(key).removesuffix(SUFFIX)}.json")


def material_file(materials: Mapping[str, KeyMaterial]) -> bytes:
    """A file of key material."""
    return _json({name: material.to_json(internal=False) for name, material in materials.items()}).encode()


async def read_materials(store: ReadStore, key: str) -> dict[str, KeyMaterial]:
    """The key material beside a file, by name."""
    beside = material_key(store, key)
    with located(Where(key=store.url_of(beside))):
        try:
            tail = await store.read_tail(beside, _MAX_BYTES)
        except NotFoundError as error:
            error.hint = error.hint or "the file of key material belongs beside the encrypted file: copy it there, too"
            raise
        if tail.info.size > _MAX_BYTES:
            raise FormatError(f"a file of key material has at most {_MAX_BYTES:,} bytes, not {tail.info.size:,}")
        values = _object(bytes(tail.data), "the file of key material", of_type=None)
        return {name: KeyMaterial.parse(_object(each, "a key in it")) for name, each in values.items()}


def from_base64(text: str, what: str) -> bytes:
    """Bytes in base64, without anything between."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise FormatError(f"{what} is not in base64") from None


def _json(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))


def _object(text: object, what: str, of_type: str | None = _TYPE) -> dict[str, Any]:
    """A JSON object, of a type that it names."""
    try:
        found = json.loads(text) if isinstance(text, str | bytes) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or (of_type is not None and found.get("keyMaterialType") != of_type):
        hint = "KeyTools reads files whose keys KeyTools, or the key tools of Arrow or parquet-java, made"
        raise FormatError(f"{what} is not key material of type {_TYPE}", hint=hint)
    return found


def _field(fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name)
    if not isinstance(value, kind):
        raise FormatError(f"the key material has no {name}, or not as {'text' if kind is str else 'true or false'}")
    return value
