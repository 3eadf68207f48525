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

import sys as _sys
from typing import TYPE_CHECKING

if _sys.argv[:1] == ["-m"] and {"resilient_pq", "-mresilient_pq"} & set(_sys.orig_argv):  # which imports this first
    import resilient_pq_command as _command

    _command.end_calmly()

from resilient_pq.bulk.many_files import check_many as check_many
from resilient_pq.bulk.many_files import recover_many as recover_many
from resilient_pq.dataset.dataset import open_many as open_many
from resilient_pq.dataset.sink_creation import create_dataset as create_dataset
from resilient_pq.dataset.sink_creation import resume_dataset as resume_dataset
from resilient_pq.dataset.summary.write_summary import write_metadata as write_metadata
from resilient_pq.one_call import read as read
from resilient_pq.one_call import write as write
from resilient_pq.parity.protect import protect as protect
from resilient_pq.parity.repair import repair as repair
from resilient_pq.public_names import *
from resilient_pq.reader import opening as _opening
from resilient_pq.reader.opening import open as open
from resilient_pq.recovery import torn_file as _torn_file
from resilient_pq.recovery.check import check as check
from resilient_pq.recovery.evidence import identify as _identify
from resilient_pq.recovery.recover import recover as recover
from resilient_pq.recovery.resume.resume_file import create_or_resume as create_or_resume
from resilient_pq.recovery.resume.resume_file import resume as resume
from resilient_pq.recovery.seal import seal as seal
from resilient_pq.recovery.uploads.open_uploads import abort_upload as abort_upload
from resilient_pq.recovery.uploads.open_uploads import list_uploads as list_uploads
from resilient_pq.recovery.uploads.open_uploads import resume_info as resume_info
from resilient_pq.recovery.uploads.upload_completion import complete_upload as complete_upload
from resilient_pq.trevni.convert_file import convert as convert
from resilient_pq.trevni.trevni_file import open_trevni as open_trevni
from resilient_pq.version import __version__ as __version__
from resilient_pq.writer.creation import create as create

_opening.open_torn_with(_torn_file.open_torn, _identify.not_parquet)

if not TYPE_CHECKING:  # type checkers go by the aliases
    # Every public name is a class or a function, but for the version.
    __all__ = sorted(["__version__", *(name for name, value in globals().items() if callable(value))])  # noqa: PLE0605
