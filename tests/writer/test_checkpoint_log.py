"""The log of checkpoints: what is written is read, whatever a kill left of it."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.errors import AccessDeniedError, FormatError, NotFoundError, StoreError
from resilient_pq.writer.checkpoint_log import (
    CheckpointLog,
    LoggedCheckpoint,
    begun_line,
    parse_log,
    read_log,
    rows_stored,
    stored_line,
)

URL, FILE_ID = "s3://bucket/day \u00fc\n.parquet", "0f" * 16


def write_two(path: Path, upload_id: str = "one", first: int = 1) -> None:
    with CheckpointLog.open(path) as log:
        log.begun(url=URL, upload_id=upload_id, file_id=FILE_ID)
        for ordinal in (first, first + 1):
            log.stored(ordinal=ordinal, num_rows=ordinal * 10, offset=ordinal * 100, upload_id=upload_id)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_two(path)
    write_two(path, "two", 3)
    expected = [
        LoggedCheckpoint(ordinal, ordinal * 10, ordinal * 100, upload_id, URL, FILE_ID)
        for ordinal, upload_id in ((1, "one"), (2, "one"), (3, "two"), (4, "two"))
    ]
    assert read_log(path) == expected
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == [
        "begun", "stored", "stored", "begun", "stored", "stored",
    ]  # fmt: skip
    assert path.stat().st_mode & 0o077 == 0


def test_each_line_is_there_before_the_next(tmp_path: Path) -> None:
    log = CheckpointLog.open(tmp_path / "log")
    log.begun(url=URL, upload_id=None, file_id=FILE_ID)
    log.stored(ordinal=1, num_rows=5, offset=50, upload_id=None)
    assert read_log(tmp_path / "log") == [LoggedCheckpoint(1, 5, 50, None, URL, FILE_ID)]
    log.close()
    log.close()


@pytest.mark.parametrize("cut", range(40))
def test_a_line_that_was_cut_short_costs_that_line_alone(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    write_two(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) - 1 - cut])
    assert [found.ordinal for found in read_log(path)] == ([1, 2] if cut == 0 else [1])
    write_two(path, "two", 7)
    assert [found.ordinal for found in read_log(path)][-2:] == [7, 8]


class FullDisk(io.BytesIO):
    """Takes so many bytes more, and then none until there is room again."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = super().write(memoryview(data)[: self.room])
        self.room -= taken
        return taken


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_line_that_a_full_disk_cut_short_costs_that_line_alone(room: int) -> None:
    disk = FullDisk(room)
    log = CheckpointLog(disk, "log")
    with pytest.raises(StoreError, match="No space left"):
        log.stored(ordinal=1, num_rows=5, offset=50, upload_id=None)
    disk.room = 1000
    log.stored(ordinal=2, num_rows=7, offset=70, upload_id=None)
    log.stored(ordinal=3, num_rows=9, offset=90, upload_id=None)
    assert [found.ordinal for found in parse_log(disk.getvalue().splitlines(keepends=True))] == [2, 3]


STORED = stored_line(ordinal=1, num_rows=2, offset=3, upload_id=None).encode()


@given(st.lists(st.one_of(st.binary(max_size=60), st.just(STORED))))
def test_any_lines(lines: list[bytes]) -> None:
    lines = [begun_line(url=URL, upload_id=None, file_id=FILE_ID).encode(), *lines]
    whole = sum(b'"stored"' in line for line in lines)
    assert len(parse_log(lines)) == whole


@pytest.mark.parametrize(
    "event",
    [
        {"event": "stored", "ordinal": 1, "num_rows": -1, "offset": 3},
        {"event": "stored", "ordinal": 1, "num_rows": True, "offset": 3},
        {"event": "stored", "ordinal": 1, "num_rows": 1.5, "offset": 3},
        {"event": "stored", "ordinal": 1, "num_rows": 1, "offset": 3, "upload_id": 7},
        {"event": "stored"},
        {"event": 1},
        [1],
        None,
    ],
)
def test_what_is_no_event(event: object) -> None:
    whole = begun_line(url=URL, upload_id="u", file_id=FILE_ID).encode()
    assert parse_log([whole, json.dumps(event).encode()]) == []


def test_events_of_a_later_version_are_passed_over() -> None:
    assert parse_log([b'{"event": "completed"}\n']) == []


def test_rows_are_known_of_a_checkpoint_that_was_only_on_its_way(tmp_path: Path) -> None:
    """The writer was killed after the store had it and before it could say so."""
    with CheckpointLog.open(tmp_path / "log") as log:
        log.begun(url=URL, upload_id="one", file_id=FILE_ID)
        log.written(ordinal=1, num_rows=10, offset=100, upload_id="one")
        log.stored(ordinal=1, num_rows=10, offset=100, upload_id="one")
        log.written(ordinal=2, num_rows=20, offset=200, upload_id="one")
    found = read_log(tmp_path / "log")
    assert [(each.ordinal, each.stored) for each in found] == [(1, False), (1, True), (2, False)]
    assert rows_stored(found, upload_id="one", num_bytes=200) == 20


def test_a_file_that_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "picture"
    path.write_bytes(bytes(range(256)) * 1000)
    with pytest.raises(FormatError, match="no log of checkpoints") as caught:
        read_log(path)
    assert caught.value.where.key == str(path)
    with pytest.raises(NotFoundError):
        read_log(tmp_path / "nothing")
    with pytest.raises((AccessDeniedError, StoreError)):
        CheckpointLog.open(tmp_path)
    path.write_bytes(b"")
    assert read_log(path) == []


def test_rows_are_known_only_where_a_checkpoint_ends() -> None:
    log = [
        LoggedCheckpoint(1, 10, 100, "one"),
        LoggedCheckpoint(2, 20, 200, "one"),
        LoggedCheckpoint(1, 7, 100, "two"),
    ]
    assert rows_stored(log, upload_id="one", num_bytes=200) == 20
    assert rows_stored(log, upload_id="two", num_bytes=100) == 7
    assert rows_stored(log, upload_id="one", num_bytes=150) is None
    assert rows_stored(log, upload_id="one", num_bytes=None) is None
    assert rows_stored(log, upload_id="three", num_bytes=100) is None
