"""Values taken from Arrow arrays stay what they are when everything else lets go of the arrays."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from resilient_pq.arrow.batch_ingest import Ingest
from resilient_pq.format.physical_values import ByteArrays

ROWS = 20_000


def of_pyarrow(start: int) -> object:
    numbers = np.arange(ROWS) + start
    return pa.table({"n": numbers, "s": pa.array([f"value {i}" for i in numbers]), "l": [[i, i] for i in numbers]})


def of_dict(start: int) -> object:
    numbers = np.arange(ROWS) + start
    return {"n": numbers, "s": [f"value {i}" for i in numbers], "l": [[int(i), int(i)] for i in numbers]}


@pytest.mark.parametrize("make", [of_pyarrow, of_dict])
def test_values_outlive_the_arrays_they_came_from(make: Callable[[int], object]) -> None:
    ingest, data = Ingest.infer(make(0))
    kept = list(ingest.batches(data))
    for start in range(ROWS, 6 * ROWS, ROWS):
        kept.extend(ingest.batches(make(start)))
    del data
    gc.collect()
    overwriting = [np.full(ROWS, 7, np.int64) for _ in range(80)]
    numbers = np.concatenate([batch.leaves[0].values for batch in kept])
    np.testing.assert_array_equal(numbers, np.arange(6 * ROWS))
    elements = np.concatenate([batch.leaves[2].values for batch in kept])
    np.testing.assert_array_equal(elements, np.repeat(np.arange(6 * ROWS), 2))
    strings = kept[-1].leaves[1].values
    assert isinstance(strings, ByteArrays)
    assert strings.value(0) == f"value {5 * ROWS}".encode()
    assert len(overwriting) == 80


VIEWS = """
import decimal
import pyarrow as pa
from resilient_pq.arrow.batch_ingest import Ingest

texts = ["x" * 30, "y", None, "z" * 20] * 5
small = pa.array([decimal.Decimal(1)] * 20, pa.decimal32(3, 0))
structs = pa.array([{"a": text} for text in texts], pa.struct({"a": pa.string_view()}))
lists = pa.array([[text] for text in texts], pa.list_(pa.string_view()))
chunked = pa.chunked_array([texts[:7], texts[7:]])
for views in (pa.array(texts, pa.string_view()), structs, lists):
    for data in (pa.table({"v": views, "d": small}), {"v": views, "w": chunked}):
        for _ in range(100):
            ingest, source = Ingest.infer(data)
            batches = list(ingest.batches(source))
        values = [batch.leaves[0].values for batch in batches]
        found = [each.value(at).decode() for each in values for at in range(len(each))]
        assert found == [text for text in texts if text is not None]
"""


def test_views_beside_small_decimals_and_in_columns_of_their_own() -> None:
    """nanoarrow's copies of arrays of views write beyond their memory, so none may be made: in a process of its own."""
    ran = subprocess.run([sys.executable, "-c", VIEWS], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
