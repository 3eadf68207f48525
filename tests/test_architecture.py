"""The architecture of docs/architecture.md: allowed imports, pure modules, the one module that prints, what is tested."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import resilient_pq

ROOT = Path(__file__).parents[1]
PACKAGE = Path(resilient_pq.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Package: the packages it may import. Every one may import the modules at the top that are `OPEN_TO_ALL`.
PACKAGES = {
    "format": set(),
    "io": set(),
    "arrow": {"format"},
    "encryption": {"parity", "format", "io"},
    "writer": {"encryption", "arrow", "format", "io", "parity"},
    "damage": {"format"},
    "parity": {"format", "io"},
    "reader": {"encryption", "damage", "parity", "arrow", "format", "io"},
    "recovery": {"encryption", "writer", "reader", "parity", "damage", "arrow", "format", "io"},
    "tables": {"reader", "arrow", "format", "io"},
    "dataset": {"encryption", "bulk", "recovery", "tables", "writer", "reader", "damage", "arrow", "format", "io"},
    "bulk": {"encryption", "recovery", "parity", "writer", "reader", "damage", "arrow", "format", "io"},
    "compaction": {"tables", "dataset", "bulk", "recovery", "parity", "writer", "reader", "arrow", "format", "io"},
    "trevni": {"encryption", "recovery", "writer", "reader", "damage", "arrow", "format", "io"},
    "engines": {"encryption", "bulk", "dataset", "reader", "damage", "arrow", "format", "io", ""},
    "dask": {
        "encryption",
        "bulk",
        "dataset",
        "tables",
        "recovery",
        "writer",
        "reader",
        "damage",
        "arrow",
        "format",
        "io",
        "",
    },
    "cli": {
        "compaction",
        "dask",
        "engines",
        "dataset",
        "tables",
        "bulk",
        "trevni",
        "recovery",
        "parity",
        "encryption",
        "writer",
        "reader",
        "damage",
        "arrow",
        "format",
        "io",
        "",
    },
}
OPEN_TO_ALL = {
    "byte_ranges",
    "checksum",
    "error_chains",
    "errors",
    "lazy_dataclass",
    "machine_limits",
    "memory_pool",
    "notebook_html",
    "off_event_loop",
    "shell_commands",
    "units",
    "version",
}
#: The sans-io core: bytes in, values out.
NOT_IN_FORMAT = {
    "asyncio",
    "socket",
    "os",
    "pathlib",
    "logging",
    "time",
    "random",
    "tempfile",
    "io",
    "shutil",
}
#: Functions of their arguments alone.
PURE = (
    "writer.column_options",
    "writer.file_encoder",
    "writer.file_layout",
    "writer.cut_policy",
    "reader.read_plan",
    "reader.newest_footer",
    "reader.read_batches",
    "damage.chunk_salvage",
    "damage.page_finder",
    "damage.page_rows",
    "damage.page_runs",
    "damage.salvage_pipeline",
    "damage.on_damage",
    "damage.page_hints",
    "damage.lost_region",
    "reader.decoder",
    "reader.contents",
    "reader.filter.bloom_filter",
    "reader.data_file",
    "reader.filter.index_ranges",
    "recovery.verification.bit_repair",
    "recovery.evidence.records.chunk_records",
    "recovery.evidence.records.moved_marks",
    "recovery.evidence.records.piece_borders",
    "recovery.evidence.records.placement",
    "recovery.evidence.records.recorded_chunks",
    "recovery.evidence.records.recorded_metadata",
    "recovery.evidence.records.record_scan",
    "recovery.evidence.records.crc_seam",
    "recovery.evidence.records.survey",
    "recovery.verification.checksum_checks",
    "recovery.evidence.footers.footer_evidence",
    "recovery.evidence.footers.footer_pieces",
    "recovery.evidence.identify",
    "recovery.evidence.text_mode",
    "recovery.evidence.footers.footer_search",
    "recovery.evidence.footers.torn_footer",
    "recovery.evidence.numbering",
    "recovery.evidence.row_group_choice",
    "recovery.report",
    "recovery.evidence.strategy",
    "recovery.evidence.located_row_group",
    "recovery.rewrite.retained_rows",
    "recovery.ledger.ledger_model",
    "recovery.uploads.supplied_footer",
    "recovery.uploads.upload_rule",
    "recovery.evidence.byte_remap",
    "compaction.compaction_plan",
    "dataset.agreement",
    "dataset.folder_columns",
    "dataset.hive",
    "dataset.naming",
    "dataset.partitions",
    "dataset.rolling",
    "dataset.summary.summary_footer",
    "engines.pushdown",
    "notebook_html",
    "bulk.name_pattern",
    "bulk.file_result",
    "bulk.run_summary",
    "io.transfer.coalescing",
    "io.upload.epoch",
    "io.upload.part_layout",
    "io.upload.upload_plan",
    "tables.field_ids",
    "tables.partition_key",
)
NOT_IN_PURE = {"asyncio", "os", "socket", "pathlib", "time", "random", "logging", "tempfile", "threading"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"


def module(name: str) -> Path:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".py")


def package_of(path: Path) -> str:
    """The sub-package that a module is in; modules at the top are in none."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def imports(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Full names of all that a module imports, anywhere in it, each with its place.

    What is imported for type checkers alone is not there when the program runs, but counts all the same.
    """
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{'.' * node.level}{node.module}.{alias.name}", node) for alias in node.names)


def calls(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Every call of a plain name."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node


def test_every_package_is_there() -> None:
    assert {package_of(path) for path in MODULES} == {"", *PACKAGES}
    assert [name for name in PURE if not module(name).exists()] == []


def test_packages_import_only_the_packages_below_them() -> None:
    wrong = []
    for path in MODULES:
        here = package_of(path)
        if not here:
            continue  # the modules at the top gather the names of all packages
        for name, node in imports(path):
            package, *parts = name.split(".")
            if package == "":
                wrong.append(f"{place(path, node)}: a relative import")
            if package != "resilient_pq":
                continue
            there = parts[0] if parts and parts[0] in {*PACKAGES, *OPEN_TO_ALL} else ""
            if there not in {here, *PACKAGES[here], *OPEN_TO_ALL}:
                wrong.append(f"{place(path, node)}: {here} imports {there or 'the package itself'}")
    assert not wrong


def test_no_module_is_a_drawer() -> None:
    """Names say what is in a module; these say that nobody knew."""
    drawers = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [path for path in MODULES if drawers & {*path.relative_to(PACKAGE).parts, path.stem}]


def test_nothing_prints() -> None:
    wrong = [
        place(path, node) for path in MODULES for name, node in calls(path) if name in ("print", "input", "breakpoint")
    ]
    assert not wrong


def test_public_names_have_docstrings() -> None:
    wrong = [str(path) for path in MODULES if not ast.get_docstring(tree(path))]
    for path in MODULES:
        wrong += [place(path, node) for node in _public(tree(path)) if not ast.get_docstring(node)]
    assert not wrong


def test_annotations_are_not_evaluated() -> None:
    wrong = []
    for path in MODULES:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.AnnAssign)
        annotated = any(isinstance(node, kinds) for node in ast.walk(tree(path)))
        if annotated and "__future__.annotations" not in [name for name, _ in imports(path)]:
            wrong.append(str(path))
    assert not wrong


def test_no_exception_is_swallowed_unseen() -> None:
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = ast.walk(node.type) if node.type is not None else ()
            caught = {name.id for name in names if isinstance(name, ast.Name)}
            silent = all(isinstance(statement, ast.Pass) for statement in node.body)
            if node.type is None or (silent and caught & {"Exception", "BaseException"}):
                wrong.append(place(path, node))
    assert not wrong


def _public(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes that others may use, and the methods of those classes."""
    bodies = [tree.body]
    while bodies:
        for node in bodies.pop():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if node.name.startswith("_"):
                continue
            if any(getattr(decorator, "id", None) == "overload" for decorator in node.decorator_list):
                continue
            yield node
            if isinstance(node, ast.ClassDef):
                bodies.append(node.body)


