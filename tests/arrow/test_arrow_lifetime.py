"""Values taken from Arrow arrays stay what they are when everything else lets go of the arrays."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from resilient_pq.arrow.ingest import Ingest
from resilient_pq.format.values import ByteArrays

ROWS = 20_000


def of_pyarrow(start: int) -> object:
    numbers = np.arange(ROWS) + start
    return pa.table(
        {"n": numbers, "s": pa.array([f"value {i}" for i in numbers]), "l": [[i, i] for i in numbers]}
    )


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
