"""What `mutate.py` may change in a module: one comparison, constant, condition or statement at a time.

Text for people is left alone, for no test should compare it: messages of errors, of the log, docstrings. So are
assertions, annotations and strings.
"""

from __future__ import annotations

import ast
import difflib
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        id: Names it: the file, the line, the column, and what is changed.
        path: The file, seen from the package.
        start: The first byte that is replaced.
        end: The byte behind the last one.
        text: What stands there instead.
        statement: Line and column of the statement that it is in; none in the body of a module or class.
    """

    id: str
    path: str
    start: int
    end: int
    text: str = field(repr=False)
    statement: tuple[int, int] | None

    @property
    def line(self) -> int:
        """Where it stands."""
        return int(self.id.split(":")[1])

    def apply(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        """The change as a unified diff, with little around it."""
        before, after = (text.decode().splitlines(keepends=True) for text in (source, self.apply(source)))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}", n=1))


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Every change of a file that is tried, in their order in it."""
    visitor = _Visitor(path, source)
    visitor.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    found = []
    for mutant in visitor.found:
        seen[mutant.id] += 1
        number = f".{seen[mutant.id]}" if seen[mutant.id] > 1 else ""
        found.append(replace(mutant, id=mutant.id + number))
    return sorted(found, key=lambda mutant: (mutant.start, mutant.id))


def first_statement(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """Line and column of the first statement that is no docstring, if there is one."""
    has_docstring = ast.get_docstring(function, clean=False) is not None
    first = function.body[1 if has_docstring and len(function.body) > 1 else 0]
    return first.lineno, first.col_offset


class _Visitor(ast.NodeVisitor):
    """Collects the changes. Expressions stand in parentheses afterwards, so that they bind as they did."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        self._function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
        self._statement: tuple[int, int] | None = None

    # -- where ---------------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        """Look at a node, and know the statement that it belongs to."""
        before = self._statement
        if isinstance(node, ast.stmt) and self._function is not None:
            self._statement = (node.lineno, node.col_offset)
        super().visit(node)
        self._statement = before

    def _put(self, node: ast.expr | ast.stmt, name: str, text: str) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset
        assert node.end_lineno is not None and node.end_col_offset is not None
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        identity = f"{self._path}:{node.lineno}:{node.col_offset + 1}:{name}"
        lines_less = node.end_lineno - node.lineno - text.count("\n")  # what follows stays on its lines
        text = f"({text}{chr(10) * lines_less})" if isinstance(node, ast.expr) else text + "\n" * lines_less
        self.found.append(Mutant(identity, self._path, start, end, text, self._statement))

    def _put_expression(self, node: ast.expr, name: str, changed: ast.expr) -> None:
        self._put(node, name, ast.unparse(changed))

    # -- definitions ---------------------------------------------------------------------------------

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        before, statement = self._function, self._statement
        # What is given by default is seen by whoever calls the function.
        self._function, self._statement = node, first_statement(node)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for each in node.body:
            self.visit(each)
        self._function, self._statement = before, statement

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """A class: neither decorators nor bases."""
        for statement in node.body:
            self.visit(statement)

    # -- statements ----------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or ast.unparse(node.value).startswith(("log.", "logger.")):
            return
        self._put(node, "delete", "pass")
        self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._put(node, "delete", "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing: it says what holds anyway."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._put(node, "delete", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._put(node, "delete", "pass")
        operator = _OPERATORS.get(type(node.op))
        if operator is not None and not _is_text(node.value):
            changed = ast.AugAssign(node.target, operator(), node.value)
            self._put(node, f"{type(node.op).__name__}={operator.__name__}", ast.unparse(changed))
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._put(node, "delete", "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._put(node, "delete", "pass")
        elif not isinstance(node.value, ast.Constant):
            self._put(node, "none", "return None")
        self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._put(node, "continue", "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._put(node, "break", "break")

    # -- conditions ----------------------------------------------------------------------------------

    def _force(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant) or ast.unparse(test) == "TYPE_CHECKING":
            return
        for value in (True, False):
            self._put(test, str(value).lower(), str(value))

    def _visit_test(self, node: ast.If | ast.While | ast.IfExp) -> None:
        self._force(node.test)
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _visit_test  # noqa: N815

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._force(test)
        self.generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> None:
        """A case: not its pattern."""
        if node.guard is not None:
            self._force(node.guard)
            self.visit(node.guard)
        for statement in node.body:
            self.visit(statement)

    # -- expressions ---------------------------------------------------------------------------------

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nothing: it is text."""

    def visit_Compare(self, node: ast.Compare) -> None:
        for i, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                changed = ast.Compare(node.left, [*node.ops[:i], other(), *node.ops[i + 1 :]], node.comparators)
                self._put_expression(node, f"{type(operator).__name__}={other.__name__}", changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        self._put_expression(node, other.__name__, ast.BoolOp(other(), node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._put_expression(node, f"no{type(node.op).__name__}", node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _OPERATORS.get(type(node.op))
        types = isinstance(node.op, ast.BitOr) and self._function is None
        if other is not None and not types and not _is_text(node):
            changed = ast.BinOp(node.left, other(), node.right)
            self._put_expression(node, f"{type(node.op).__name__}={other.__name__}", changed)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(node, "flip", str(not node.value))
        elif isinstance(node.value, int):
            self._put(node, "more", str(node.value + 1))
            self._put(node, "less", str(node.value - 1) if node.value else "(-1)")

    def visit_Slice(self, node: ast.Slice) -> None:
        for bound, operator in ((node.lower, ast.Add()), (node.upper, ast.Sub())):
            if bound is not None and not isinstance(bound, ast.Constant):
                changed = ast.BinOp(bound, operator, ast.Constant(1))
                self._put_expression(bound, f"slice{type(operator).__name__}", changed)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            other = _CALLS[node.func.id]
            self._put(node.func, other, other)
        self.generic_visit(node)


def _is_text(node: ast.expr) -> bool:
    """Whether a sum is one of strings or bytes."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
