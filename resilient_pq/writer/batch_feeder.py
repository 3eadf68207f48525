"""Rows on their way into an encoder: batch after batch, until something else is to be done. Blocking calls only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final

from resilient_pq.arrow.batch_ingest import Batch
from resilient_pq.writer.file_encoder import FileEncoder

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
    #: The source failed, or gave rows that do not fit: `BatchFeeder.error`.
    REFUSED = auto()


class BatchFeeder:
    """The rows of one source.

    Attributes:
        num_rows_left: Rows of the batch at hand that have not been taken.
        error: What the source raised.
    """

    def __init__(
        self, batches: Iterator[Batch], encoder: FileEncoder, taking: Callable[[int], None] | None = None
    ) -> None:
        """Take nothing yet."""
        self.num_rows_left = 0
        self.error: Exception | None = None
        self._batches = batches
        self._batch: Batch | None = None
        self._encoder = encoder
        self._taking = taking
        self._at_work = threading.Lock()
        self._waiting = False  # for the source

    def pause(self) -> bool:
        """Keep `take` waiting until `resume`, where the source does: the encoder is the caller's meanwhile."""
        if not self._waiting or not self._at_work.acquire(blocking=False):
            return False
        if self._waiting:
            return True
        self._at_work.release()
        return False

    def resume(self) -> None:
        """Go on after `pause`."""
        self._at_work.release()

    def take(self, seconds_since_checkpoint: float, *, between_row_groups: bool) -> Stop:
        """Take rows until something else is to be done, they end, or they are refused."""
        with self._at_work:
            return self._take(seconds_since_checkpoint, between_row_groups=between_row_groups)

    def _take(self, seconds_since_checkpoint: float, *, between_row_groups: bool) -> Stop:
        encoder, begun = self._encoder, time.monotonic()
        while True:
            if self._batch is None:
                try:
                    self._batch = self._next()
                except Exception as error:
                    self.error = error
                    return Stop.REFUSED
                if self._batch is None:
                    return Stop.ENDED
                self.num_rows_left = self._batch.num_rows
            if self.num_rows_left and encoder.full and not encoder.has_open_rows:
                return Stop.FILE_FULL
            if self.num_rows_left:
                if self._taking is not None:
                    self._taking(encoder.num_rows_taken)
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

    def _next(self) -> Batch | None:
        """What the source gives next, whenever that is: it may be paused until then."""
        self._waiting = True
        self._at_work.release()
        try:
            return next(self._batches, None)
        finally:
            self._at_work.acquire()
            self._waiting = False
