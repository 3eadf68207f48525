"""Writes two modules out of the public names: ``python scripts/sync_stub.py``.

`resilient_pq/sync.pyi` is what type checkers see of `resilient_pq.sync`, and `resilient_pq/name_table.py` says in which
module each name is that `resilient_pq/__init__.py` and `resilient_pq/public_names.py` import for type checkers.
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import resilient_pq
from resilient_pq import blocking, sync

PACKAGE = Path(resilient_pq.__file__).parent
STUB, TABLE = PACKAGE / "sync.pyi", PACKAGE / "name_table.py"
#: What the asynchronous types in annotations are for callers that block.
SAID = {"Records": "Generator[dict[str, Any], None, None]"}
#: Classes that are written for callers that block, by their public names.
OWN = {"Batches": blocking.BlockingBatches, "FileResults": blocking.BlockingResults}
BUILTINS = set(dir(__builtins__)) | {"bool", "str", "int", "float", "dict", "list", "tuple", "object", "type", "bytes"}
ARROW = ("__arrow_c_schema__", "__arrow_c_stream__")
READERS = tuple(name for name, twin in blocking.TWINS.items() if issubclass(twin, blocking.BlockingReader))

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


class Stub:
    """The text of the stub, and the names that it imports."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {"Any": "typing", "Generator": "collections.abc"}
        self.own = {*OWN, *blocking.TWINS}
        self.lines: list[str] = []

    def need(self, node: ast.AST | None, module: str) -> None:
        """Import what an annotation names, from where it is defined; of two by one name the second gets another."""
        for each in [each for each in ast.walk(node) if isinstance(each, ast.Name)] if node else ():
            if each.id in BUILTINS or each.id in self.own or each.id in SHARED or each.id == "Opening":
                continue
            source = _source_of(each.id, module)
            if self.imports.setdefault(each.id, source) != source:
                other = f"{each.id} as {source.rpartition('.')[2]}_{each.id}"
                self.imports[other] = source
                each.id = other.partition(" as ")[2]

    def function(self, node: Function, module: str, indent: str, *, name: str | None = None) -> None:
        """A function or a method that blocks."""
        arguments = node.args
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            self.need(each.annotation if each else None, module)
        for defaults in (arguments.defaults, arguments.kw_defaults):
            defaults[:] = [
                each if each is None or isinstance(each, ast.Constant) else ast.Constant(...) for each in defaults
            ]
        returned = node.returns
        if isinstance(returned, ast.Subscript) and ast.unparse(returned.value) == "Opening":
            returned = returned.slice
        text = ast.unparse(returned) if returned else "None"
        text = SAID.get(text, text).replace("BlockingBatches", "Batches").replace("BlockingResults", "FileResults")
        if text not in SAID.values():
            self.need(returned, module)
        if any("property" in ast.unparse(each) for each in node.decorator_list):
            self.lines.append(f"{indent}@property")
        self.lines.append(f"{indent}def {name or node.name}({ast.unparse(arguments)}) -> {text}:")
        documented = blocking.said(ast.get_docstring(node)) or ""
        self.lines.append(f'{indent}    """{documented.partition(chr(10))[0]}"""')

    def kind(self, kind: type, name: str) -> None:
        """A class: what is public of it and of the classes above, each once."""
        bases = [ast.unparse(each).replace("'", "") for each in _class_of(kind).bases if name in OWN]
        for each in _class_of(kind).bases if name in OWN else ():
            self.need(each, kind.__module__)
        self.lines += ["", f"class {name}{f'({bases[0]})' if bases else ''}:"]
        self.lines.append(f'    """{(blocking.said(kind.__doc__) or "").partition(chr(10))[0]}"""')
        seen: set[str] = set()
        for above in kind.__mro__:
            if above.__module__.startswith("resilient_pq"):
                self.members(above, seen, special=name in OWN)
        if name not in OWN:
            self.lines += ["    def __enter__(self) -> Self: ...", "    def __exit__(", "        self,"]
            self.lines += ["        kind: type[BaseException] | None,", "        error: BaseException | None,"]
            self.lines += ["        traceback: TracebackType | None,", "    ) -> None: ..."]
            self.imports |= {"Self": "typing", "TracebackType": "types"}
        if name in READERS:
            for node in _class_of(blocking.BlockingReader).body:
                if isinstance(node, Function) and node.name in ARROW:
                    self.function(node, "resilient_pq.blocking", "    ")

    def members(self, kind: type, seen: set[str], *, special: bool) -> None:
        """Attributes and methods that a class itself defines."""
        body = _class_of(kind).body
        for name, annotation in _attributes(kind, body):
            if name not in seen:
                seen.add(name)
                self.need(annotation, kind.__module__)
                self.lines.append(f"    {name}: {ast.unparse(annotation)}")
        for node in body:
            shown = isinstance(node, Function) and (
                not node.name.startswith("_") or (special and node.name.startswith("__") and node.name != "__init__")
            )
            if isinstance(node, Function) and shown and node.name not in seen:
                seen.add(node.name)
                self.function(node, kind.__module__, "    ")


