"""Changes of code in memory, for `mutate.py`: functions get changed code, or tell which mutants a test comes by."""

from __future__ import annotations

import ast
import gc
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mutants import Mutant, first_statement

#: A name that no module has.
_PROBE = "__mutate_probe__"


class RunningCode:
    """The functions of the package as they are in memory, by the file of their code."""

    def __init__(self, package: Path) -> None:
        self._package = package
        self._sources: dict[Path, bytes] = {}  # as they were: they may be edited meanwhile
        self._functions: dict[str, list[types.FunctionType]] = defaultdict(list)
        for found in gc.get_objects():
            if type(found) is types.FunctionType and found.__code__.co_filename.startswith(f"{package}/"):
                self._functions[found.__code__.co_filename].append(found)

    def change(self, mutant: Mutant) -> bool:
        """Make a change; gives whether it could be made."""
        path = self._package / mutant.path
        before = self._sources[path]
        after = mutant.apply(before)
        if mutant.statement is None:
            return self._execute(path, after)
        same = {_key(code): code for code in _nested(_compiled(before, path))}
        changed = [code for code in _nested(_compiled(after, path)) if code != same.get(_key(code))]
        replaced = self._replace(path, changed)
        return replaced or self._execute(path, after)

    def probe(self, mutants: Iterable[Mutant], tell: Callable[[str], None]) -> None:
        """Have functions tell the mutants that they come by."""
        of_file: dict[str, list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            of_file[mutant.path].append(mutant)
        for name, found in of_file.items():
            path = self._package / name
            self._sources[path] = path.read_bytes()
            tree = _Probes(found).visit(ast.parse(self._sources[path]))
            for function in self._functions[str(path)]:
                function.__globals__[_PROBE] = tell
            self._replace(path, _nested(_compiled(ast.fix_missing_locations(tree), path)))

    def _replace(self, path: Path, codes: Iterable[types.CodeType]) -> bool:
        by_key = {_key(code): code for code in codes}
        replaced = False
        for function in self._functions[str(path)]:
            code = by_key.get(_key(function.__code__))
            if code is not None and code.co_freevars == function.__code__.co_freevars:
                function.__code__ = code
                replaced = True
        return replaced

    def _execute(self, path: Path, source: bytes) -> bool:
        """Run a changed module, and take over its constants and what its functions have by default."""
        modules = [each for each in list(sys.modules.values()) if isinstance(each, types.ModuleType)]
        [module] = [each for each in modules if getattr(each, "__file__", None) == str(path)]
        twin = types.ModuleType(module.__name__)
        kept = ("__file__", "__package__", "__spec__", "__loader__", "__path__")
        vars(twin).update({name: vars(module)[name] for name in kept if name in vars(module)})
        try:
            sys.modules[module.__name__] = twin  # where dataclasses look for the names of annotations
            exec(_compiled(source, path), vars(twin))
        finally:
            sys.modules[module.__name__] = module
        changed = False
        for name, new in vars(twin).items():
            old = vars(module).get(name)
            if isinstance(new, type) and isinstance(old, type) and new.__module__ == module.__name__:
                for part, value in vars(new).items():
                    changed |= _take_over(old, part, vars(old).get(part), value)
            elif not name.startswith("__") and _take_over(module, name, old, new):
                changed = True
                for each in modules:
                    if each is not module and vars(each).get(name) is old is not None:
                        setattr(each, name, new)
        return changed


def _take_over(owner: Any, name: str, old: Any, new: Any) -> bool:
    if isinstance(new, types.FunctionType) and isinstance(old, types.FunctionType):
        changed = (old.__defaults__, old.__kwdefaults__) != (new.__defaults__, new.__kwdefaults__)
        if changed:
            old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
        return changed
    plain = (int, float, str, bytes, tuple, frozenset, dict, list, set, type(None))
    if not name.startswith("__") and isinstance(new, plain) and type(new) is type(old) and repr(new) != repr(old):
        setattr(owner, name, new)
        return True
    return False


def _compiled(source: Any, path: Path) -> types.CodeType:
    return compile(source, str(path), "exec", dont_inherit=True)


def _nested(code: types.CodeType) -> Iterable[types.CodeType]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _nested(each)


def _key(code: types.CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


class _Probes(ast.NodeTransformer):
    """Puts a call before each statement that a mutant is in; those of no statement are reached by every function."""

    def __init__(self, mutants: Iterable[Mutant]) -> None:
        self._of_statement: dict[tuple[int, int], list[str]] = defaultdict(list)
        self._everywhere = [mutant.id for mutant in mutants if mutant.statement is None]
        for mutant in mutants:
            if mutant.statement is not None:
                self._of_statement[mutant.statement].append(mutant.id)
        self._first: set[tuple[int, int]] = set()

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._first.add(first_statement(node))
        place = (node.lineno, node.col_offset) if isinstance(node, ast.stmt) else (0, 0)
        told = [*self._of_statement.get(place, ()), *(self._everywhere if place in self._first else ())]
        visited = super().visit(node)
        if not told:
            return visited
        calls = [ast.Expr(ast.Call(ast.Name(_PROBE, ast.Load()), [ast.Constant(identity)], [])) for identity in told]
        return [ast.copy_location(call, node) for call in calls] + [visited]
