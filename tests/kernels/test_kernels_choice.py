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

HIDE_NATIVE = "import sys; sys.modules['resilient_pq.format.kernels._native'] = None\n"
SHOW = "from resilient_pq.format import kernels; print(kernels.active, kernels.gather.__module__)"


def run(code: str, choice: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "RESILIENT_PQ_KERNELS"}
    if choice is not None:
        environment["RESILIENT_PQ_KERNELS"] = choice
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("choice", [None, "auto", "native"])
def test_native_is_chosen_where_it_imports(choice: str | None) -> None:
    assert run(SHOW, choice).stdout.split() == ["native", "resilient_pq.format.kernels._native"]


def test_reference_can_be_chosen() -> None:
    assert run(SHOW, "reference").stdout.split() == ["reference", "resilient_pq.format.kernels.reference.dictionary"]


def test_auto_falls_back_to_the_reference() -> None:
    shown = run(HIDE_NATIVE + SHOW, "auto")
    assert shown.stdout.split() == ["reference", "resilient_pq.format.kernels.reference.dictionary"]


def test_native_that_does_not_import_is_an_error() -> None:
    failed = run(HIDE_NATIVE + SHOW, "native")
    assert failed.returncode != 0
    assert "ImportError: RESILIENT_PQ_KERNELS=native, but the compiled kernels" in failed.stderr


def test_an_unknown_choice_is_an_error() -> None:
    failed = run(SHOW, "fast")
    assert failed.returncode != 0
    assert "ValueError: RESILIENT_PQ_KERNELS is 'fast', not auto, native or reference" in failed.stderr


def test_every_kernel_is_offered() -> None:
    assert set(chosen.__all__) == {"active", *reference.__all__}
    assert all(callable(getattr(chosen, name)) for name in reference.__all__)


def test_native_has_the_names_and_arguments_of_the_reference(native: ModuleType) -> None:
    own = {
        name for name, value in vars(native).items() if getattr(value, "__module__", "") == native.__name__
    }
    kernels = {
        name for name in own if not name.startswith("_") and not isinstance(getattr(native, name), type)
    }
    functions = {name for name in reference.__all__ if not isinstance(getattr(reference, name), type)}
    assert kernels == functions
    assert native.StructReader.__module__ == native.__name__
    for name in kernels:
        defined = inspect.signature(getattr(reference, name)).parameters
        assert list(inspect.signature(getattr(native, name)).parameters) == list(defined), name