def is_of_a_format(path: Path) -> bool:
    """Whether a module is Parquet itself, or one of the formats that are read besides."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] == "format" or (parts[:2] == ("trevni", "blocks"))


def test_formats_know_only_what_parquet_is_made_of() -> None:
    allowed = {"format", "trevni", "arrow", *OPEN_TO_ALL}
    wrong = [
        place(path, node)
        for path in MODULES
        if package_of(path) == "trevni" and is_of_a_format(path)
        for name, node in imports(path)
        if name.startswith("resilient_pq.") and name.split(".")[1] not in allowed
    ]
    assert not wrong


def test_the_format_knows_no_file_and_no_clock() -> None:
    wrong = []
    for path in MODULES:
        if not is_of_a_format(path):
            continue
        # The choice of kernels reads one environment variable when it is imported.
        allowed = {"os"} if path == PACKAGE / "format" / "kernels" / "__init__.py" else set()
        forbidden = NOT_IN_FORMAT - allowed
        wrong += [place(path, node) for name, node in imports(path) if name.split(".")[0] in forbidden]
        wrong += [place(path, node) for name, node in calls(path) if name == "open"]
    assert not wrong


def test_the_pure_modules_are_pure() -> None:
    wrong = []
    for path in map(module, PURE):
        wrong += [place(path, node) for name, node in imports(path) if name.split(".")[0] in NOT_IN_PURE]
        wrong += [place(path, node) for name, node in calls(path) if name == "open"]
        waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
        wrong += [place(path, node) for node in ast.walk(tree(path)) if isinstance(node, waiting)]
    assert not wrong


def test_the_retry_policy_is_pure_but_for_one_shell() -> None:
    path = module("io.transfer.retry")
    shells = [node.name for node in ast.walk(tree(path)) if isinstance(node, ast.AsyncFunctionDef)]
    assert shells == ["retrying"]
    assert not {name.split(".")[0] for name, _ in imports(path)} & {"os", "socket", "pathlib", "logging"}


def test_the_limit_of_requests_is_pure_but_for_one_shell() -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    shells = [
        node.name
        for node in tree(module("io.transfer.request_limiter")).body
        if isinstance(node, ast.ClassDef) and any(isinstance(inner, waiting) for inner in ast.walk(node))
    ]
    assert shells == ["RequestLimiter"]


def test_few_modules_start_processes() -> None:
    """Whoever starts another has to say what becomes of it when it is killed, as `tests/test_demo.py` does."""
    starting = [module("cli.demo.demo_kill"), module("cli.given_keys")]
    starts = re.compile(r"subprocess|multiprocessing|ProcessPool|Popen|os\.(fork|system|popen|exec|spawn|posix_spawn)")
    assert [path for path in MODULES if starts.search(path.read_text())] == starting


def test_io_knows_no_parquet() -> None:
    wrong = []
    for path in MODULES:
        if package_of(path) != "io":
            continue
        for node in ast.walk(tree(path)):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or ""
            if isinstance(name, str) and name.lower().replace("_", "") in ("parquet", "rowgroup", "par1"):
                wrong.append(place(path, node))
    assert not wrong


def test_imports_take_no_heavy_libraries_with_them() -> None:
    """What is needed only sometimes is imported only then: `import resilient_pq` stays quick."""
    heavy = (
        "dask",
        "pandas",
        "polars",
        "pyarrow",
        "duckdb",
        "s3fs",
        "aiobotocore",
        "botocore",
        "typer",
        "rich",
    )
    program = f"import sys, resilient_pq; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class TestWhatIsUnderTest:
    def test_it_is_the_installed_package(self) -> None:
        """Else a file that packaging forgets would be missing only for those who install it."""
        if os.environ.get("RPQ_ALLOW_CHECKOUT") == "1":
            pytest.skip("RPQ_ALLOW_CHECKOUT=1: the checkout may be tested")
        assert PACKAGE.resolve() != (ROOT / "resilient_pq").resolve(), (
            f"{PACKAGE} is the checkout: run `pip install '.[test]' && pytest`,"
            " or set RPQ_ALLOW_CHECKOUT=1 to test it all the same"
        )

    def test_it_is_what_the_checkout_has(self) -> None:
        """Else it was installed before the last change."""
        source = ROOT / "resilient_pq"
        there = {path.relative_to(source) for path in source.rglob("*.py")}
        assert {path.relative_to(PACKAGE) for path in MODULES} == there
        changed = [str(name) for name in there if (source / name).read_bytes() != (PACKAGE / name).read_bytes()]
        assert not changed, f"installed in another version: {changed}; run pip install again"

    def test_its_kernels_are_compiled_where_there_is_a_compiler(self) -> None:
        compilers = [*(sysconfig.get_config_var("CC") or "").split()[:1], "cc", "gcc", "clang", "cl"]
        if not any(shutil.which(compiler) for compiler in compilers):
            pytest.skip("there is no C compiler: the reference kernels are used")
        import_module("resilient_pq.format.kernels._native")

    def test_it_says_that_it_is_typed(self) -> None:
        assert (PACKAGE / "py.typed").exists()

    def test_the_tests_stand_alone(self, pytestconfig: pytest.Config) -> None:
        """In importlib mode no test module can import another, nor the checkout by accident."""
        assert pytestconfig.getoption("importmode") == "importlib"
        assert not list((ROOT / "tests").rglob("__init__.py"))
        names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
        assert sorted(names) == sorted(set(names))


def test_every_error_is_in_the_tree_and_public() -> None:
    from resilient_pq import errors

    found = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == errors.__name__
    }
    for name in found:
        assert issubclass(getattr(errors, name), errors.ResilientPQError)
        assert getattr(resilient_pq, name) is getattr(errors, name)
        assert name in (errors.__doc__ or "")


def test_all_public_names_are_there_and_sorted() -> None:
    assert sorted(resilient_pq.__all__) == list(resilient_pq.__all__)
    assert all(hasattr(resilient_pq, name) for name in resilient_pq.__all__)
