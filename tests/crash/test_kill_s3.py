"""A writer to S3 killed with SIGKILL at any moment: completing its upload gives every row it had said to be stored."""

from __future__ import annotations

import io
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import pytest
from sampled import either

SIZE = 30_000  # bytes of a row
GROUPS = (16, 64, 400)  # rows: a tenth of a part of 5 MiB, two fifths of one, and more than two


@dataclass(frozen=True)
class Rescue:
    """Kills a writer to a bucket, and completes what is left."""

    s3: Any
    kill_writer: Callable[..., Any]
    written_rows: Callable[[int, int], dict[str, list[Any]]]
    chosen_by_the_rule: Callable[..., Any]
    complete_by_the_rule: Callable[..., Any]

    def run(self, seed: int, lines: int) -> int:
        """How many rows came back: for even seeds by our command, for odd ones by the hand of a stranger."""
        key, options = f"{seed}.parquet", self.s3.storage_options
        group = GROUPS[seed % len(GROUPS)]
        killed = self.kill_writer(seed, self.s3.url(key), storage_options=options, group=group, size=SIZE, lines=lines)
        assert key not in self.s3.object_names()
        assert killed.rows("checkpoint") == killed.rows("checkpoint", "stored")
        assert killed.logged >= killed.rows("checkpoint")
        promised = max(killed.rows("stored"), killed.logged)
        uploads = self.s3.upload_ids()
        if not uploads or not self.holds_a_checkpoint(key, uploads[0]):
            assert promised == 0
            for upload_id in uploads:
                self.s3.client.abort_multipart_upload(Bucket=self.s3.bucket, Key=key, UploadId=upload_id)
            return 0
        if seed % 2:
            self.complete_by_the_rule(self.s3, key, uploads[0])
        else:
            self.complete_by_our_command(key)
        found = pq.read_table(io.BytesIO(self.s3.read(key)))
        assert found.num_rows >= promised
        assert found.to_pydict() == self.written_rows(found.num_rows, SIZE)
        assert self.s3.upload_ids() == []
        return found.num_rows

    def holds_a_checkpoint(self, key: str, upload_id: str) -> bool:
        pages = self.s3.client.get_paginator("list_parts").paginate(Bucket=self.s3.bucket, Key=key, UploadId=upload_id)
        parts = [part for page in pages for part in page.get("Parts", [])]
        found = self.chosen_by_the_rule([(part["PartNumber"], part["Size"], part["ETag"]) for part in parts])
        return found is not None

    def complete_by_our_command(self, key: str) -> None:
        command = [sys.executable, "-m", "resilient_pq", "uploads", "complete", self.s3.url(key)]
        done = subprocess.run(
            [*command, "--endpoint-url", self.s3.endpoint_url], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.fixture
def rescue(s3: Any, kill_writer: Any, written_rows: Any, chosen_by_the_rule: Any, complete_by_the_rule: Any) -> Rescue:
    return Rescue(s3, kill_writer, written_rows, chosen_by_the_rule, complete_by_the_rule)


#: Seeds of writers, and the lines after which they are killed.
#: Some 40 MB at most, whatever the size of a row group; three lines are said of each.
MANY = [(seed, random.Random(seed).randrange(3 * 1300 // GROUPS[seed % len(GROUPS)])) for seed in range(100, 150)]


@pytest.mark.parametrize("runs", either([[(0, 1), (4, 12)]], [MANY], 1800))
def test_killed_at_a_random_moment(rescue: Rescue, runs: list[tuple[int, int]]) -> None:
    assert sum(rescue.run(seed, lines) > 0 for seed, lines in runs) >= len(runs) // 2
