"""Parquet files that survive the crash of their writer, the loss of their tail and the rot of their bytes.

The names here are asynchronous; `resilient_pq.sync` has the same names, blocking::

    import resilient_pq as rpq

    async with rpq.create("s3://bucket/day.parquet") as writer:
        await writer.write(batch)
        await writer.checkpoint()

    async with rpq.open("s3://bucket/day.parquet") as file:
        table = await file.read(columns=["ts", "user"])

    report = await rpq.check("s3://bucket/day.parquet")
    report = await rpq.recover("s3://bucket/torn.parquet", "s3://bucket/saved.parquet")
"""

from __future__ import annotations

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from resilient_pq.version import __version__ as __version__

if _sys.argv[:1] == ["-m"] and {"resilient_pq", "-mresilient_pq"} & set(_sys.orig_argv):  # which imports this first
    import resilient_pq_command as _command

    _command.end_calmly()

if TYPE_CHECKING:  # `__getattr__` imports each when it is first asked for
    from resilient_pq.bulk.many_files import FileResults as FileResults
    from resilient_pq.bulk.many_files import check_many as check_many
    from resilient_pq.bulk.many_files import recover_many as recover_many
    from resilient_pq.bulk.scrub import scrub as scrub
    from resilient_pq.compaction.compact import compact as compact
    from resilient_pq.dataset.dataset import Dataset as Dataset
    from resilient_pq.dataset.dataset_opening import open_many as open_many
    from resilient_pq.dataset.dataset_writer import DatasetWriter as DatasetWriter
    from resilient_pq.dataset.sink_creation import create_dataset as create_dataset
    from resilient_pq.dataset.sink_creation import resume_dataset as resume_dataset
    from resilient_pq.dataset.summary.write_summary import write_metadata as write_metadata
    from resilient_pq.encryption.key_tools import rotate_master_keys as rotate_master_keys
    from resilient_pq.one_read import read as read
    from resilient_pq.one_write import write as write
    from resilient_pq.parity.protect import protect as protect
    from resilient_pq.parity.repair import repair as repair
    from resilient_pq.public_names import *
    from resilient_pq.reader.file import File as File
    from resilient_pq.reader.opening import open as open
    from resilient_pq.reader.streaming import Batches as Batches
    from resilient_pq.recovery.check import check as check
    from resilient_pq.recovery.recover import recover as recover
    from resilient_pq.recovery.resume.append_file import append as append
    from resilient_pq.recovery.resume.resume_file import create_or_resume as create_or_resume
    from resilient_pq.recovery.resume.resume_file import resume as resume
    from resilient_pq.recovery.seal import seal as seal
    from resilient_pq.recovery.uploads.open_uploads import abort_upload as abort_upload
    from resilient_pq.recovery.uploads.open_uploads import list_uploads as list_uploads
    from resilient_pq.recovery.uploads.open_uploads import resume_info as resume_info
    from resilient_pq.recovery.uploads.upload_completion import complete_upload as complete_upload
    from resilient_pq.trevni.convert_file import convert as convert
    from resilient_pq.trevni.trevni_file import TrevniFile as TrevniFile
    from resilient_pq.trevni.trevni_file import open_trevni as open_trevni
    from resilient_pq.writer.creation import create as create
    from resilient_pq.writer.file_writer import Writer as Writer
else:
    from resilient_pq.name_table import MODULES as _MODULES

    __all__ = sorted(["__version__", *_MODULES])  # noqa: PLE0605 (of names that are not here yet)

    def __getattr__(name: str) -> object:
        """A public name, or a package of ours."""
        try:
            if name in _MODULES:
                value = getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
                return globals().setdefault(name, value)
            if not name.startswith("_"):
                return _import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """The public names, imported or not."""
        return sorted({*globals(), *__all__})
