"""Envelope keys: data keys that a key management service (KMS) wraps, stored in the file or beside it."""

from __future__ import annotations

import asyncio
import copy
import os
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakValueDictionary

from resilient_pq.encryption.encryption import Encryption, check_columns
from resilient_pq.encryption.key_material import (
    FOOTER_REFERENCE,
    KeyMaterial,
    from_base64,
    material_file,
    material_key,
    parse_key_metadata,
    read_materials,
    reference_metadata,
)
from resilient_pq.encryption.keys import DecryptionKeys, FilePlace, answer_of
from resilient_pq.errors import AlreadyExistsError, AuthenticationError, FormatError, OptionError, Where
from resilient_pq.format.crypto.modules import KEY_SIZES, LENGTH_SIZE, KeyCipher, ModuleType, WrongTagError, checked_key
from resilient_pq.format.schema_tree import Schema
from resilient_pq.io import WRITING, RetryPolicy, WriteStore, place_of, with_retry
from resilient_pq.io.cancellation import all_or_none
from resilient_pq.io.resolve import Location

#: How the material of a column is called in a file beside the data.
_COLUMN_REFERENCE: Final = "columnKey{}"
#: The ids of KEKs are so many random bytes.
_KEK_ID_SIZE: Final = 16
#: What a KEK is cached under: for writing, the id of its master key; for reading, what it is wrapped as, too.
_KekName: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Kek:
    """A key encryption key: data keys are wrapped with it, and it with a master key."""

    cipher: KeyCipher
    id: bytes
    wrapped: str

    def wrap(self, key: bytes) -> str:
        """A data key as nonce, ciphertext and tag in base64: a module without its length."""
        return b64encode(self.cipher.seal(key, ModuleType.FOOTER, self.id, os.urandom)[LENGTH_SIZE:]).decode()

    def unwrap(self, wrapped: str) -> bytes:
        """The data key that `wrap` made this of."""
        module = bytes(LENGTH_SIZE) + from_base64(wrapped, "a wrapped key")
        if len(module) - self.cipher.overhead(ModuleType.FOOTER) not in KEY_SIZES:
            raise FormatError("the key material has a wrapped key of a size that no key has")
        try:
            return bytes(self.cipher.open(memoryview(module), ModuleType.FOOTER, self.id))
        except WrongTagError:
            raise AuthenticationError("the key material was changed: its data key does not open") from None


