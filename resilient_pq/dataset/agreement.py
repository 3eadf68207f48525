"""One Arrow schema for the rows of several files, or what stands in its way. Pure.

Types agree where one can hold the values of both as they are (`arrow.types.widening`): strings and lists with offsets
of 32 and of 64 bits, decimals of one scale with 128 and 256 bits, a column of nulls alone and any other. A column
that may be null in one file may be null in all.
"""

from __future__ import annotations

from dataclasses import replace

from resilient_pq.arrow.types.field import Field
from resilient_pq.arrow.types.widening import widest
from resilient_pq.errors import SchemaError, Where

_BINARIES = frozenset({"z", "Z", "vz"})
_TEXTS = frozenset({"u", "U", "vu"})


def common_schema(schema: Field, other: Field, first: str, name: str) -> Field:
    """The schema that the rows of the files so far and those of one more have."""
    if schema == other:
        return schema
    ours, theirs = _names(schema), _names(other)
    if sorted(ours) != sorted(theirs):
        missing = [column for column in ours if column not in theirs]
        added = [column for column in theirs if column not in ours]
        where = Where(key=name, column=(missing or added or ours)[0])
        if missing:
            raise _differ(f"{first} has a column {missing[0]!r}, which {name} has not", where)
        if added:
            raise _differ(f"{name} has a column {added[0]!r}, which {first} has not", where)
        raise _differ(f"{first} and {name} have not the same number of columns of each name", where)
    if ours != theirs:
        if len(set(ours)) < len(ours):
            where = Where(key=name)
            raise _differ(f"{first} and {name} have columns of one name, in different orders", where)
        by_name = {column.name: column for column in other.children}
        other = other.with_children(*(by_name[column] for column in ours))
    columns = []
    for one, another in zip(schema.children, other.children, strict=True):
        both = _both(one, another)
        if both is None:
            where = Where(key=name, column=one.name)
            raise _differ(f"column {one.name!r} is {_words(one)} in {first} and {_words(another)} in {name}", where)
        columns.append(both)
    return schema.with_children(*columns)


def with_common_types(part: Field, whole: Field) -> Field:
    """What was asked for of one file, in the types that were agreed upon."""
    if part.kind == "+s":
        by_name = {child.name: child for child in whole.children}
        children = tuple(with_common_types(child, by_name[child.name]) for child in part.children)
    else:
        children = tuple(map(with_common_types, part.children, whole.children))
    nullable = part.nullable or whole.nullable
    dictionary, ordered = whole.dictionary, whole.ordered
    return replace(
        part, format=whole.format, nullable=nullable, children=children, dictionary=dictionary, ordered=ordered
    )


def _names(schema: Field) -> list[str]:
    return [column.name for column in schema.children]


def _differ(difference: str, where: Where) -> SchemaError:
    return SchemaError(
        f"the schemas differ: {difference}",
        where=where,
        hint="take files of one schema together, others apart",
    )


def _words(field: Field) -> str:
    return f"{field}{'' if field.nullable else ' not null'}"


def _both(one: Field, other: Field) -> Field | None:
    """The type that holds the values of both as they are; None where there is none."""
    try:
        target = widest([one, other])
    except ValueError:
        return None
    return _refined(target, one, other)


def _refined(target: Field, one: Field, other: Field) -> Field | None:
    """The wider type, where that loses nothing; nullable where one of them is."""
    if any(_loses(source.dictionary or source, target.dictionary or target) for source in (one, other)):
        return None
    names = [child.name for child in one.children], [child.name for child in other.children]
    if target.kind == "+s" and names[0] != names[1]:
        return None
    children = []
    for below in zip(target.children, one.children, other.children, strict=True):
        child = _refined(*below)
        if child is None:
            return None
        children.append(child)
    return replace(target, nullable=one.nullable or other.nullable, children=tuple(children))


def _loses(source: Field, target: Field) -> bool:
    """Whether values lose digits, or that they are text."""
    cut_short = source.kind == "ts" and source.format != target.format
    untold = source.kind in _TEXTS and target.kind in _BINARIES
    return cut_short or untold or (source.kind == "d" and source.decimal[:2] != target.decimal[:2])
