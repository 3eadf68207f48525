"""What other libraries raise while they hand data over, or for want of memory, is raised as an error of ours."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from nanoarrow._utils import NanoarrowException

from resilient_pq import memory_pool
from resilient_pq import sync as rpq
from resilient_pq.arrow.handed_over import taking
from resilient_pq.arrow.types.field import Field

SCHEMA = pa.schema([("a", pa.int64())])


def _no_memory(*_: object) -> Any:
    raise np._core._exceptions._ArrayMemoryError((10**12,), np.dtype("u1"))  # type: ignore[attr-defined]


class Raising:
    """Says that it has Arrow data, and raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        raise self._error

    __arrow_c_schema__ = __arrow_c_stream__


def _late(error: Exception) -> pa.RecordBatchReader:
    """A stream that ends in an error."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([1, 2])], schema=SCHEMA)
        raise error

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())


ERRORS = [
    pa.ArrowInvalid("nothing to be had"),
    pa.ArrowKeyError("nothing to be had"),
    OSError("nothing to be had"),
    RuntimeError("nothing to be had"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("made", [Raising, _late])
def test_rows_that_cannot_be_had(made: Callable[[Exception], Any], error: Exception, tmp_path: Path) -> None:
    expected = rpq.SourceError if made is _late else rpq.SchemaError
    with pytest.raises(expected, match="nothing to be had") as caught, rpq.create(tmp_path / "a") as writer:
        writer.write(made(error))
    assert caught.value.where.key == str(tmp_path / "a")
    assert caught.value.hint is not None
    assert "Traceback" not in str(caught.value)
    assert isinstance(caught.value.__cause__, (type(error), NanoarrowException))
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message
    assert not (tmp_path / "a").exists()


def test_what_is_no_data_at_all(tmp_path: Path) -> None:
    class Wrong:
        def __arrow_c_array__(self, requested_schema: object = None) -> Any:
            return 5

    with rpq.create(tmp_path / "a") as writer:
        with pytest.raises(rpq.SchemaError, match=r"rows cannot be taken from an object of type .*Wrong"):
            writer.write(Wrong())
        writer.write({"a": [1]})  # a refusal is not the end of the writer


def test_a_schema_that_cannot_be_had() -> None:
    with pytest.raises(rpq.SchemaError, match=r"a schema cannot be taken .* nothing to be had"):
        Field.of(Raising(pa.ArrowInvalid("nothing to be had")))


def test_values_that_cannot_be_had(tmp_path: Path) -> None:
    class Values:
        def __array__(self, *_: object, **__: object) -> Any:
            raise np.exceptions.AxisError("nothing to be had")

    with pytest.raises(rpq.SchemaError, match="nothing to be had"), rpq.create(tmp_path / "a") as writer:
        writer.write({"a": Values()})


def test_errors_of_ours_are_what_they_are() -> None:
    with pytest.raises(rpq.ChecksumError), taking("rows", None):
        raise rpq.ChecksumError("it changed", stored=1, computed=2)
    with pytest.raises(rpq.OutOfMemoryError), taking("rows", None):
        raise MemoryError


def test_no_memory_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rpq.OutOfMemoryError) as caught, rpq.create(tmp_path / "a") as writer:
        monkeypatch.setattr(memory_pool, "empty", _no_memory)
        writer.write({"a": np.arange(100_000), "b": [f"{i}" for i in range(100_000)]})
    assert caught.value.where.key == str(tmp_path / "a")
    assert isinstance(caught.value, MemoryError)
    assert caught.value.hint is not None


@pytest.mark.parametrize("verb", [rpq.open, rpq.check])
def test_no_memory_to_read(verb: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rpq.create(tmp_path / "a") as writer:
        writer.write({"a": [1]})
    monkeypatch.setattr(memory_pool, "empty", _no_memory)
    with pytest.raises(rpq.OutOfMemoryError) as caught:
        verb(tmp_path / "a")
    assert caught.value.where.key == str(tmp_path / "a")
