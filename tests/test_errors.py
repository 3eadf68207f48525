"""Errors go from process to process, as those of workers do: with their place, hint, notes and causes."""

from __future__ import annotations

import asyncio
import inspect
import io
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq import errors

WHERE = errors.Where(key="s3://b/k", row_group=3, column="a", page=1, offset=7)
#: What classes take beyond a message, a place and a hint.
MORE: dict[type[errors.ResilientPQError], dict[str, Any]] = {
    errors.ChecksumError: {"stored": 1, "computed": 2},
    errors.WriterFailedError: {"num_rows_stored": 5},
    errors.ThrottledError: {"retry_after": 1.5},
    errors.NothingToRecoverError: {"report": {"b": 1}},
}
KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.ResilientPQError) and kind.__module__ == errors.__name__
]


def made(kind: type[errors.ResilientPQError], message: str = "a") -> errors.ResilientPQError:
    """An error with all that it can have."""
    error = kind(message, where=WHERE, hint="b", **MORE.get(kind, {}))
    error.add_note("c")
    if isinstance(error, errors.StoreError):
        error.undecided, error.status = True, 503
    return error


def same(found: BaseException | None, error: BaseException | None) -> None:
    """Hold an error and all that it names against another."""
    while error is not None:
        assert type(found) is type(error)
        assert found is not None
        assert (str(found), found.args) == (str(error), error.args)
        assert vars(found) == vars(error)
        assert found.__suppress_context__ == error.__suppress_context__
        if error.__context__ is not error.__cause__:
            same(found.__context__, error.__context__)
        found, error = found.__cause__, error.__cause__
    assert found is None


def sent(error: BaseException) -> Any:
    """An error in another process; by Python's own way, also where a test before has had tblib register another."""
    data = io.BytesIO()
    pickler = pickle.Pickler(data)
    pickler.dispatch_table = {}
    pickler.dump(error)
    return pickle.loads(data.getvalue())


def raised(
    error: BaseException, *, cause: BaseException | None = None, while_handling: BaseException | None = None
) -> Any:
    """An error, raised as one is."""
    try:
        try:
            if while_handling is not None:
                raise while_handling
        except BaseException:
            raise error from cause
        raise error from cause
    except BaseException as found:
        return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_survives_being_pickled(kind: type[errors.ResilientPQError]) -> None:
    same(sent(made(kind)), made(kind))


@given(
    st.lists(st.tuples(st.sampled_from([*KINDS, OSError, KeyError, asyncio.CancelledError]), st.booleans()), max_size=6)
)
def test_all_of_a_chain_survives_being_pickled(links: list[tuple[Any, bool]]) -> None:
    error: BaseException | None = None
    for i, (kind, is_cause) in enumerate([*links, (errors.ChecksumError, False)]):
        one = made(kind, f"{i}") if issubclass(kind, errors.ResilientPQError) else kind(i, "of the system")
        error = raised(one, cause=error) if is_cause else raised(one, while_handling=error)
    assert error is not None
    same(sent(error), error)


class UnpicklableError(Exception):
    """As errors of clients are, which hold a connection."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.lock = threading.Lock()


class MadeOfTwoError(Exception):
    """Pickled without complaint, and not made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one + two)


@pytest.mark.parametrize(
    ("cause", "said"), [(UnpicklableError("x"), "UnpicklableError: x"), (MadeOfTwoError(1, 2), "MadeOfTwoError: 3")]
)
def test_a_cause_that_cannot_be_pickled_arrives_in_its_words(cause: Exception, said: str) -> None:
    cause.add_note("noted")
    error = raised(made(errors.TransientError), cause=raised(cause, while_handling=OSError(5, "deeper")))
    for found in (sent(error), error.detached()):
        assert (str(found), vars(found)) == (str(error), vars(error))
        assert str(found.__cause__) == f"{__name__}.{said}"
        assert found.__cause__.__notes__ == ["noted"]
        assert str(found.__cause__.__context__) == "[Errno 5] deeper"


def test_an_error_that_is_in_its_own_context_survives_being_pickled() -> None:
    error = made(errors.ChecksumError)
    with pytest.raises(errors.ChecksumError):
        try:
            raise ExceptionGroup("some", [error])
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
    assert "some" in str(error.__context__)
    arrived = sent(error)
    assert (str(arrived), vars(arrived)) == (str(error), vars(error))
    assert "some" in str(arrived.__context__)
    assert arrived.__context__.__context__ is None


_BY_DASK = """
import pickle, sys, threading
import tblib.pickling_support

from resilient_pq import errors

tblib.pickling_support.install()
inner = OSError(5, "deeper")
inner.lock = threading.Lock()
error = errors.ChecksumError("a", stored=1, computed=2, where=errors.Where(key="k", row_group=3, column="c"), hint="b")
try:
    try:
        raise ExceptionGroup("some", [error, inner])
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
except errors.ChecksumError:
    pass
tblib.pickling_support.install(error)
found = pickle.loads(pickle.dumps(error.detached()))
print(type(found).__name__, vars(found) == vars(error), str(found) == str(error))
"""


def test_a_detached_error_survives_being_pickled_as_dask_does() -> None:
    """In a process of its own: what tblib registers is for all of it."""
    pytest.importorskip("tblib")
    done = subprocess.run([sys.executable, "-c", _BY_DASK], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "ChecksumError True True\n", done.stderr
