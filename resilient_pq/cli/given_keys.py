"""Keys of encrypted files on the command line: from a file, or from a command, and never in an argument itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Final

import typer

from resilient_pq.cli.key_command import printed_by
from resilient_pq.errors import OptionError
from resilient_pq.format.crypto.modules import checked_key

#: The verbs that take keys, and those of them that write encrypted files.
WITH_KEYS: Final = frozenset({"cat", "head", "schema", "count", "stats", "diff", "inspect", "write"})
ENCRYPTING: Final = frozenset({"write"})

KeysFile = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help='Keys of encrypted files: a JSON object such as {"footer": "...", "ssn": "..."}, whose names are key'
        ' metadata or columns, and "footer". Keys are base64, or 32, 48 or 64 hexadecimal digits.',
    ),
]
KeyCommand = Annotated[
    str | None,
    typer.Option(
        "--key-command",
        metavar="COMMAND",
        help="A command that prints a key of encrypted files, in the same form: it gets the key metadata on stdin, and"
        " as RPQ_KEY_METADATA. An exit status other than 0 says that there is no such key.",
    ),
]
AadPrefix = Annotated[
    str | None,
    typer.Option("--aad-prefix", metavar="TEXT", help="The AAD prefix of encrypted files that do not store it."),
]
Encrypt = Annotated[
    str | None,
    typer.Option(
        "--encrypt",
        metavar="NAME",
        help="Encrypt the new file, footer and all columns, with the key of this name: of --keys, or what --key-command"
        " prints for it. The name is written into the file, so that the same options read it.",
    ),
]
EncryptColumn = Annotated[
    list[str] | None,
    typer.Option(
        "--encrypt-column",
        metavar="COLUMN=NAME",
        help="Encrypt a column, and what is in it, with another key; may be repeated.",
    ),
]
PlaintextColumns = Annotated[
    str | None,
    typer.Option("--plaintext-columns", metavar="NAME,NAME", help="With --encrypt: leave these columns in the clear."),
]
PlaintextFooter = Annotated[
    bool,
    typer.Option(
        "--plaintext-footer",
        help="With --encrypt: sign the footer only, so that anybody can read the schema, the number of rows, and the"
        " columns that are in the clear.",
    ),
]
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{48}|[0-9A-Fa-f]{64})")


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """How encrypted files are opened: arguments of `open` and its like; the same as options; what is to be told.

    Attributes:
        opening: The arguments `keys` and `aad_prefix`, where they were given.
        arguments: The same for another command.
        left_out: What another command needs besides.
        note: What is wrong with the file of keys.
        encrypting: What to encrypt with which keys, and other arguments of `Encryption`; None for nothing.
    """

    opening: Mapping[str, Any] = field(default_factory=dict, repr=False)
    arguments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    note: str | None = None
    encrypting: tuple[str, Mapping[str, str], Mapping[str, Any]] | None = None

    @property
    def reopening(self) -> Mapping[str, Any]:
        """The arguments by which a file that was written is opened."""
        return {} if self.encrypting is None else self.opening

    async def writing(self) -> dict[str, Any]:
        """The argument `encryption` of `create` and its like, where a file is to be encrypted."""
        if self.encrypting is None:
            return {}
        from resilient_pq.encryption.encryption import Encryption  # noqa: PLC0415 (few files are encrypted)

        footer, columns, rest = self.encrypting
        return {
            "encryption": Encryption(
                footer_key=await self._key_called(footer),
                footer_key_metadata=footer.encode(),
                column_keys={column: await self._key_called(name) for column, name in columns.items()},
                column_key_metadata={column: name.encode() for column, name in columns.items()},
                aad_prefix=self.opening.get("aad_prefix"),
                **rest,
            )
        }

    async def _key_called(self, name: str) -> bytes:
        keys = self.opening["keys"]
        found: bytes | None = keys.get(name) if isinstance(keys, Mapping) else await keys(name.encode())
        if found is None:
            raise OptionError(f"--keys has no key called {name!r}")
        return found


NO_KEYS: Final = GivenKeys()


def given_keys(keys: str | None, key_command: str | None, aad_prefix: str | None) -> GivenKeys:
    """Combine ``--keys``, ``--key-command`` and ``--aad-prefix``."""
    opening: dict[str, Any] = {}
    arguments: list[str] = []
    if keys is not None and key_command is not None:
        raise typer.BadParameter("keys come from a file or from a command, not from both", param_hint="--keys")
    if keys is not None:
        opening["keys"] = _read_keys(keys)
        arguments += ["--keys", keys]
    if key_command is not None:
        opening["keys"] = partial(_key_from, _words(key_command))
    if aad_prefix is not None:
        opening["aad_prefix"] = aad_prefix.encode("utf-8", "surrogateescape")
        arguments += ["--aad-prefix", aad_prefix]
    left_out = () if key_command is None else ("--key-command ...",)  # there may be a password in it
    return GivenKeys(opening, tuple(arguments), left_out, None if keys is None else _permissions(keys))


def with_encryption(
    keys: GivenKeys,
    encrypt: str | None,
    encrypt_column: Sequence[str] | None,
    plaintext_columns: str | None,
    plaintext_footer: bool,
) -> GivenKeys:
    """The keys, and what ``--encrypt`` and the options beside it say."""
    if encrypt is None:
        if encrypt_column or plaintext_columns or plaintext_footer:
            raise typer.BadParameter("name the key of the footer, and of all other columns", param_hint="--encrypt")
        return keys
    if "keys" not in keys.opening:
        raise typer.BadParameter("the key comes from --keys or --key-command", param_hint="--encrypt")
    columns = {}
    for pair in encrypt_column or ():
        column, _, name = pair.rpartition("=")
        if not column or not name or column in columns:
            raise typer.BadParameter(f"{pair!r} is not COLUMN=NAME, once each", param_hint="--encrypt-column")
        columns[column] = name
    plain = [] if plaintext_columns is None else plaintext_columns.split(",")
    rest = {"plaintext_columns": plain, "plaintext_footer": plaintext_footer}
    return replace(keys, encrypting=(encrypt, columns, rest))


def key_of_text(text: str) -> bytes:
    """A key in base64, or of 32, 48 or 64 hexadecimal digits.

    Raises:
        OptionError: It is none; the error says nothing of the text.
    """
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    try:
        return checked_key(b64decode(text.translate({ord("-"): "+", ord("_"): "/"}), validate=True))
    except ValueError as error:
        if isinstance(error, OptionError):
            raise
        raise OptionError("the key is neither base64 nor hexadecimal") from None


def _read_keys(path: str) -> dict[str, bytes]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            found = json.load(file)
    except OSError as error:
        raise _wrong(f"{path!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):  # whose text has some of what is in the file
        raise _wrong(f"{path!r} is not JSON") from None
    if not isinstance(found, dict):
        raise _wrong(f'{path!r} is not a JSON object, such as {{"footer": "..."}}')
    keys = {}
    for name, text in found.items():
        try:
            keys[name] = key_of_text(text if isinstance(text, str) else "")
        except OptionError as error:
            called = "" if _is_key(name) else f" called {name!r}"  # where names and keys are exchanged
            raise _wrong(f"{path!r}: the key{called} cannot be used: {error.message}") from None
    return keys


def _is_key(text: str) -> bool:
    try:
        return bool(key_of_text(text))
    except OptionError:
        return False


async def _key_from(command: Sequence[str], key_metadata: bytes) -> bytes:
    """The key that a command prints."""
    printed = await printed_by(command, key_metadata)
    try:
        return key_of_text(printed.decode("ascii", "replace").strip())
    except OptionError as error:
        raise OptionError(f"the key command {command[0]!r} printed no key: {error.message}") from None


def _wrong(message: str) -> typer.BadParameter:
    return typer.BadParameter(message, param_hint="--keys")


def _permissions(path: str) -> str | None:
    """What to tell of a file that others can read."""
    if os.name != "posix" or not os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    return f"others can read the keys in {path}: chmod 600 {shlex.quote(path)}"


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"it is not a command: {error}", param_hint="--key-command") from None
    if not words:
        raise typer.BadParameter("it is empty", param_hint="--key-command")
    return words