@dataclass(repr=False, eq=False)
class KeyTools:
    """Data keys of files, made and wrapped through a key management service (KMS): envelope encryption.

    Each file gets random data keys. What the KMS makes of them is stored with the file, as the key tools of Arrow and
    parquet-java do it, so that these read the files, and `KeyTools` reads theirs. Pass it as ``keys=`` to read, and
    what `encryption` gives as ``encryption=`` to write. It may be used for any number of files.

    What a file says of the address of a KMS is never followed.

    Args:
        kms: The service: an object with ``wrap_key(key_bytes, master_key_identifier)``, which returns text such as
            base64, and ``unwrap_key(wrapped_key, master_key_identifier)``, which gets that text and returns the key.
            Either may be ``async``; others are called in threads, several at once. Where it raises a
            `PermissionError` or a `LookupError`, the key counts as one that was not given: other columns can be read.
            An object of ``pyarrow.parquet.encryption.KmsClient`` is such a service.
        double_wrapping: Encrypt data keys with key encryption keys (KEKs), which the KMS wraps: one request for each
            master key, not for each column of each file.
        cache_lifetime: How long KEKs are kept in memory, in seconds or as a `timedelta`.
        internal_key_material: Store the wrapped keys in the file. False stores them beside it, in
            ``_KEY_MATERIAL_FOR_<name>.json``, where `rotate_master_keys` can wrap them anew.
        data_key_length_bits: The length of data keys that are made: 128, 192 or 256.

    Raises:
        OptionError: Keys have no such length.
    """

    kms: Any
    _: KW_ONLY
    double_wrapping: bool = True
    cache_lifetime: float | timedelta = 600.0
    internal_key_material: bool = True
    data_key_length_bits: int = 128

    def __post_init__(self) -> None:
        """Nothing is asked of the KMS yet."""
        if self.data_key_length_bits not in [size * 8 for size in KEY_SIZES]:
            raise OptionError(f"data_key_length_bits is {self.data_key_length_bits}; it is 128, 192 or 256")
        #: KEKs, and when they are too old.
        self._keks: dict[_KekName, tuple[_Kek, float]] = {}
        #: Whoever asks for a KEK, by event loop; a lock is there while somebody has it.
        self._turns: WeakValueDictionary[tuple[int, _KekName], asyncio.Lock] = WeakValueDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes: the options, and no key."""
        return partial(KeyTools, **{each.name: getattr(self, each.name) for each in fields(self)}), ()

    def __repr__(self) -> str:
        """How keys are wrapped, and none of them."""
        wrapping = "double" if self.double_wrapping else "single"
        return f"KeyTools({wrapping} wrapping, {'internal' if self.internal_key_material else 'external'} material)"

    def encryption(
        self,
        footer_key: str,
        column_keys: Mapping[str, Sequence[str]] | None = None,
        *,
        overwrite: bool = False,
        **options: Any,
    ) -> EnvelopeEncryption:
        """How files are to be encrypted: pass it as ``encryption=``. Each file gets keys of its own.

        ``await`` gives an `Encryption` with keys that are made now, where their material is internal.

        Args:
            footer_key: The id of the master key of footers, and of columns that are not named.
            column_keys: The columns that have a key of their own, by the id of their master key:
                ``{"customer-data": ["ssn", "address"]}``.
            overwrite: Replace key material that lies beside a file already; that file can then no longer be read.
            options: Other arguments of `Encryption`: ``plaintext_columns``, ``plaintext_footer``, ``algorithm``,
                ``aad_prefix``, ``store_aad_prefix``.

        Raises:
            OptionError: A column is named twice.
        """
        masters: dict[str, str] = {}
        for master_key, columns in (column_keys or {}).items():
            for column in [columns] if isinstance(columns, str) else columns:
                if masters.setdefault(column, master_key) != master_key:
                    raise OptionError(f"column {column!r} has two master keys, {masters[column]!r} and {master_key!r}")
        return EnvelopeEncryption(self, footer_key, masters, overwrite, options)

    def keys_of(self, place: FilePlace | None) -> Callable[[bytes], Awaitable[bytes]]:
        """A function that gives the keys of the file at a place, by their key metadata; `open` asks it."""
        return _FileKeys(self, place)

    async def wrapped(self, key: bytes, master_key_id: str, *, is_footer: bool) -> KeyMaterial:
        """The material of a data key, wrapped by a master key or by a KEK of it."""
        if not self.double_wrapping:
            return KeyMaterial(master_key_id, await self._wrap(key, master_key_id), is_footer)
        kek = await self._kek((master_key_id,), partial(self._new_kek, master_key_id))
        return KeyMaterial(master_key_id, kek.wrap(key), is_footer, b64encode(kek.id).decode(), kek.wrapped)

    async def unwrapped(self, material: KeyMaterial) -> bytes:
        """The data key that some material has."""
        master_key_id, kek_id, wrapped_kek = material.master_key_id, material.kek_id, material.wrapped_kek
        if kek_id is None or wrapped_kek is None:
            return await self._unwrap(material.wrapped_key, master_key_id)
        name = (master_key_id, kek_id, wrapped_kek)
        kek = await self._kek(name, partial(self._found_kek, *name))
        return kek.unwrap(material.wrapped_key)

    async def rewrapped(self, material: KeyMaterial) -> KeyMaterial:
        """The same data key, wrapped anew and proven to come out of it again."""
        key = await self.unwrapped(material)
        anew = await self.wrapped(key, material.master_key_id, is_footer=material.is_footer)
        if await self.unwrapped(anew) != key:
            raise OptionError("unwrap_key of the KMS gives another key than wrap_key got; nothing was changed")
        return anew

    def new_key(self) -> bytes:
        """A random key."""
        return os.urandom(self.data_key_length_bits // 8)

    async def _kek(self, name: _KekName, make: Callable[[], Awaitable[_Kek]]) -> _Kek:
        """A KEK, made once by whoever asks first."""
        turn = self._turns.setdefault((id(asyncio.get_running_loop()), name), asyncio.Lock())
        lifetime = self.cache_lifetime
        async with turn:
            now = time.monotonic()
            self._keks = {each: (kek, until) for each, (kek, until) in self._keks.items() if until > now}
            if name not in self._keks:
                seconds = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
                self._keks[name] = await make(), now + seconds
            return self._keks[name][0]

    async def _new_kek(self, master_key_id: str) -> _Kek:
        key = self.new_key()
        return _Kek(KeyCipher(key), os.urandom(_KEK_ID_SIZE), await self._wrap(key, master_key_id))

    async def _found_kek(self, master_key_id: str, kek_id: str, wrapped_kek: str) -> _Kek:
        key = await self._unwrap(wrapped_kek, master_key_id)
        return _Kek(KeyCipher(key), from_base64(kek_id, "the id of a key encryption key"), wrapped_kek)

    async def _wrap(self, key: bytes, master_key_id: str) -> str:
        wrapped = await answer_of(self.kms.wrap_key, key, master_key_id)
        if isinstance(wrapped, bytes) and wrapped.isascii():
            return wrapped.decode()
        if not isinstance(wrapped, str):
            raise OptionError("wrap_key of the KMS gave no text", hint="let it return the wrapped key in base64")
        return wrapped

    async def _unwrap(self, wrapped: str, master_key_id: str) -> bytes:
        key = await answer_of(self.kms.unwrap_key, wrapped, master_key_id)
        try:
            return checked_key(key)
        except OptionError as error:
            raise OptionError(f"unwrap_key of the KMS gave no key: {error.message}") from None


class _FileKeys:
    """The keys of one file; `portable` has the material that lies beside it as key metadata, by those of the file."""

    def __init__(self, tools: KeyTools, place: FilePlace | None) -> None:
        self.portable: dict[bytes, bytes] = {}
        self._tools, self._place = tools, place
        self._turn = asyncio.Lock()
        self._beside: dict[str, KeyMaterial] | None = None

    async def __call__(self, key_metadata: bytes) -> bytes:
        material = parse_key_metadata(key_metadata)
        if not isinstance(material, KeyMaterial):
            material = await self._material_called(material)
            self.portable[key_metadata] = material.to_json(internal=True).encode()
        return await self._tools.unwrapped(material)

    async def _material_called(self, name: str) -> KeyMaterial:
        if self._place is None:
            raise FormatError("the key material lies beside the file, and it is not known where that is")
        async with self._turn:
            if self._beside is None:
                self._beside = await read_materials(*self._place)
        if name not in self._beside:
            where = Where(key=self._place[0].url_of(material_key(*self._place)))
            raise FormatError(f"the file of key material has nothing called {name[:40]!r}", where=where)
        return self._beside[name]


@dataclass(frozen=True, slots=True)
class EnvelopeEncryption:
    """How files are encrypted with new keys of `KeyTools` for each: ids of master keys, and options of `Encryption`."""

    tools: KeyTools
    footer_key: str = field(repr=False)
    column_keys: Mapping[str, str] = field(repr=False)
    overwrite: bool = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)

    def __await__(self) -> Generator[Any, None, Encryption]:
        """An `Encryption` with keys that are made now."""
        return self.for_file(None).__await__()

    def check_names(self, schema: Schema) -> None:
        """Refuse names of columns that are not there."""
        check_columns(schema, [*self.column_keys, *self.options.get("plaintext_columns", ())])

    def reading(self) -> dict[str, Any]:
        """The arguments of `open` by which the files are read."""
        return {"keys": self.tools, "aad_prefix": self.options.get("aad_prefix")}

    async def for_file(self, place: tuple[WriteStore, str] | None) -> Encryption:
        """New keys for the file at a place, their material stored there if that is external."""
        tools, masters = self.tools, [self.footer_key, *self.column_keys.values()]
        keys = [tools.new_key() for _ in masters]
        places = enumerate(zip(keys, masters, strict=True))
        materials = await all_or_none(tools.wrapped(key, master, is_footer=not i) for i, (key, master) in places)
        if tools.internal_key_material:
            metadata = [material.to_json(internal=True) for material in materials]
        else:
            metadata = await self._store_beside(place, materials)
        columns = [*zip(self.column_keys, keys[1:], metadata[1:], strict=True)]
        return Encryption(
            footer_key=keys[0],
            footer_key_metadata=metadata[0].encode(),
            column_keys={column: key for column, key, _ in columns},
            column_key_metadata={column: about.encode() for column, _, about in columns},
            **self.options,
        )

    async def of_unfinished(
        self, keys: DecryptionKeys, footer_key: bytes | None, column_keys: Mapping[str, bytes | None]
    ) -> Encryption:
        """The keys that a file names by key metadata; a column that is in no row group yet may get a new one."""
        about, found = {}, {}
        for i, (column, master) in enumerate(self.column_keys.items()):
            named = next((each for path, each in column_keys.items() if f"{path}.".startswith(f"{column}.")), None)
            if named is None and self.tools.internal_key_material:
                material = await self.tools.wrapped(self.tools.new_key(), master, is_footer=False)
                named = material.to_json(internal=True).encode()
            about[column] = named or reference_metadata(_COLUMN_REFERENCE.format(i)).encode()
            if (key := await keys.key_of(about[column], column)) is None:
                raise keys.missing(about[column], column)
            found[column] = key
        key = await keys.key_of(footer_key, None)
        assert key is not None  # its footer was opened
        return Encryption(key, found, footer_key_metadata=footer_key, column_key_metadata=about, **self.options)

    async def _store_beside(self, place: tuple[WriteStore, str] | None, materials: Sequence[KeyMaterial]) -> list[str]:
        """Store material beside a file; gives the key metadata that name it."""
        if place is None:
            raise OptionError("the key material lies beside the file", hint="pass this as encryption=, without await")
        store, names = place[0], [FOOTER_REFERENCE, *map(_COLUMN_REFERENCE.format, range(len(self.column_keys)))]
        try:
            stored = material_file(dict(zip(names, materials, strict=True)))
            await store.put(material_key(*place), stored, if_none_match=not self.overwrite)
        except AlreadyExistsError as error:
            error.hint = "it opens another file of this name: delete both, or let KeyTools.encryption overwrite it"
            raise
        return [reference_metadata(name) for name in names]


async def rotate_master_keys(
    url: Location,
    tools: KeyTools,
    *,
    storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
) -> int:
    """Wrap the keys of a file anew, with the present versions of their master keys; the file itself is not changed.

    The key material has to lie beside the file (``KeyTools(internal_key_material=False)``). It is replaced at once when
    every key has been wrapped and unwrapped again.

    Args:
        url: The encrypted file: a URL, a path, or a pair of a store and a key in it.
        tools: Reaches the KMS, and says whether keys are wrapped once or twice.
        storage_options: As for `open`.
        retry: How long requests are tried again while the store does not answer; None is 120 s.

    Returns:
        How many keys were wrapped.

    Raises:
        NotFoundError: No key material lies beside the file.
        FormatError: It is none.
    """
    async with place_of(url, with_retry(storage_options, retry), retry=WRITING) as (store, key):
        materials = await read_materials(store, key)
        fresh = copy.copy(tools)  # which has no key encryption keys yet
        rewrapped = await all_or_none(fresh.rewrapped(material) for material in materials.values())
        await store.put(material_key(store, key), material_file(dict(zip(materials, rewrapped, strict=True))))
    return len(materials)
