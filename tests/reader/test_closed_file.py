"""A file that was closed is not read any more, wherever it is; what is known of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from resilient_pq import sync as rpq


def test_reading_after_the_block_ended(tmp_path: Path) -> None:
    rpq.write(tmp_path / "f.parquet", {"a": [1, 2]})
    with rpq.open(tmp_path / "f.parquet") as file:
        assert file.read().num_rows == 2
    for read in (file.read, file.batches, lambda: next(file.records()), file.__arrow_c_stream__):
        with pytest.raises(rpq.FileClosedError, match=r"the file is closed .*f.parquet\)\nhint: read it inside"):
            read()
    assert (file.num_rows, file.num_row_groups) == (2, 1)
    file.close()
