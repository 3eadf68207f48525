"""Rows on their way into an encoder: batch after batch, until something else is to be done. Blocking calls only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum, auto
from typing import Final

from resilient_pq.arrow.ingest import Batch
from resilient_pq.writer.encoder import Encoder

#: Seconds after which the event loop has its turn: a slow source can be cancelled, and what is stored is noticed.
_TURN: Final = 0.02


class Stop(Enum):
    """Why no more rows were taken."""

    #: There are no more.
    ENDED = auto()
    #: The open row group is to be closed.
    ROW_GROUP_DUE = auto()
    #: The file is to be completed; there are rows left.
    FILE_FULL = auto()
    #: A checkpoint is to be written.
    CHECKPOINT_DUE = auto()
    #: Others want to do something, too.
    TURN_OVER = auto()
    #: The source failed, or gave rows that do not fit: `Incoming.error`.
    REFUSED = auto()


class Incoming:
    """The rows of one source.

    Attributes:
        num_rows_left: Rows of the batch at hand that have not been taken.
        error: What the source raised.
    """

    def __init__(self, batches: Iterator[Batch], encoder: Encoder) -> None:
        """Take nothing yet.

        Args:
            batches: The rows.
            encoder: What takes them.
        """
        self.num_rows_left = 0
        self.error: Exception | None = None
        self._batches = batches
        self._batch: Batch | None = None
        self._encoder = encoder

    def take(self, seconds_since_checkpoint: float, *, between_row_groups: bool) -> Stop:
        """Take rows until something else is to be done; then it may be called again, unless they ended or were refused.

        Args:
            seconds_since_checkpoint: Seconds since the last checkpoint, at this moment.
            between_row_groups: Whether all row groups that were closed are complete: then a checkpoint may be due.

        Raises:
            EncodingError: Rows that were taken before have changed since; the open row group is lost.
        """
        encoder, begun = self._encoder, time.monotonic()
        while True:
            if self._batch is None:
                try:
                    self._batch = next(self._batches, None)
                except Exception as error:
                    self.error = error
                    return Stop.REFUSED
                if self._batch is None:
                    return Stop.ENDED
                self.num_rows_left = self._batch.num_rows
            if self.num_rows_left and encoder.full and not encoder.has_open_rows:
                return Stop.FILE_FULL
            if self.num_rows_left:
                self.num_rows_left -= encoder.take(self._batch, self._batch.num_rows - self.num_rows_left)
            if not self.num_rows_left:
                self._batch = None  # its rows are the encoder's
            taken = time.monotonic() - begun
            if encoder.row_group_due(seconds_since_checkpoint + taken):
                return Stop.ROW_GROUP_DUE
            if between_row_groups and encoder.checkpoint_due(seconds_since_checkpoint + taken):
                return Stop.CHECKPOINT_DUE
            if taken > _TURN:
                return Stop.TURN_OVER
