"""Every test of a kernel runs on both implementations, and those called `*_agree*` compare the two."""

from __future__ import annotations

import re
import shutil
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import DTypeLike, NDArray

from resilient_pq.errors import FormatError
from resilient_pq.format.kernels import reference

NATIVE = "resilient_pq.format.kernels._native"
Outcome = Callable[[Callable[[], Any]], Any]
Guarded = Callable[[int | tuple[int, int], DTypeLike], AbstractContextManager[NDArray[Any]]]


def load_native(name: str = "_native") -> ModuleType:
    """The compiled kernels. Without them the test is skipped, but only where nothing could have made them."""
    if name == "_native_avx2" and not load_native()._runs_avx2():
        pytest.skip("this processor has no AVX2")
    try:
        module = ModuleType(NATIVE.removesuffix("_native") + name)
        vars(module).update(vars(import_module(NATIVE)) | vars(import_module(module.__name__)))
        return module
    except ImportError as error:
        compilers = [*(sysconfig.get_config_var("CC") or "").split()[:1], "cc", "gcc", "clang", "cl"]
        if any(shutil.which(compiler) for compiler in compilers):
            pytest.fail(f"there is a C compiler, but the compiled kernels do not import: {error}")
        pytest.skip("the kernels are not compiled, and there is no C compiler")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests of kernels that `_native_avx2` takes from `_native`: they would test the same twice."""
    try:
        own = own_names(import_module(NATIVE + "_avx2")) if import_module(NATIVE)._runs_avx2() else set()
    except ImportError:
        return  # the fixtures say what is missing
    twice = [
        item
        for item in items
        if item.path.parent == Path(__file__).parent and "_native_avx2" in item.name and not own & words_of(item.path)
    ]
    config.hook.pytest_deselected(items=twice)
    left_out = set(twice)
    items[:] = [item for item in items if item not in left_out]


@cache
def words_of(path: Path) -> set[str]:
    return set(re.findall(r"\w+", path.read_text()))


def own_names(module: ModuleType) -> set[str]:
    """The kernels that are defined in a compiled module itself."""
    return {
        name for name in vars(reference) if getattr(getattr(module, name, None), "__module__", "") == module.__name__
    }


@pytest.fixture(scope="session", params=["reference", "_native", "_native_avx2"])
def kernels(request: pytest.FixtureRequest) -> ModuleType:
    return reference if request.param == "reference" else load_native(request.param)


@pytest.fixture(scope="session", params=["_native", "_native_avx2"])
def native(request: pytest.FixtureRequest) -> ModuleType:
    return load_native(request.param)


@pytest.fixture(scope="session")
def outcome() -> Outcome:
    """Calls and gives back what came of it, so that two implementations can be compared."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.dtype, value.shape, value.tobytes()
        return tuple(map(plain, value)) if isinstance(value, tuple) else value

    def call(function: Callable[[], Any]) -> Any:
        try:
            return plain(function())
        except FormatError as error:
            return type(error)

    return call


@pytest.fixture(scope="session")
def guarded() -> Guarded:
    """Arrays between bytes that nobody may write; leaving the context looks whether somebody did."""

    @contextmanager
    def allocate(shape: int | tuple[int, int], dtype: DTypeLike) -> Iterator[NDArray[Any]]:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        memory = np.full(size + 128, 0xA5, np.uint8)
        yield memory[64 : 64 + size].view(dtype).reshape(shape)
        assert (memory[:64] == 0xA5).all(), "written before the output"
        assert (memory[64 + size :] == 0xA5).all(), "written behind the output"

    return allocate
