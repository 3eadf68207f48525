"""Errors go from process to process, as those of workers do."""

from __future__ import annotations

import pickle

import pytest

from resilient_pq import errors

WHERE = errors.Where(key="s3://b/k", row_group=3, column="a", page=1, offset=7)


@pytest.mark.parametrize(
    "error",
    [
        errors.FormatError("a", where=WHERE, hint="b"),
        errors.ChecksumError("a", stored=1, computed=2, where=WHERE),
        errors.CodecUnavailableError("LZO", where=WHERE),
        errors.WriterFailedError("a", num_rows_stored=5),
        errors.NotFoundError("a", where=WHERE),
        errors.ThrottledError("a", retry_after=1.5),
        errors.NothingToRecoverError("a", report={"b": 1}),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_survives_being_pickled(error: errors.ResilientPQError) -> None:
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is type(error)
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))
