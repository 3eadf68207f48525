"""How files are recovered, passed whole."""

from __future__ import annotations

import re
from dataclasses import field

from resilient_pq.encryption.keys import KeysArgument
from resilient_pq.errors import SchemaError
from resilient_pq.io.location import shown
from resilient_pq.io.resolve import Location
from resilient_pq.lazy_dataclass import dataclass

_FILE_ID = re.compile("[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class RecoverOptions:
    """How files are recovered: what `recover` takes, and what a recovery of many files needs besides."""

    on_damage: str = "drop"
    schema: object | None = None
    schema_from: Location | None = field(default=None, repr=False)  # a URL may have secrets in it
    repair_bits: bool = False
    keep_unplaced: bool = False
    file_id: str | None = None
    verify: bool = False
    overwrite: bool = False
    only_damaged: bool = False  # Write nothing where nothing is wrong: the report is "sound" then, and names no output
    make_folder: bool = False  # Make the folder of the output where there is none
    keys: KeysArgument | None = field(default=None, repr=False)
    aad_prefix: bytes | None = field(default=None, repr=False)

    @property
    def words(self) -> tuple[str, ...]:
        """The options that another try needs again, as words of the command line."""
        words = [] if self.keys is None else ["--keys", "FILE"]
        words += [] if self.schema_from is None else ["--schema-from", shown(str(self.schema_from))]
        words += ["--schema", "@FILE"] if self.schema is not None else []
        flags = {"--repair-bits": self.repair_bits, "--keep-unplaced": self.keep_unplaced}
        words += [flag for flag, given in flags.items() if given]
        words += [] if self.file_id is None else ["--file-id", self.file_id]
        return tuple(words)

    @property
    def id_of_file(self) -> bytes | None:
        """`file_id` as bytes."""
        if self.file_id is None:
            return None
        if _FILE_ID.fullmatch(self.file_id) is None:
            raise SchemaError(f"{self.file_id!r} is no file id", hint="a file id has 32 hexadecimal digits")
        return bytes.fromhex(self.file_id)
