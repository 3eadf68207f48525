"""Keys of encrypted files on the command line: from a file, or from a command, and never in an argument itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import stat
from asyncio.subprocess import PIPE
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Final

import typer

from resilient_pq.errors import KeyMissingError, OptionError
from resilient_pq.format.crypto.modules import checked_key
from resilient_pq.lazy_dataclass import dataclass

#: The verbs that write encrypted files, and all that take keys.
ENCRYPTING: Final = frozenset({"write", "resume", "convert"})
WITH_KEYS: Final = ENCRYPTING | {
    "cat",
    "head",
    "tail",
    "schema",
    "count",
    "stats",
    "diff",
    "inspect",
    "check",
    "recover",
}


def _option(kind: Any, flag: str, metavar: str | None, text: str) -> tuple[Any, Any]:
    return Annotated[kind, typer.Option(flag, metavar=metavar, help=text)], False if kind is bool else None


#: The options of verbs that open encrypted files, and of those that write them: how they are declared, and what they
#: are where they are not given.
OPENING: Final = {
    "keys": _option(
        str | None,
        "--keys",
        "FILE",
        'Keys of encrypted files: a JSON object such as {"footer": "...", "ssn": "..."}. A name is "footer", a column,'
        " or the key metadata in the file. Keys are base64, or 32, 48 or 64 hexadecimal digits.",
    ),
    "key_command": _option(
        str | None,
        "--key-command",
        "COMMAND",
        "A command that prints a key of encrypted files, in the same form: it gets the key metadata on stdin, and as"
        " RPQ_KEY_METADATA. An exit status other than 0 says that there is no such key.",
    ),
    "aad_prefix": _option(str | None, "--aad-prefix", "TEXT", "The AAD prefix of encrypted files."),
    "allow_incomplete": _option(
        bool,
        "--allow-incomplete",
        None,
        "Read encrypted files that are not complete, too: what they lack may have been cut off on purpose.",
    ),
}
SEALING: Final = {
    "encrypt": _option(
        str | None,
        "--encrypt",
        "NAME",
        "Encrypt the new file, footer and all columns, with the key of this name: of --keys, or what --key-command"
        " prints for it. The name is written into the file, so that the same options read it.",
    ),
    "encrypt_column": _option(
        list[str] | None,
        "--encrypt-column",
        "COLUMN=NAME",
        "Encrypt a column, and what is in it, with another key; may be repeated.",
    ),
    "plaintext_columns": _option(
        str | None, "--plaintext-columns", "NAME,NAME", "With --encrypt: leave these columns in the clear."
    ),
    "plaintext_footer": _option(
        bool,
        "--plaintext-footer",
        None,
        "With --encrypt: sign the footer only, so that anybody can read the schema, the number of rows, and the columns"
        " that are in the clear.",
    ),
}
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{48}|[0-9A-Fa-f]{64})")
#: Names of this length may be keys that were exchanged with their names.
_AS_LONG_AS_A_KEY: Final = 22


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """How encrypted files are opened and written."""

    # The arguments `keys` and `aad_prefix` of `open` and its like, where they were given
    opening: Mapping[str, Any] = field(default_factory=dict, repr=False)
    reading: Mapping[str, Any] = field(default_factory=dict, repr=False)  # The same, and `require_complete`
    arguments: tuple[str, ...] = ()  # The same for another command
    left_out: tuple[str, ...] = ()  # What another command needs besides
    note: str | None = None  # On what is wrong with the file of keys
    # The name of the footer key, those of columns, and other arguments of `Encryption`; None for nothing
    sealing: tuple[str, Mapping[str, str], Mapping[str, Any]] | None = None

    @property
    def reopening(self) -> Mapping[str, Any]:
        """The arguments by which a file that was written is opened."""
        return {} if self.sealing is None else self.opening

    def refuse_many(self) -> None:
        """Refuse keys where many files are examined at once."""
        if self.opening:
            raise OptionError("keys are taken for one file", hint="name the encrypted files one by one")

    async def writing(self) -> dict[str, Any]:
        """The argument `encryption` of `create` and its like, where a file is to be encrypted."""
        if self.sealing is None:
            return {}
        from resilient_pq.encryption.encryption import Encryption  # noqa: PLC0415 (few files are encrypted)

        footer, columns, rest = self.sealing
        encryption = Encryption(
            footer_key=await self._key_called(footer),
            footer_key_metadata=footer.encode(),
            column_keys={column: await self._key_called(name) for column, name in columns.items()},
            column_key_metadata={column: name.encode() for column, name in columns.items()},
            aad_prefix=self.opening.get("aad_prefix"),
            **rest,
        )
        return {"encryption": encryption}

    async def _key_called(self, name: str) -> bytes:
        keys = self.opening["keys"]
        found: bytes | None = keys.get(name) if isinstance(keys, Mapping) else await keys(name.encode())
        if found is None:
            raise OptionError(f"--keys has no key called {name!r}")
        return found


NO_KEYS: Final = GivenKeys()


def given_keys(
    keys: str | None,
    key_command: str | None,
    aad_prefix: str | None,
    allow_incomplete: bool,
    encrypt: str | None = None,
    encrypt_column: Sequence[str] | None = None,
    plaintext_columns: str | None = None,
    plaintext_footer: bool = False,
) -> GivenKeys:
    """Combine the options of `OPENING` and `SEALING`."""
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
    sealing = _sealing("keys" in opening, encrypt, encrypt_column or (), plaintext_columns, plaintext_footer)
    reading = {**opening, "require_complete": False} if allow_incomplete else opening
    return GivenKeys(
        opening, reading, tuple(arguments), left_out, None if keys is None else _permissions(keys), sealing
    )


def _sealing(
    has_keys: bool,
    encrypt: str | None,
    encrypt_column: Sequence[str],
    plaintext_columns: str | None,
    plaintext_footer: bool,
) -> tuple[str, Mapping[str, str], Mapping[str, Any]] | None:
    if encrypt is None:
        if encrypt_column or plaintext_columns or plaintext_footer:
            raise typer.BadParameter("name the key of the footer, and of all other columns", param_hint="--encrypt")
        return None
    if not has_keys:
        raise typer.BadParameter("the key comes from --keys or --key-command", param_hint="--encrypt")
    plain = [] if plaintext_columns is None else plaintext_columns.split(",")
    return encrypt, _columns(encrypt_column), {"plaintext_columns": plain, "plaintext_footer": plaintext_footer}


def key_of_text(text: object) -> bytes:
    """A key in base64, or of 32, 48 or 64 hexadecimal digits; its errors say nothing of the text."""
    if not isinstance(text, str):
        raise OptionError("it is not a text")
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    try:
        found = b64decode(text.translate({ord("-"): "+", ord("_"): "/"}), validate=True)
    except ValueError:
        raise OptionError("the key is neither base64 nor hexadecimal") from None
    return checked_key(found)


def _read_keys(path: str) -> dict[str, bytes]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            found = json.load(file)
    except OSError as error:
        raise typer.BadParameter(f"{path!r} cannot be read: {error.strerror}", param_hint="--keys") from None
    except (ValueError, RecursionError):  # whose text has some of what is in the file
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter(f'{path!r} is not a JSON object, such as {{"footer": "..."}}', param_hint="--keys")
    keys = {}
    for name, text in found.items():
        try:
            keys[name] = key_of_text(text)
        except OptionError as error:
            called = f" called {name!r}" if len(name) < _AS_LONG_AS_A_KEY else ""
            message = f"{path!r}: the key{called} cannot be used: {error.message}"
            raise typer.BadParameter(message, param_hint="--keys") from None
    return keys


async def _key_from(command: Sequence[str], key_metadata: bytes) -> bytes:
    """The key that a command prints."""
    printed = await printed_by(command, key_metadata)
    try:
        return key_of_text(printed.decode("ascii", "replace").strip())
    except OptionError as error:
        raise OptionError(f"the key command {command[0]!r} printed no key: {error.message}") from None


def _columns(pairs: Sequence[str]) -> dict[str, str]:
    """The columns of ``COLUMN=NAME``, each with the name of its key."""
    columns: dict[str, str] = {}
    for pair in pairs:
        column, _, name = pair.rpartition("=")
        if not column or not name or column in columns:
            raise typer.BadParameter(f"{pair!r} is not COLUMN=NAME, once each", param_hint="--encrypt-column")
        columns[column] = name
    return columns


def _permissions(path: str) -> str | None:
    """What to tell of a file that others can read."""
    if os.name != "posix" or not os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return None
    return f"others can read the keys in {path}: chmod 600 {shlex.quote(path)}"


def _words(command: str) -> list[str]:
    try:
        if words := shlex.split(command):
            return words
    except ValueError:  # a quote is not closed
        pass
    raise typer.BadParameter("it is not a command", param_hint="--key-command")


#: The environment variable that has the key metadata, where they are text and no longer than this.
_VARIABLE: Final = "RPQ_KEY_METADATA"
_MAX_VARIABLE: Final = 4096


async def printed_by(command: Sequence[str], key_metadata: bytes) -> bytes:
    """What a command prints for some key metadata, which no shell sees; it is killed where its caller is cancelled."""
    environment = {name: value for name, value in os.environ.items() if name != _VARIABLE}
    with suppress(UnicodeDecodeError):
        text = key_metadata.decode()
        if len(text) <= _MAX_VARIABLE and "\0" not in text:
            environment[_VARIABLE] = text
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, env=environment)
    except OSError as error:
        raise OptionError(f"the key command {command[0]!r} cannot be started: {error.strerror}") from error
    try:
        printed, _ = await process.communicate(key_metadata)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode:
        raise KeyMissingError(f"the key command {command[0]!r} ended with exit status {process.returncode}")
    return printed
