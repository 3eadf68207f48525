"""`--where`: a condition on rows as text, parsed into the filters that reads take. Pure.

Conditions are those of SQL: null meets none but ``is null``, and neither does the opposite of what it does not meet.
NaN equals nothing and has no order, so that it meets ``!=`` and ``not x < 5``, and does not meet ``x >= 5``.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from difflib import get_close_matches
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from resilient_pq.errors import OptionError, SchemaError
from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Type
from resilient_pq.format.logical import Time, Timestamp
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.lazy_dataclass import dataclass

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*') | (?P<quoted>"(?:[^"]|"")*")
    | (?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?(?![\w.]))
    | (?P<name>[^\W\d]\w*(?:\.\w+)*) | (?P<sign><=|>=|<>|!=|==|[=<>(),]) | (?P<end>\Z))""",
    re.VERBOSE,
)
_OPPOSITE: Final = {"=": "!=", "<": ">=", "<=": ">", "in": "not in", "is null": "is not null"}
_OPPOSITE_OF: Final = _OPPOSITE | {two: one for one, two in _OPPOSITE.items()}
_ORDERED: Final = ("<", "<=", ">", ">=")
_KEYWORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "between", "true", "false"})
#: Alternatives of "or" that all conditions come to when they are multiplied out.
_MOST: Final = 256
_DEEPEST: Final = 50
#: Characters of the text that are shown before and behind a mistake.
_BESIDE: Final = 50


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


