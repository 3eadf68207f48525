"""How a file is encrypted that was opened, so that another one can be written in the same way. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from resilient_pq.encryption.encryption import Encryption
from resilient_pq.format.crypto.file_cipher import AES_GCM, AES_GCM_CTR, FileCipher
from resilient_pq.format.crypto.sealed_footer import SealedFooter
from resilient_pq.format.file_metadata import RowGroup


def encryption_of(
    sealed: SealedFooter,
    cipher: FileCipher,
    footer_key: bytes,
    column_keys: Mapping[str, bytes | None],
    key_metadata: Mapping[str, bytes | None],
    row_groups: Iterable[RowGroup],
    portable: Callable[[bytes | None], bytes | None],
) -> Encryption | None:
    """The same keys, key metadata and modes; None where the key of a column is not known.

    Args:
        sealed: The footer.
        cipher: The ciphers of the file.
        footer_key: The key of the footer.
        column_keys: The keys of columns with a key of their own, by dotted path.
        key_metadata: What the file says of these.
        row_groups: Those that are known, their columns not opened yet.
        portable: Gives key metadata for a file elsewhere (`DecryptionKeys.portable`).
    """
    known = {path: key for path, key in column_keys.items() if key is not None}
    said = {path: portable(about) for path, about in key_metadata.items()}
    if len(known) < len(column_keys):
        return None
    algorithm = sealed.algorithm
    prefix = (
        cipher.file_aad[: len(cipher.file_aad) - len(algorithm.file_unique)]
        if (cipher.file_aad is not None and algorithm.file_unique is not None)
        else b""
    )
    plain = {
        ".".join(chunk.meta_data.path_in_schema or ())
        for row_group in row_groups
        for chunk in row_group.columns
        if chunk.crypto_metadata is None and chunk.meta_data is not None and cipher.file_aad is not None
    }
    return Encryption(
        footer_key,
        column_keys=known,
        plaintext_columns=sorted(plain),
        plaintext_footer=sealed.module is None,
        algorithm=AES_GCM if algorithm.tagged_pages else AES_GCM_CTR,
        aad_prefix=prefix or None,
        store_aad_prefix=not algorithm.prefix_is_supplied,
        footer_key_metadata=portable(sealed.key_metadata),
        column_key_metadata={path: about for path, about in said.items() if about is not None},
    )
