"""`resilient_pq.dask.write(..., table=)`: one commit of all partitions, whatever becomes of workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pandas as pd
import pytest
from table_places import KINDS, Place

import resilient_pq as rpq
import resilient_pq.dask as rpqd
from resilient_pq.tables import iceberg

pytestmark = pytest.mark.filterwarnings("ignore::pandas.errors.Pandas4Warning")  # of dask's own


def frame_of(start: int = 0) -> Any:
    return dd.from_pandas(pd.DataFrame({"id": range(start, start + 60), "text": "x"}), npartitions=3)


@pytest.fixture(params=list(KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path / "tables", *KINDS[request.param])


def test_all_partitions_are_one_commit(place: Place) -> None:
    for start in (0, 60):
        written = rpqd.write(frame_of(start), f"{place.data}/{start}", table=place.settings())
        assert len(written.files) == 3 and place.ids() == list(range(start + 60))


def test_files_of_a_table_are_not_overwritten(place: Place) -> None:
    with pytest.raises(rpq.OptionError, match="overwrite would remove files of the table"):
        rpqd.write(frame_of(), place.data, table=place.settings(), overwrite=True)
    assert not place.folder.exists()


def test_a_commit_whose_answer_is_lost_is_not_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path / "tables", *KINDS["iceberg"])
    rewrite, calls = iceberg.ConnectedTable.rewrite, 0

    def lost(*arguments: Any) -> None:
        nonlocal calls
        rewrite(*arguments)
        calls += 1
        if calls == 1:
            raise rpq.TransientError("the answer was lost")

    monkeypatch.setattr(iceberg.ConnectedTable, "rewrite", lost)
    rpqd.write(frame_of(), place.data, table=place.settings())
    assert calls == 2 and place.ids() == list(range(60))


@pytest.mark.thorough
def test_a_killed_worker_changes_nothing(dask_client: Any, kill_worker: Callable[..., Any], place: Place) -> None:
    killing = kill_worker("resilient_pq.writer.file_writer", "Writer.write", calls=1)
    rpqd.write(frame_of(), place.data, table=place.settings(), client=dask_client)
    assert killing.happened and place.ids() == list(range(60))
