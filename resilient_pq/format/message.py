"""Schemas as text, in the language that Parquet's tools print: ``message m { required int64 id; }``.

`parse` reads what `text` writes, what parquet-java prints, and the older annotations (``UTF8``,
``TIMESTAMP_MILLIS``). ``string`` stands for ``binary`` with the annotation ``(STRING)``, ``//`` begins a comment,
and a name that would be read otherwise stands in quotes, as a JSON string. Both speak of the footer's list of
schema elements, depth first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from resilient_pq.errors import SchemaError
from resilient_pq.format import logical
from resilient_pq.format.annotations import EdgeInterpolationAlgorithm
from resilient_pq.format.file_metadata import ConvertedType, Repetition, SchemaElement, Type
from resilient_pq.format.logical import Decimal, Integer, Logical, Plain, Time, Timestamp, TimeUnit, Uninterpreted

_T = TypeVar("_T")

_IGNORED = re.compile(r"(?:\s|//[^\n]*)*")
_WORD = re.compile(r'[^\s{}();=,"]+')
_TOKEN = re.compile(rf'[{{}}();=,]|"(?:[^"\\\n]|\\.)*"|{_WORD.pattern}')
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_PHYSICAL = {
    "boolean": Type.BOOLEAN,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "int96": Type.INT96,
    "float": Type.FLOAT,
    "double": Type.DOUBLE,
    "binary": Type.BYTE_ARRAY,
    "fixed_len_byte_array": Type.FIXED_LEN_BYTE_ARRAY,
}
_PHYSICAL_NAMES = {kind: name for name, kind in _PHYSICAL.items()}
_SYNONYMS = {"byte_array": "binary", "string": "binary"}
#: How annotations with parameters are written.
_FORMS = {
    "DECIMAL": "DECIMAL(precision,scale)",
    "INTEGER": "INTEGER(bits,signed), as INTEGER(8,true)",
    "TIME": "TIME(unit,utc), as TIME(MICROS,true)",
    "TIMESTAMP": "TIMESTAMP(unit,utc), as TIMESTAMP(MICROS,true)",
    "VARIANT": "VARIANT(version)",
    "GEOMETRY": "GEOMETRY(crs)",
    "GEOGRAPHY": "GEOGRAPHY(crs,algorithm)",
}


def parse(text: str) -> list[SchemaElement]:
    """The schema elements that a schema's text describes."""
    tokens = _Tokens(text)
    tokens.expect("message")
    root = SchemaElement(name="schema" if tokens.at("{") else tokens.name(), num_children=0)
    tokens.expect("{")
    elements, open_groups = [root], [root]
    while open_groups:
        if tokens.at("}"):
            tokens.expect("}")
            open_groups.pop()
            continue
        element = _element(tokens)
        elements.append(element)
        open_groups[-1].num_children = (open_groups[-1].num_children or 0) + 1
        if element.type is None:
            element.num_children = 0
            open_groups.append(element)
    tokens.expect_end()
    return elements


def _element(tokens: _Tokens) -> SchemaElement:
    """A field, up to its semicolon, or a group, up to its opening brace."""
    repetition = tokens.one_of({each.name.lower(): each for each in Repetition})
    kinds = ["group", *_PHYSICAL, *_SYNONYMS]
    kind = tokens.one_of(dict(zip(kinds, kinds, strict=True)))
    physical_type = None if kind == "group" else _PHYSICAL[_SYNONYMS.get(kind, kind)]
    element = SchemaElement(repetition_type=int(repetition))
    if physical_type is not None:
        element.type = int(physical_type)
    if physical_type is Type.FIXED_LEN_BYTE_ARRAY:
        tokens.expect("(")
        element.type_length = tokens.number(0)
        tokens.expect(")")
    element.name = tokens.name()
    annotation: Logical | None = logical.STRING if kind == "string" else None
    if tokens.at("("):
        annotation = _annotation(tokens, repetition)
    if annotation and not logical.may_annotate(annotation, physical_type, element.type_length):
        on = "a group" if physical_type is None else _type_text(element)
        raise tokens.error(f"{annotation} cannot be said of {on}")
    logical.annotate(element, annotation)
    if tokens.at("="):
        tokens.expect("=")
        element.field_id = tokens.number(-(2**31))
    tokens.expect("{" if physical_type is None else ";")
    return element


