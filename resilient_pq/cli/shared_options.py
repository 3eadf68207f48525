"""Options that several verbs share, and the forms their values are written in."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import field, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from resilient_pq.cli.given_keys import NO_KEYS, WITH_KEYS, GivenKeys
from resilient_pq.errors import OptionError
from resilient_pq.io import RetryPolicy, with_retry
from resilient_pq.io.location import scrubbed
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.report import Report
from resilient_pq.tables.delta_lake import DeltaTable
from resilient_pq.tables.iceberg import IcebergTable

Url = Annotated[str, typer.Argument(metavar="URL", help="A path or a URL, such as s3://bucket/key.")]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", metavar="URL", help="S3 endpoint; default: AWS_ENDPOINT_URL."),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="A storage option of fsspec or s3fs; may be repeated. VALUE can be JSON: true, 30,"
        ' {"region_name": "eu-west-1"}. Keep credentials in the environment.',
    ),
]
RetryFor = Annotated[
    float | None,
    typer.Option(
        "--retry-for",
        metavar="SECONDS",
        min=0,
        help="How long requests are retried while a store does not answer; default: 120 s for writing, 30 s for"
        " reading.",
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        metavar="iceberg:[CATALOG/]NAME|delta[:URL]",
        help="A data set: the table that each file is committed to, exactly once. CATALOG is a name in pyiceberg's"
        " configuration (default: default), or a folder with its path, ./tables, for a SQLite catalog in it; NAME has a"
        " namespace: iceberg:./tables/web.events. A Delta table is DST or a folder above it.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]

UploadId = Annotated[
    str | None,
    typer.Option("--upload-id", metavar="ID", help="The upload to use, if several are open for this object."),
]
Log = Annotated[
    str | None,
    typer.Option("--log", metavar="FILE", help="The log that the writer kept with --log: it has the numbers of rows."),
]

#: Parts of names whose values are never taken for JSON and never printed.
_CREDENTIALS = ("key", "secret", "token", "password", "credential")
#: Others whose values are never printed: who asks, and what a request says besides.
_PRIVATE = (*_CREDENTIALS, "auth", "header", "cookie", "passw", "pwd", "passphrase", "bearer", "user", "login", "sas",
            "session", "connection_string", "proxy", "proxies")  # fmt: skip

#: The units that ages are written in, smallest first.
SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

# More digits would lead behind the first of all dates.
_AGE = re.compile(r"(\d{1,6})\s*([smhdw])", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d[\d_]*)\s*(?:([KMGT])(I?B)?|B)?", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Storage:
    """How the store is reached: `storage_options`, the same as arguments without secrets, and the secrets' names."""

    options: dict[str, Any] = field(repr=False)
    arguments: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    keys: GivenKeys = NO_KEYS

    def command(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command with the arguments that it needs to reach the same store, and to open the same files."""
        keys = self.keys.arguments if WITH_KEYS & {*command[1:2]} else ()
        return (*command, *self.arguments, *keys)

    def lead_to(self, report: Report) -> Report:
        """The report, its next commands with those arguments."""
        return replace(report, next=tuple(self.command(command) for command in report.next))


def storage(endpoint_url: str | None, pairs: Sequence[str] | None, retry_for: float | None = None) -> Storage:
    """Combine ``--endpoint-url``, every ``--storage-option`` and ``--retry-for``."""
    options: dict[str, Any] = {}
    arguments: list[str] = []
    left_out: list[str] = []
    for pair in pairs or ():
        name, found, value = pair.partition("=")
        if not found or not name:
            raise typer.BadParameter("it is not KEY=VALUE", param_hint="--storage-option")  # and may be a secret
        secret = any(word in name.lower() for word in _CREDENTIALS)
        options[name] = value if secret else _json_or_text(value)
        told = scrubbed(pair)
        if not any(word in told.lower() for word in _PRIVATE):
            arguments += ["--storage-option", told]
        if told != pair or told not in arguments:
            left_out.append(f"--storage-option {scrubbed(name)}=...")
    if endpoint_url is not None:
        options["endpoint_url"] = endpoint_url
        arguments += ["--endpoint-url", scrubbed(endpoint_url)]
        if arguments[-1] != endpoint_url:
            left_out.append("the user and password of --endpoint-url")
    retry = None if retry_for is None else RetryPolicy(seconds=retry_for)
    return Storage(dict(with_retry(options, retry) or {}), tuple(arguments), tuple(left_out))


def _json_or_text(value: str) -> Any:
    if not re.fullmatch(r'true|false|null|-?\d{1,15}|\{.*\}|\[.*\]|".*"', value, re.DOTALL):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def parse_size(text: str) -> int:
    """Bytes: ``1_000_000``, ``64MiB``, ``8M`` (the same as 8MiB), ``8MB`` (8,000,000)."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a valid size; write 64MiB, 8M or 1_000_000")
    count, letter, suffix = int(match[1].replace("_", "")), match[2], match[3]
    if letter is None:
        return count
    base = 1000 if suffix is not None and suffix.upper() == "B" else 1024
    return int(count * base ** ("KMGT".index(letter.upper()) + 1))


