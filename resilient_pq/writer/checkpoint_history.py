"""The checkpoints of a file that is being written, which of them are stored, and their log."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace

from resilient_pq.errors import StoreError
from resilient_pq.io import ObjectSink, StoredState
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.writer.checkpoint_log import CheckpointLog
from resilient_pq.writer.file_layout import FileLayout

log = logging.getLogger("resilient_pq.writer")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint promises.

    Attributes:
        ordinal: Its number in the file, from 1; 0 when nothing has been written yet.
        num_rows: Rows before it.
        offset: Bytes of the file up to its end; cut there, the file is an ordinary Parquet file.
        state: "accepted" while the rows are on their way, "stored" when they survive the writer, "visible" when the
            object is complete.
    """

    ordinal: int
    num_rows: int
    offset: int
    state: StoredState

    @classmethod
    def in_place(cls, layout: FileLayout) -> Checkpoint:
        """The newest checkpoint of a file that is resumed."""
        behind = sum(each.num_rows for each in layout.row_groups if each.end > layout.checkpoint_end)
        return cls(layout.num_checkpoints, layout.num_rows - behind, layout.checkpoint_end, StoredState.STORED)


class CheckpointHistory:
    """The checkpoints of one file from the newest stored one on; notes them in a log where there is one."""

    def __init__(self, url: str, sink: ObjectSink, log_file: CheckpointLog | None) -> None:
        self._url = url
        self._sink = sink
        self._log = log_file
        self._file_id: str | None = None  # until the log has it
        self._known = deque([Checkpoint(0, 0, 0, StoredState.ACCEPTED)])
        self._unlogged: deque[Checkpoint] = deque()

    def begin(self, layout: FileLayout) -> None:
        """A file is begun, or resumed behind its newest checkpoint."""
        self._file_id = layout.file_id.hex()
        if layout.num_checkpoints:
            self._known[0] = Checkpoint.in_place(layout)
            if self._sink.upload_id is not None:
                self._unlogged.append(self._known[0])  # it is in a new upload, which no log has yet

    def add(self, layout: FileLayout) -> None:
        """A checkpoint was accepted by the sink."""
        made = Checkpoint(layout.num_checkpoints, layout.num_rows, layout.offset, StoredState.ACCEPTED)
        while len(self._known) > 1 and self._known[1].offset <= self._sink.num_bytes_stored:
            self._known.popleft()
        self._known.append(made)
        self._unlogged.append(made)

    @property
    def newest(self) -> Checkpoint:
        """The newest checkpoint in the state it has now, also where an older one is stored already."""
        known = self._known[-1]
        stored = known.ordinal and known.offset <= self._sink.num_bytes_stored
        return replace(known, state=StoredState.STORED) if stored else known

    @property
    def newest_stored(self) -> Checkpoint:
        """The newest checkpoint that is stored; until one is, the newest that was accepted."""
        stored = self._sink.num_bytes_stored
        found = (known for known in reversed(self._known) if known.ordinal and known.offset <= stored)
        return next((replace(known, state=StoredState.STORED) for known in found), self._known[-1])

    def log_written(self) -> None:
        """Log the checkpoint that is about to be stored: after a kill nobody could log it."""
        known, upload_id = self._known[-1], self._sink.upload_id
        if self._log is not None and upload_id is not None:
            self._log_begun(self._log, upload_id)
            self._log.written(ordinal=known.ordinal, num_rows=known.num_rows, offset=known.offset, upload_id=upload_id)

    def _log_begun(self, log_file: CheckpointLog, upload_id: str | None) -> None:
        if self._file_id is not None:
            log_file.begun(url=self._url, upload_id=upload_id, file_id=self._file_id)
            self._file_id = None

    def log_stored(self) -> None:
        """Log the checkpoints that have been stored since the last call."""
        if self._log is None:
            self._unlogged.clear()
            return
        stored, upload_id = self._sink.num_bytes_stored, self._sink.upload_id
        while self._unlogged and self._unlogged[0].offset <= stored:
            self._log_begun(self._log, upload_id)
            known = self._unlogged.popleft()
            self._log.stored(ordinal=known.ordinal, num_rows=known.num_rows, offset=known.offset, upload_id=upload_id)

    def close(self) -> None:
        """Log what was stored last, and close the log."""
        if self._log is not None:
            try:
                self.log_stored()
            except StoreError as error:
                # The file has ended, well or with an error that says more.
                log.error("%s: the log of its checkpoints lacks the last ones: %s", self._url, error)
            self._log.close()