def _annotation(tokens: _Tokens, repetition: Repetition) -> Logical | None:
    tokens.expect("(")
    name = tokens.name().upper()
    parameters: list[str] = []
    if tokens.at("("):
        tokens.expect("(")
        parameters.append(tokens.name())
        while tokens.at(","):
            tokens.expect(",")
            parameters.append(tokens.name())
        tokens.expect(")")
    if name == "MAP_KEY_VALUE" and repetition is Repetition.REPEATED:
        found = None  # older writers said it of the pairs of a map; now nothing is said of them
    else:
        try:
            found = _annotation_named(name, parameters)
        except (KeyError, ValueError):
            form = f": it is {_FORMS[name]}" if name in _FORMS else ""
            written = f"{name}({','.join(parameters)})" if parameters else name
            raise tokens.error(f"there is no annotation {written}{form}") from None
    tokens.expect(")")
    return found


def _annotation_named(name: str, parameters: list[str]) -> Logical:
    """The annotation; `KeyError` or `ValueError` where there is none."""
    match name, parameters:
        case "DECIMAL", [precision]:  # a missing scale means 0
            return Decimal(_number(precision), 0)
        case "DECIMAL", [precision, scale]:
            return Decimal(_number(precision), _number(scale))
        case (("INTEGER" | "INT"), [bits]):
            return Integer(_number(bits), True)
        case (("INTEGER" | "INT"), [bits, signed]):
            return Integer(_number(bits), _truth(signed))
        case "TIME", [unit, utc]:
            return Time(TimeUnit[unit.upper()], _truth(utc))
        case "TIMESTAMP", [unit, utc]:
            return Timestamp(TimeUnit[unit.upper()], _truth(utc))
        case (("VARIANT" | "GEOMETRY" | "GEOGRAPHY" | logical.UNKNOWN_ANNOTATION), _):
            return _uninterpreted_named(name, parameters)
        case _, [] if name in logical.PLAIN_NAMES:
            return Plain(name)
        case _, [] if name != "DECIMAL":
            found = logical.from_element(SchemaElement(converted_type=int(ConvertedType[name])))
            if found is not None:
                return found
    raise ValueError(name)


def _uninterpreted_named(name: str, parameters: list[str]) -> Uninterpreted:
    match name, parameters:
        case "VARIANT", [version]:
            if not -128 <= _number(version) < 128:
                raise ValueError(version)
        case "GEOGRAPHY", [crs, algorithm]:
            if algorithm.upper() not in EdgeInterpolationAlgorithm.__members__:
                _number(algorithm)
            return Uninterpreted(name, (crs, algorithm.upper()))
        case ("VARIANT", [_, *_]) | (("GEOMETRY" | "GEOGRAPHY"), [_, _, *_]):
            raise ValueError(parameters)
    return Uninterpreted(name, tuple(parameters))


def _number(word: str) -> int:
    if not _NUMBER.fullmatch(word) or abs(int(word)) >= 2**31:
        raise ValueError(word)
    return int(word)


def _truth(word: str) -> bool:
    return {"true": True, "false": False}[word.lower()]