def size_option(name: str, help_text: str) -> Any:
    """An option whose value is a size."""
    return typer.Option(name, metavar="SIZE", parser=parse_size, help=help_text)


Compression = Annotated[str, typer.Option(metavar="CODEC", help="zstd, snappy, gzip, brotli, lz4_raw or none.")]
RowGroupBytes = Annotated[int, size_option("--row-group-bytes", "Bytes of a row group in memory, at most.")]


def parse_age(text: str) -> timedelta:
    """A time: ``90s``, ``30m``, ``12h``, ``1d``, ``2w``."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a valid time; write 90s, 30m, 12h, 1d or 2w")
    return timedelta(seconds=int(match[1]) * SECONDS_OF[match[2].lower()])


OlderThan = Annotated[
    timedelta | None,
    typer.Option(
        "--older-than",
        metavar="AGE",
        parser=parse_age,
        help="Only uploads that were begun at least this long ago: 90s, 30m, 12h, 1d, 2w.",
    ),
]


def split_names(text: str | None, option: str = "--columns") -> list[str] | None:
    """The names in ``a,b``, given to an option; None for None."""
    if text is None:
        return None
    names = [name.strip() for name in re.split(r",(?![^()]*\))", text)]
    if not all(names):
        raise typer.BadParameter(f"{text!r} is not NAME,NAME,...", param_hint=option)
    return names


def parse_table(text: str | None) -> IcebergTable | DeltaTable | None:
    """A table as `--table` names it."""
    if text is None:
        return None
    kind, _, place = text.partition(":")
    if kind == "delta":
        return DeltaTable(place or None)
    if kind == "iceberg" and place:
        catalog, _, name = place.rpartition("/")
        try:
            return IcebergTable(name, catalog or "default")
        except OptionError as error:
            raise typer.BadParameter(f"{error.message}, {error.hint}", param_hint="--table") from None
    raise typer.BadParameter(f"{text!r} is no table: write iceberg:web.events or delta", param_hint="--table")


def parse_schema(text: str) -> str:
    """The text of a schema, or that of the file behind an ``@``."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "it is no text; --schema-from takes a Parquet file" if isinstance(error, ValueError) else error
        raise typer.BadParameter(f"{text[1:]!r} cannot be read: {reason}", param_hint="--schema") from None


def parse_delimiter(text: str) -> str:
    """One character; ``tab`` or ``\\t`` is a tab."""
    text = "\t" if text in ("\\t", "tab") else text
    if len(text) != 1 or not text.isascii() or text in '"\r\n':
        raise typer.BadParameter(f"{text!r} is not one ASCII character", param_hint="--delimiter")
    return text


SchemaText = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="TEXT",
        parser=parse_schema,
        help="The schema of the damaged file, as `rpq inspect FILE --schema` shows it; @FILE reads it from a file.",
    ),
]
SchemaFrom = Annotated[
    str | None,
    typer.Option(
        "--schema-from",
        metavar="FILE",
        help="Another Parquet file that the same program wrote, to take the schema from: a path or a URL.",
    ),
]