@dataclass(frozen=True, slots=True)
class _Term:
    """A condition on one column; `negated` where its opposite is meant."""

    column: _Token
    operator: str
    values: tuple[_Token, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class _Both:
    """Terms of which all have to hold, or with `any_of` one."""

    parts: tuple[Any, ...]
    any_of: bool


class WhereClause:
    """A parsed condition; an `OptionError` shows the place of a mistake in the text."""

    def __init__(self, text: str) -> None:
        self._text = re.sub(r"\s", " ", text)
        self._tokens = self._split()
        self._depth = 0
        self._tree = self._either(negated=False) if text else None
        if self._next.kind != "end":
            raise self._wrong(self._next, 'expected "and", "or" or the end')

    def filters(self, schema: Schema) -> list[list[tuple[Any, ...]]] | None:
        """The same as filters on columns of a schema; None of an empty text, which every row meets."""
        return None if self._tree is None else self._multiplied(self._tree, schema)

    # -- parsing -------------------------------------------------------------------------------------------

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while not tokens or tokens[-1].kind != "end":
            found = _TOKEN.match(self._text, at)
            if found is None:
                start = at + len(self._text[at:]) - len(self._text[at:].lstrip())
                what = {"'": "the text has no end", '"': "the name has no end"}.get(self._text[start])
                raise self._wrong(_Token("", "", start), what or "this is not understood")
            group = str(found.lastgroup)
            kind, text = group, found[group]
            if kind == "name" and text.lower() in _KEYWORDS:
                kind, text = "keyword", text.lower()
            tokens.append(_Token(kind, text, found.start(group)))
            at = found.end()
        return tokens[::-1]

    @property
    def _next(self) -> _Token:
        return self._tokens[-1]

    def _take(self, *texts: str) -> _Token | None:
        """The next token, if it is a sign or keyword of these."""
        return self._tokens.pop() if self._next.kind in ("sign", "keyword") and self._next.text in texts else None

    def _require(self, text: str) -> None:
        if self._take(text) is None:
            raise self._wrong(self._next, f'expected "{text}"')

    def _either(self, *, negated: bool) -> Any:
        return self._joined(lambda: self._all(negated=negated), "or", any_of=not negated)

    def _all(self, *, negated: bool) -> Any:
        return self._joined(lambda: self._one(negated=negated), "and", any_of=negated)

    def _joined(self, parse: Callable[[], Any], word: str, *, any_of: bool) -> Any:
        parts = [parse()]
        while self._take(word):
            parts.append(parse())
        return parts[0] if len(parts) == 1 else _Both(tuple(parts), any_of)

    def _one(self, *, negated: bool) -> Any:
        if (opening := self._take("not", "(")) is None:
            return self._condition(negated=negated)
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong(opening, f"more than {_DEEPEST} conditions are nested")
        if opening.text == "not":
            inner = self._one(negated=not negated)
        else:
            inner = self._either(negated=negated)
            self._require(")")
        self._depth -= 1
        return inner

    def _condition(self, *, negated: bool) -> Any:
        column = self._next
        if column.kind not in ("name", "quoted"):
            raise self._wrong(column, "expected a column", 'quote a name such as "order": --where \'"order" > 5\'')
        self._tokens.pop()
        if self._take("is"):
            negated ^= self._take("not") is not None
            self._require("null")
            return _Term(column, "is null", (), negated)
        if sign := self._take("=", "==", "!=", "<>", *_ORDERED):
            operator = {"==": "=", "<>": "!="}.get(sign.text, sign.text)
            return _Term(column, operator, (self._value(),), negated)
        negated ^= self._take("not") is not None
        if self._take("in"):
            self._require("(")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._require(")")
            return _Term(column, "in", tuple(values), negated)
        if self._take("between"):
            low = _Term(column, ">=", (self._value(),), negated)
            self._require("and")
            return _Both((low, _Term(column, "<=", (self._value(),), negated)), any_of=negated)
        raise self._wrong(self._next, "expected =, !=, <, <=, >, >=, in, between or is")

    def _value(self) -> _Token:
        token = self._next
        if token.kind in ("text", "number") or token.text in ("true", "false"):
            return self._tokens.pop()
        hint = "compare with null by `is null`" if token.text == "null" else "text is written in single quotes: 'Oslo'"
        raise self._wrong(token, "expected a value", hint)

    # -- columns and their types ---------------------------------------------------------------------------

    def _multiplied(self, part: Any, schema: Schema) -> list[list[tuple[Any, ...]]]:
        """Alternatives, of each of which all terms have to hold."""
        if isinstance(part, _Term):
            return self._bound(part, schema)
        inner = [self._multiplied(each, schema) for each in part.parts]
        count = sum(map(len, inner)) if part.any_of else math.prod(map(len, inner))
        if count > _MOST:
            raise OptionError(f"--where comes to {count:,} alternatives, and may have {_MOST}", hint="use `in (...)`")
        if part.any_of:
            return [terms for alternatives in inner for terms in alternatives]
        return [[term for terms in chosen for term in terms] for chosen in product(*inner)]

    def _bound(self, term: _Term, schema: Schema) -> list[list[tuple[Any, ...]]]:
        leaf = self._leaf(term.column, schema)
        name = leaf.column_path
        operator = _OPPOSITE_OF[term.operator] if term.negated else term.operator
        if term.operator == "is null":
            return [[(name, operator)]]
        values = [self._converted(value, leaf) for value in term.values]
        if term.operator == "in":
            return [[(name, operator, values)]]
        floating = leaf.node.physical_type in (Type.FLOAT, Type.DOUBLE) or leaf.node.logical == logical.FLOAT16
        nan = [[(name, "in", [math.nan])]] if term.negated and floating and operator in _ORDERED else []
        return [[(name, operator, values[0])], *nan]

    def _leaf(self, token: _Token, schema: Schema) -> Leaf:
        name = token.text[1:-1].replace('""', '"') if token.kind == "quoted" else token.text
        if (leaf := schema.leaf_named(name)) is not None and not leaf.max_repetition_level:
            return leaf
        names = [each.column_path for each in schema.leaves if not each.max_repetition_level]
        what = "there is no column of this name" if leaf is None else "this column lies in a list or a map"
        close = get_close_matches(name, names, 1)
        raise self._wrong(token, what, f"did you mean {close[0]}?" if close else f"columns: {', '.join(names)}")

    def _converted(self, token: _Token, leaf: Leaf) -> Any:
        if token.kind == "keyword":
            return token.text == "true"
        if token.kind == "number":
            return Decimal(token.text)
        try:
            return _text_as(leaf, token.text[1:-1].replace("''", "'"))
        except ValueError as error:
            reason = error.message if isinstance(error, SchemaError) else str(error)
            raise self._wrong(token, f"{leaf.column_path} is {_type_of(leaf)}: {reason}") from None

    def _wrong(self, token: _Token, what: str, hint: str | None = None) -> OptionError:
        first = max(0, token.at - _BESIDE)
        shown = self._text[first : token.at + _BESIDE]
        return OptionError(f"--where: {what}\n{shown}\n{' ' * (token.at - first)}^", hint=hint)


def _type_of(leaf: Leaf) -> str:
    return str(leaf.node.logical or leaf.node.physical_type.name)


def _text_as(leaf: Leaf, text: str) -> Any:
    """Quoted text as a value of a column: ISO 8601 for dates and times; a ValueError where it is none."""
    match leaf.node.logical:
        case logical.DATE:
            return dt.date.fromisoformat(text)
        case Time():
            if len(text.partition(".")[2]) > 6:
                raise ValueError("times of day are written with at most 6 digits of a second")
            return dt.time.fromisoformat(text)
        case Timestamp(_, utc):
            return _timestamp(text, utc)
        case logical.UUID:
            return uuid.UUID(text)
    if leaf.node.physical_type is Type.INT96:
        return _timestamp(text, utc=False)
    if leaf.node.physical_type not in (Type.BYTE_ARRAY, Type.FIXED_LEN_BYTE_ARRAY):
        raise ValueError("write the value without quotes")
    return text if leaf.node.physical_type is Type.BYTE_ARRAY else text.encode()


def _timestamp(text: str, utc: bool) -> Any:
    """A time; where the column is in UTC, one without an offset is in UTC as well."""
    parsed = dt.datetime.fromisoformat(text)
    if parsed.tzinfo is not None and not utc:
        raise ValueError("its times have no time zone: leave the offset out")
    if len(re.sub(r".*?(\.\d*)?(Z|[+-]\d\d:?\d\d)?", r"\1", text)) > 7:  # finer than Python's microseconds
        if parsed.tzinfo is not None and parsed.utcoffset():
            raise ValueError("nanoseconds are written with Z, not with an offset")
        return np.datetime64(text.removesuffix("Z").removesuffix("+00:00"))
    return parsed.replace(tzinfo=dt.UTC) if utc and parsed.tzinfo is None else parsed
