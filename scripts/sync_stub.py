"""Writes resilient_pq/sync.pyi from the asynchronous functions and classes: ``python scripts/sync_stub.py``."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import resilient_pq
from resilient_pq import blocking, public_names, sync

STUB = Path(resilient_pq.__file__).parent / "sync.pyi"
HEAD = '''"""What type checkers and editors know of resilient_pq.sync; made by scripts/sync_stub.py."""

'''
#: Classes whose blocking form is typed where it is written.
WRITTEN = {"Batches": "BlockingBatches", "FileResults": "BlockingResults"}
#: Methods for other parts of the package.
INTERNAL = {"jobs", "place"}
#: What an asynchronous name gives, and what its blocking twin gives.
PLAIN = {"Opening": None, "Records": "Generator[dict[str, Any]]"}
LINE = 120


class Stub:
    """The stub while it is written: its text, and the names that it needs from modules."""

    def __init__(self) -> None:
        self._imports: dict[str, tuple[str, str]] = {}
        self.twins = [name for name in resilient_pq.__all__ if _is_twin(name)]
        self._need("collections.abc", "Generator")
        self._need("typing", "Any")

    def text(self) -> str:
        """All of it."""
        classes = [self._class(name) for name in self.twins]
        functions = [
            self._function(getattr(resilient_pq, name), "", getattr(sync, name).__doc__)
            for name in resilient_pq.__all__
            if inspect.isfunction(getattr(resilient_pq, name)) and not hasattr(public_names, name)
        ]
        written = "".join(f"{name} = {blocking}\n" for name, blocking in WRITTEN.items())
        return HEAD + "\n".join([self._import_lines(), written, *classes, *functions])

    def _import_lines(self) -> str:
        by_module = defaultdict(list)
        for called, (module, name) in self._imports.items():
            by_module[module].append(name if called in (name, module) else f"{name} as {called}")
        for name in resilient_pq.__all__:
            if name in WRITTEN:
                by_module["resilient_pq.blocking_streams"].append(WRITTEN[name])
            elif name not in self.twins and hasattr(public_names, name):
                by_module["resilient_pq.public_names"].append(f"{name} as {name}")
        by_module["resilient_pq.version"].append("__version__ as __version__")
        ours = [module for module in sorted(by_module) if module.startswith("resilient_pq")]
        others = sorted(by_module.keys() - set(ours) - sys.stdlib_module_names - {"collections.abc"})
        standard = sorted(by_module.keys() - set(ours) - set(others))
        groups = [[self._import(module, by_module[module]) for module in part] for part in (standard, others, ours)]
        return "\n".join("".join(sorted(lines, key=_is_from)) for lines in groups if lines)

    def _import(self, module: str, names: list[str]) -> str:
        if names == [""]:
            return f"import {module}\n"
        # A name that is public is imported as itself, one by one; that is how formatters have it, too.
        plain = sorted({name for name in names if " as " not in name and f"{name} as {name}" not in names})
        lines = _fitting(f"from {module} import ", plain, "") if plain else ""
        return lines + "".join(f"from {module} import {name}\n" for name in sorted(set(names)) if " as " in name)

    def _need(self, module: str, name: str) -> str:
        """Import a name, or a module where there is none; what it is called here."""
        if name in resilient_pq.__all__ or module == "builtins":
            return name
        called = name or module
        if self._imports.get(called, (module, name)) != (module, name):
            called = f"{module.rpartition('.')[2].title().replace('_', '')}{name}"
        self._imports[called] = module, name
        return called

    def _class(self, name: str) -> str:
        twin, kind = getattr(sync, name), getattr(resilient_pq, name)
        base = twin.__mro__[1].__name__
        self._need("resilient_pq.blocking", base)
        parts = [f"class {name}({base}):\n", _documented(twin.__doc__, "    "), "\n"]
        parts += [f"    {attribute}: {kind}\n" for attribute, kind in self._attributes(kind)]
        for each in dir(kind):
            member = inspect.getattr_static(kind, each)
            if each.startswith("_") or each in INTERNAL or each in vars(getattr(blocking, base)):
                continue
            documentation = getattr(getattr(twin, each, None), "__doc__", None)
            if isinstance(member, property | functools.cached_property):
                getter: Any = member.fget if isinstance(member, property) else member.func
                parts.append("    @property\n" + self._function(getter, "    ", documentation))
            elif inspect.isfunction(member):
                parts.append(self._function(member, "    ", documentation))
        return "".join(parts)

    def _attributes(self, kind: type) -> Iterator[tuple[str, str]]:
        """The public attributes whose types are written where they are set."""
        for each in reversed(kind.__mro__[:-1]):
            if not each.__module__.startswith("resilient_pq"):
                continue
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
            assert isinstance(body, ast.ClassDef)
            for node in (*body.body, *(ast.walk(_tree(each.__init__)) if "__init__" in vars(each) else ())):
                if isinstance(node, ast.AnnAssign) and node.value is not None:
                    name = ast.unparse(node.target).removeprefix("self.")
                    if not name.startswith("_"):
                        yield name, self._type(node.annotation, each.__module__)

    def _function(self, function: Callable[..., Any], indent: str, documentation: str | None) -> str:
        node = _tree(function)
        module = function.__module__
        given = node.args
        arguments = []
        positional = [*given.posonlyargs, *given.args]
        defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
        arguments += [self._argument(each, default, module) for each, default in zip(positional, defaults, strict=True)]
        if given.kwonlyargs:
            arguments.append("*")
        arguments += [
            self._argument(each, default, module)
            for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        ]
        if given.kwarg is not None:
            arguments.append("**" + self._argument(given.kwarg, None, module))
        assert node.returns is not None
        head = _fitting(f"{indent}def {node.name}(", arguments, f") -> {self._type(node.returns, module)}:")
        return head + (_documented(documentation, indent + "    ") if documentation else f"{indent}    ...\n")

    def _argument(self, argument: ast.arg, default: ast.expr | None, module: str) -> str:
        kind = "" if argument.annotation is None else f": {self._type(argument.annotation, module)}"
        if default is None:
            return argument.arg + kind
        shown = ast.unparse(default).replace("'", '"') if isinstance(default, ast.Constant) else "..."
        return f"{argument.arg}{kind} = {_number(default) or shown}"

    def _type(self, annotation: ast.expr, module: str) -> str:
        """A type as the blocking twin has it, once the names in it are imported."""
        if isinstance(annotation, ast.Name) and annotation.id in PLAIN:
            return str(PLAIN[annotation.id])
        if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Opening":
            return self._type(annotation.slice, module)
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name) and node.id not in (*self.twins, *WRITTEN):
                node.id = self._need(*_origin(node.id, module))
        return ast.unparse(annotation).replace("'", '"')


def _is_from(line: str) -> bool:
    return line.startswith("from")


def _is_twin(name: str) -> bool:
    return inspect.isclass(getattr(sync, name)) and issubclass(getattr(sync, name), blocking.Blocking)


def _number(default: ast.expr) -> str | None:
    """A number as it is written, with its underscores."""
    if isinstance(default, ast.Constant) and type(default.value) is int:
        return f"{default.value:_}"
    return None


def _tree(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


@functools.cache
def _imported(module: str) -> dict[str, tuple[str, str]]:
    """The names that a module imports, and from where; without a name of its own where it is a module."""
    found = {}
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
        if isinstance(node, ast.ImportFrom):
            found |= {each.asname or each.name: (str(node.module), each.name) for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.asname or each.name: (each.name, "") for each in node.names}
    return found


def _origin(name: str, module: str) -> tuple[str, str]:
    """The module that a name of an annotation comes from, and its name there."""
    if name in _imported(module):
        return _imported(module)[name]
    return ("builtins", name) if not hasattr(sys.modules[module], name) else (module, name)


def _fitting(start: str, items: list[str], end: str) -> str:
    """A list of arguments on one line, or else one on each."""
    line = f"{start}{', '.join(items)}{end}\n"
    if len(line) <= LINE + 1:
        return line
    indent = " " * (len(start) - len(start.lstrip()))
    opened, closed = (start, end) if end else (f"{start}(", ")")
    return opened + "\n" + "".join(f"{indent}    {item},\n" for item in items) + f"{indent}{closed}\n"


def _documented(text: str | None, indent: str) -> str:
    shown = inspect.cleandoc(text or "")
    quoted = f'"""{shown}{chr(10) if chr(10) in shown else ""}"""'
    return textwrap.indent(quoted, indent) + "\n"


def main() -> None:
    """Write the stub."""
    STUB.write_text(Stub().text(), encoding="utf-8")


if __name__ == "__main__":
    main()
