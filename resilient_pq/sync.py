"""The names of `resilient_pq`, blocking: one adapter around the asynchronous ones, no second implementation.

A loop of its own runs in a thread, so this works in a script, in a notebook whose loop is busy already, and
from several threads at once::

    from resilient_pq import sync as rpq

    with rpq.create("day.parquet") as writer:
        writer.write({"ts": [1, 2, 3]})

    with rpq.open("day.parquet") as file:
        table = file.read()
        for batch in file.batches():
            ...
        reader = pyarrow.RecordBatchReader.from_stream(file.batches(columns=["ts"]))
"""

from __future__ import annotations

import resilient_pq
from resilient_pq.blocking import TWINS, BlockingBatches, BlockingResults, blocking
from resilient_pq.public_names import *
from resilient_pq.version import __version__ as __version__

__all__ = resilient_pq.__all__


def __dir__() -> list[str]:
    return list(__all__)


File = TWINS[resilient_pq.File]
Dataset = TWINS[resilient_pq.Dataset]
TrevniFile = TWINS[resilient_pq.TrevniFile]
Writer = TWINS[resilient_pq.Writer]
DatasetWriter = TWINS[resilient_pq.DatasetWriter]
Batches = BlockingBatches
FileResults = BlockingResults

read = blocking(resilient_pq.read)
write = blocking(resilient_pq.write)
create = blocking(resilient_pq.create)
resume = blocking(resilient_pq.resume)
create_or_resume = blocking(resilient_pq.create_or_resume)
create_dataset = blocking(resilient_pq.create_dataset)
resume_dataset = blocking(resilient_pq.resume_dataset)
open = blocking(resilient_pq.open)
open_many = blocking(resilient_pq.open_many)
open_trevni = blocking(resilient_pq.open_trevni)
check = blocking(resilient_pq.check)
recover = blocking(resilient_pq.recover)
check_many = blocking(resilient_pq.check_many)
recover_many = blocking(resilient_pq.recover_many)
protect = blocking(resilient_pq.protect)
repair = blocking(resilient_pq.repair)
scrub = blocking(resilient_pq.scrub)
seal = blocking(resilient_pq.seal)
convert = blocking(resilient_pq.convert)
complete_upload = blocking(resilient_pq.complete_upload)
list_uploads = blocking(resilient_pq.list_uploads)
abort_upload = blocking(resilient_pq.abort_upload)
resume_info = blocking(resilient_pq.resume_info)
write_metadata = blocking(resilient_pq.write_metadata)
