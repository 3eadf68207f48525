"""Which kernels are used: the environment decides, and the compiled ones only replace what is defined."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import resilient_pq.format as format_package
from resilient_pq.format import kernels
from resilient_pq.format.kernels import reference

#: What `reference` defines, classes included.
KERNELS = [name for name, value in vars(reference).items() if callable(value)]
NATIVE = "resilient_pq.format.kernels._native"
AVX2 = "resilient_pq.format.kernels._native_avx2"
REFERENCE = "resilient_pq.format.kernels.reference.dictionary"


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Which kernels are used, and the module of one, where the package is imported with a choice and without modules."""

    def chosen(choice: str | None, *hidden: str) -> tuple[str, str]:
        monkeypatch.delenv("RESILIENT_PQ_KERNELS", raising=False)
        if choice is not None:
            monkeypatch.setenv("RESILIENT_PQ_KERNELS", choice)
        for name in hidden:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, kernels.__name__)
        monkeypatch.setattr(format_package, "kernels", kernels)  # which importing it again replaces
        again = importlib.import_module(kernels.__name__)
        assert again is not kernels
        return again.active, again.gather.__module__

    return chosen


@pytest.mark.parametrize("choice", [None, "auto", "native"])
def test_native_is_chosen_where_it_imports(native: ModuleType, choose: Any, choice: str | None) -> None:
    """That for AVX2, where the processor runs it: else that fixture has skipped."""
    hidden = [] if native.__name__ == AVX2 else [AVX2]
    assert choose(choice, *hidden) == ("native", native.__name__)


@pytest.mark.usefixtures("native")
def test_the_one_for_every_processor_can_be_chosen(choose: Any) -> None:
    assert choose("baseline") == ("native", NATIVE)


@pytest.mark.usefixtures("native")
def test_a_processor_without_avx2_has_the_one_for_every_processor(choose: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{NATIVE}._runs_avx2", lambda: False)
    assert choose("native") == ("native", NATIVE)


def test_reference_can_be_chosen(choose: Any) -> None:
    assert choose("reference") == ("reference", REFERENCE)


def test_auto_falls_back_to_the_reference(choose: Any) -> None:
    with pytest.warns(RuntimeWarning, match="no compiled kernels"):
        assert choose("auto", NATIVE) == ("reference", REFERENCE)


@pytest.mark.parametrize("choice", ["native", "baseline"])
def test_native_that_does_not_import_is_an_error(choose: Any, choice: str) -> None:
    with pytest.raises(ImportError, match=f"^RESILIENT_PQ_KERNELS={choice}, but the compiled kernels"):
        choose(choice, NATIVE)


def test_an_unknown_choice_is_an_error() -> None:
    """In a process of its own, as users meet it."""
    code = "from resilient_pq.format import kernels"
    environment = {**os.environ, "RESILIENT_PQ_KERNELS": "fast"}
    failed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert failed.returncode != 0
    assert "ValueError: RESILIENT_PQ_KERNELS is 'fast', not auto, native, baseline or reference" in failed.stderr


def test_every_kernel_is_offered() -> None:
    assert kernels.active in ("native", "reference")
    assert len(KERNELS) > 40
    assert all(callable(getattr(kernels, name)) for name in KERNELS)


def test_native_has_the_names_and_arguments_of_the_reference(native: ModuleType) -> None:
    modules = {native.__name__, NATIVE}
    compiled = {
        name
        for name, value in vars(native).items()
        if getattr(value, "__module__", "") in modules and not name.startswith("_") and not isinstance(value, type)
    }
    functions = {name for name in KERNELS if not isinstance(getattr(reference, name), type)}
    # What these shorten works without them.
    shorten = {
        "schema_key", "instances", "alike_elements", "alike_fields", "records_like", "batch_stream", "row_group_sizes",
    }  # fmt: skip
    assert compiled - shorten == functions
    assert native.StructReader.__module__ == NATIVE
    for name in functions:
        defined = inspect.signature(getattr(reference, name)).parameters
        assert list(inspect.signature(getattr(native, name)).parameters) == list(defined), name
