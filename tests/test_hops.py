"""How many modules and functions of the package an ordinary operation passes: `scripts/hops.py` counts them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
#: The most modules and functions that each operation may pass; a slow machine adds a few, as turns of a loop are timed.
MOST = {
    "read": (25, 121),
    "write": (41, 244),
    "read with a filter": (58, 321),
    "recover": (91, 460),
}


@pytest.fixture(scope="module")
def hops() -> ModuleType:
    specification = importlib.util.spec_from_file_location("hops", ROOT / "scripts" / "hops.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", MOST)
def test_ordinary_operations_pass_few_modules_and_functions(
    hops: ModuleType,
    tmp_path: Path,
    name: str,
) -> None:
    found = hops.passed(hops.operations(tmp_path)[name])
    modules, functions = MOST[name]
    which = f'python scripts/hops.py --functions "{name}" lists them: pass fewer'
    assert 5 < len({module for module, _ in found}) <= modules, which
    assert 20 < len(found) <= functions, which