class _Tokens:
    """The words and marks of a text, one after the other."""

    def __init__(self, text: str) -> None:
        self._found = list(_tokens(text))
        self._at = 0

    def at(self, mark: str) -> bool:
        """Whether this mark or keyword is next."""
        return self._at < len(self._found) and self._found[self._at][0].lower() == mark

    def error(self, message: str) -> SchemaError:
        """An error in the line of the token before the next, the one that was looked at last."""
        line = self._found[max(self._at - 1, 0)][1] if self._found else 1
        return SchemaError(f"schema text, line {line}: {message}")

    def expect(self, mark: str) -> None:
        found = self._next(repr(mark))
        if found.lower() != mark:
            raise self.error(f"{mark!r} is expected, not {found!r}")

    def expect_end(self) -> None:
        if self._at < len(self._found):
            found = self._next("the end")
            raise self.error(f"the message is at its end, but {found!r} follows")

    def one_of(self, meanings: dict[str, _T]) -> _T:
        """What the next word means."""
        found = self._next(f"one of {', '.join(meanings)}")
        if found.lower() not in meanings:
            raise self.error(f"one of {', '.join(meanings)} is expected, not {found!r}")
        return meanings[found.lower()]

    def name(self) -> str:
        found = self._next("a name")
        if found in set("{}();=,"):
            raise self.error(f"a name is expected, not {found!r}")
        if not found.startswith('"'):
            return found
        try:
            return str(json.loads(found))
        except ValueError:
            raise self.error(f"{found} is no JSON string") from None

    def number(self, smallest: int) -> int:
        found = self._next("a number")
        if not _NUMBER.fullmatch(found) or not smallest <= int(found) < 2**31:
            raise self.error(f"a number of 32 bits is expected, not {found!r}")
        return int(found)

    def _next(self, expected: str) -> str:
        if self._at == len(self._found):
            raise self.error(f"the text ends where {expected} is expected")
        self._at += 1
        return self._found[self._at - 1][0]


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    """Each token, and the line it stands in, from 1."""
    at, line = 0, 1
    while True:
        ignored = _IGNORED.match(text, at)
        assert ignored is not None  # it matches nothing, too
        line += text.count("\n", at, ignored.end())
        at = ignored.end()
        if at == len(text):
            return
        found = _TOKEN.match(text, at)
        if found is None:
            raise SchemaError(f"schema text, line {line}: a name in quotes does not end")
        yield found.group(), line
        at = found.end()


def text(elements: Sequence[SchemaElement]) -> str:
    """The text of a schema, given as the footer's list of elements, whose first is the root."""
    lines = [f"message {_quoted(elements[0].name)} {{"]
    open_groups = [elements[0].num_children or 0]  # how many children of each are still to come
    for element in elements[1:]:
        lines += _closed(open_groups)
        open_groups[-1] -= 1
        is_leaf = element.type is not None and not element.num_children
        words = [Repetition(element.repetition_type or 0).name.lower()]
        words += [_type_text(element) if is_leaf else "group", _quoted(element.name)]
        annotation = logical.from_element(element)
        if annotation is not None:
            words.append(f"({_annotation_text(annotation)})")
        if element.field_id is not None:
            words.append(f"= {element.field_id}")
        lines.append("  " * len(open_groups) + " ".join(words) + (";" if is_leaf else " {"))
        if not is_leaf:
            open_groups.append(element.num_children or 0)
    return "\n".join([*lines, *_closed(open_groups), "}"])


def _closed(open_groups: list[int]) -> Iterator[str]:
    """The braces of the groups that are at their end."""
    while len(open_groups) > 1 and open_groups[-1] == 0:
        open_groups.pop()
        yield "  " * len(open_groups) + "}"


def _type_text(element: SchemaElement) -> str:
    physical_type = Type(element.type if element.type is not None else -1)
    length = f"({element.type_length})" if physical_type is Type.FIXED_LEN_BYTE_ARRAY else ""
    return _PHYSICAL_NAMES[physical_type] + length


def _annotation_text(annotation: Logical) -> str:
    if isinstance(annotation, Uninterpreted) and annotation.parameters:
        return f"{annotation.name}({','.join(map(_quoted, annotation.parameters))})"
    return str(annotation)


def _quoted(name: str) -> str:
    """A name as the text has it: as a JSON string where it would be read otherwise, or cannot be seen."""
    is_word = _WORD.fullmatch(name) and not name.startswith("//") and name.isprintable()
    return name if is_word else json.dumps(name, ensure_ascii=False)