def _class_of(kind: type) -> ast.ClassDef:
    return next(
        node for node in tree(kind.__module__).body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )


def _attributes(kind: type, body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The attributes that the docstring of a class names, with the types that its code gives them."""
    said = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2].splitlines()
    wanted = [line.partition(":")[0].strip() for line in said if line.startswith("    ") and line[4] != " "]
    made = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "__init__"), None)
    known = {each.arg: each.annotation for each in (*made.args.args, *made.args.kwonlyargs)} if made else {}
    types: dict[str, ast.expr | None] = {}
    for node in [*body, *(made.body if made else ())]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.AnnAssign):
                types[ast.unparse(inner.target).removeprefix("self.")] = inner.annotation
            elif isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Name):
                types.setdefault(ast.unparse(inner.targets[0]).removeprefix("self."), known.get(inner.value.id))
    for name in wanted:
        if (found := types.get(name)) is not None:
            yield name, found
        elif not any(name in (above.__doc__ or "") for above in kind.__mro__[1:]):
            raise SystemExit(f"{kind.__name__}.{name} has no annotation")


def _source_of(name: str, module: str) -> str:
    """The module that defines a name that another uses."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and any((a.asname or a.name) == name for a in node.names):
            return _source_of(name, node.module) if node.module.startswith("resilient_pq") else node.module
        if isinstance(node, ast.Import) and any((alias.asname or alias.name) == name for alias in node.names):
            return ""
    return module


def imported(module: str) -> dict[str, str]:
    """The modules, within the package, of the names that a module imports for type checkers."""
    found = ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8")))
    froms = [node for node in found if isinstance(node, ast.ImportFrom) and (node.module or "")[:13] == "resilient_pq."]
    return {
        alias.name: (node.module or "").removeprefix("resilient_pq.")
        for node in froms
        for alias in node.names
        if alias.asname == alias.name != "__version__"
    }


def table() -> str:
    """The whole table: a line for each module, and further ones for what does not fit."""
    names = defaultdict(list)
    for name, module in {**imported("__init__"), **imported("public_names")}.items():
        names[module].append(name)
    lines = [
        f"{module} {part}"
        for module in sorted(names)
        for part in textwrap.wrap(" ".join(sorted(names[module])), 118 - len(module))
    ]
    return f'''"""The module of each public name: `scripts/sync_stub.py` writes this out of what type checkers see."""

from __future__ import annotations

from typing import Final

_LINES: Final = """
{chr(10).join(lines)}
"""
#: Within the package, by the names.
MODULES: Final = {{name: line.split()[0] for line in _LINES.splitlines() for name in line.split()[1:]}}
'''


#: Names that callers that block have as they are.
SHARED = imported("public_names")


def page() -> str:
    """The whole stub."""
    stub = Stub()
    for name in sync.__all__:
        value: Any = getattr(resilient_pq, name)
        if name in OWN:
            stub.kind(OWN[name], name)
        elif name in blocking.TWINS:
            stub.kind(value, name)
        elif getattr(sync, name) is not value:
            nodes = tree(value.__module__).body
            stub.lines.append("")
            stub.function(next(n for n in nodes if isinstance(n, Function) and n.name == name), value.__module__, "")
    imports = [f"from {module} import {name}" if module else f"import {name}" for name, module in stub.imports.items()]
    head = "# Written by scripts/sync_stub.py; do not edit. Texts are the first lines of the docstrings.\n"
    # What is the same for callers that block; the classes below stand for those of their names.
    shared = [
        f"from resilient_pq.{name}" for name in ("public_names import *", "version import __version__ as __version__")
    ]
    return head + "\n".join([*sorted(imports), *shared, *stub.lines]) + "\n"


if __name__ == "__main__":
    if TABLE.read_text(encoding="utf-8") != table():
        TABLE.write_text(table(), encoding="utf-8")
        os.execv(sys.executable, [sys.executable, *sys.argv])  # with the names of now
    STUB.write_text(page(), encoding="utf-8")
