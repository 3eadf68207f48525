"""Which kernels are used: the environment decides, and the compiled ones only replace what is defined."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from types import ModuleType

import pytest

from resilient_pq.format import kernels as chosen
from resilient_pq.format.kernels import reference

#: What `reference` defines, classes included.
KERNELS = [name for name, value in vars(reference).items() if callable(value)]
NATIVE = "resilient_pq.format.kernels._native"
HIDE_AVX2 = "import sys; sys.modules['resilient_pq.format.kernels._native_avx2'] = None\n"
HIDE_NATIVE = "import sys; sys.modules['resilient_pq.format.kernels._native'] = None\n"
SHOW = "from resilient_pq.format import kernels; print(kernels.active, kernels.gather.__module__)"


def run(code: str, choice: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RESILIENT_PQ_KERNELS"}
    if choice is not None:
        environment["RESILIENT_PQ_KERNELS"] = choice
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("choice", [None, "auto", "native"])
def test_native_is_chosen_where_it_imports(native: ModuleType, choice: str | None) -> None:
    """That for AVX2, where the processor runs it: else that fixture has skipped."""
    hidden = "" if native.__name__.endswith("avx2") else HIDE_AVX2
    assert run(hidden + SHOW, choice).stdout.split() == ["native", native.__name__]


@pytest.mark.usefixtures("native")
def test_the_one_for_every_processor_can_be_chosen() -> None:
    assert run(SHOW, "baseline").stdout.split() == ["native", NATIVE]


@pytest.mark.usefixtures("native")
def test_a_processor_without_avx2_has_the_one_for_every_processor() -> None:
    without = f"import {NATIVE} as native; native._runs_avx2 = lambda: False\nimport importlib\n"
    again = "from resilient_pq.format import kernels; print(importlib.reload(kernels).gather.__module__)"
    assert run(without + again, "native").stdout.split() == [NATIVE]


def test_reference_can_be_chosen() -> None:
    assert run(SHOW, "reference").stdout.split() == [
        "reference",
        "resilient_pq.format.kernels.reference.dictionary",
    ]


def test_auto_falls_back_to_the_reference() -> None:
    shown = run(HIDE_NATIVE + SHOW, "auto")
    assert shown.stdout.split() == ["reference", "resilient_pq.format.kernels.reference.dictionary"]


@pytest.mark.parametrize("choice", ["native", "baseline"])
def test_native_that_does_not_import_is_an_error(choice: str) -> None:
    failed = run(HIDE_NATIVE + SHOW, choice)
    assert failed.returncode != 0
    assert f"ImportError: RESILIENT_PQ_KERNELS={choice}, but the compiled kernels" in failed.stderr


def test_an_unknown_choice_is_an_error() -> None:
    failed = run(SHOW, "fast")
    assert failed.returncode != 0
    assert "ValueError: RESILIENT_PQ_KERNELS is 'fast', not auto, native, baseline or reference" in failed.stderr


def test_every_kernel_is_offered() -> None:
    assert chosen.active in ("native", "reference")
    assert len(KERNELS) > 40
    assert all(callable(getattr(chosen, name)) for name in KERNELS)


def test_native_has_the_names_and_arguments_of_the_reference(native: ModuleType) -> None:
    modules = {native.__name__, NATIVE}
    kernels = {
        name
        for name, value in vars(native).items()
        if getattr(value, "__module__", "") in modules and not name.startswith("_") and not isinstance(value, type)
    }
    functions = {name for name in KERNELS if not isinstance(getattr(reference, name), type)}
    assert kernels == functions
    assert native.StructReader.__module__ == NATIVE
    for name in kernels:
        defined = inspect.signature(getattr(reference, name)).parameters
        assert list(inspect.signature(getattr(native, name)).parameters) == list(defined), name
