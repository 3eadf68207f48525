"""How a file is encrypted that is written: the options of the caller, and what each column gets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args, runtime_checkable

from resilient_pq.errors import OptionError, SchemaError
from resilient_pq.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from resilient_pq.encryption.keys import DecryptionKeys
    from resilient_pq.format.schema_tree import Leaf, Schema
    from resilient_pq.io import WriteStore

#: Ordinals of columns have 2 bytes (Encryption.md, section 4.4.2).
_MAX_COLUMNS: Final = 0x7FFF

Algorithm = Literal["AES_GCM_V1", "AES_GCM_CTR_V1"]


@runtime_checkable
class EncryptionOfEach(Protocol):
    """Something that gives every file keys of its own, such as `KeyTools.encryption` returns."""

    async def for_file(self, place: tuple[WriteStore, str]) -> Encryption:
        """How the file at a place is encrypted."""

    async def of_unfinished(
        self, keys: DecryptionKeys, footer_key: bytes | None, column_keys: Mapping[str, bytes | None]
    ) -> Encryption:
        """How a file is encrypted that was begun so, by the key metadata in it; columns may be missing."""

    def check_names(self, schema: Schema) -> None:
        """Refuse names of columns that are not there, as `Encryption` does."""

    def reading(self) -> dict[str, Any]:
        """The arguments of `open` by which a file that is encrypted so is read."""


@dataclass(frozen=True, slots=True, repr=False)
class Encryption:
    """How a file is encrypted: Parquet Modular Encryption, which pyarrow, DuckDB, Spark and others read.

    Columns that are not named are encrypted with the footer key: nothing is written in the clear because it was
    forgotten. A name is the dotted path of a column, or of one that it lies in: "address" is all of its fields.

    Args:
        footer_key: The key of the footer and of columns without a key of their own: 16, 24 or 32 random bytes.
        column_keys: Keys of columns, by path.
        plaintext_columns: Paths of columns that are not encrypted.
        plaintext_footer: Leave the footer in the clear, signed with the footer key, so that readers without keys see
            the schema, the number of rows, the key-value metadata and the columns that are not encrypted.
        algorithm: "AES_GCM_V1", or "AES_GCM_CTR_V1", in which pages have no tags: it is not faster here, and tampering
            with a page is found by its CRC32 alone.
        aad_prefix: What binds the file to its place or version, such as its name: a reader who expects another one does
            not open it.
        store_aad_prefix: Whether the file has the prefix; else whoever reads has to pass it.
        footer_key_metadata: What tells a reader which key to take for the footer; b"footer" where nothing is said.
        column_key_metadata: The same of columns, by the names of `column_keys`; their names where nothing is said.

    Raises:
        OptionError: A key is none, or the arguments contradict each other.
        UnsupportedError: The package cryptography is not there.
    """

    footer_key: bytes
    column_keys: Mapping[str, bytes] = field(default_factory=dict)
    plaintext_columns: Sequence[str] = ()
    plaintext_footer: bool = False
    algorithm: Algorithm = "AES_GCM_V1"
    aad_prefix: bytes | None = None
    store_aad_prefix: bool = True
    footer_key_metadata: bytes | None = None
    column_key_metadata: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what can never work; an error shows nothing of a key."""
        from resilient_pq.format.crypto.modules import aes_gcm, checked_key  # noqa: PLC0415 (few files are encrypted)

        self._check_columns_given()
        for name, key in {"footer_key": self.footer_key, **self.column_keys}.items():
            try:
                checked_key(key)
            except OptionError as error:
                raise OptionError(f"{name}: {error.message}") from None
        if self.algorithm not in get_args(Algorithm):
            raise OptionError(f"algorithm is {self.algorithm!r}; it is {' or '.join(get_args(Algorithm))}")
        if both := self.column_keys.keys() & {*self.plaintext_columns}:
            raise OptionError(f"column {min(both)!r} has a key, and is among plaintext_columns")
        if unknown := self.column_key_metadata.keys() - self.column_keys.keys():
            raise OptionError(f"column_key_metadata has {min(unknown)!r}, which has no key in column_keys")
        texts: dict[str, object] = {"aad_prefix": self.aad_prefix, "footer_key_metadata": self.footer_key_metadata}
        texts |= {f"column_key_metadata of {name!r}": about for name, about in self.column_key_metadata.items()}
        for name, value in texts.items():
            if not isinstance(value, bytes | None):
                raise OptionError(f"{name} is {type(value).__name__}; it is bytes")
        if not self.store_aad_prefix and not self.aad_prefix:
            raise OptionError("store_aad_prefix=False needs an aad_prefix, which readers pass")
        aes_gcm()

    def _check_columns_given(self) -> None:
        """Refuse what does not name columns."""
        for name, given in (("column_keys", self.column_keys), ("column_key_metadata", self.column_key_metadata)):
            if not isinstance(given, Mapping) or not all(isinstance(each, str) for each in given):
                raise OptionError(f"{name} is a mapping of the paths of columns")
        columns: object = self.plaintext_columns
        if isinstance(columns, str):
            raise OptionError("plaintext_columns is one string; it is a list of columns")
        if not isinstance(columns, Sequence) or not all(isinstance(each, str) for each in columns):
            raise OptionError("plaintext_columns is a list of the paths of columns")

    def __repr__(self) -> str:
        """How, but no key and no name."""
        footer = "plaintext" if self.plaintext_footer else "encrypted"
        return f"Encryption({self.algorithm}, {footer} footer, {len(self.column_keys)} column keys)"

    def reading(self) -> dict[str, Any]:
        """The arguments of `open` by which a file that is encrypted so is read."""
        return {"keys": {"footer": self.footer_key, **self.column_keys}, "aad_prefix": self.aad_prefix}

    def check_names(self, schema: Schema) -> None:
        """Refuse names of columns that are not there.

        Raises:
            SchemaError: There is no such column, or there are too many of them.
        """
        check_columns(schema, [*self.column_keys, *self.plaintext_columns])

    def name_of(self, leaf: Leaf) -> str | None:
        """The name that stands for a column: its own, or the longest of those that it lies in."""
        return next((name for name in _names(leaf) if name in self.column_keys or name in self.plaintext_columns), None)


def _names(leaf: Leaf) -> list[str]:
    return [".".join(leaf.path[:count]) for count in range(len(leaf.path), 0, -1)]


def check_columns(schema: Schema, names: Sequence[str]) -> None:
    """Refuse names of columns that are not there, and more columns than an encrypted file can have."""
    if len(schema.leaves) > _MAX_COLUMNS:
        raise SchemaError(f"an encrypted file has at most {_MAX_COLUMNS:,} columns, not {len(schema.leaves):,}")
    for name in names:
        if not any(name in _names(leaf) for leaf in schema.leaves):
            raise SchemaError(f"encryption: there is no column {name!r}")
