"""What a caller asked for, worked out: what to read, and the Arrow types that it becomes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypeAlias, get_args

from resilient_pq.arrow.field import Field, with_views
from resilient_pq.arrow.projection import Branch, branches_of, struct_projected
from resilient_pq.arrow.schema import ColumnFields
from resilient_pq.errors import SchemaError
from resilient_pq.reader.contents import Contents
from resilient_pq.reader.plan import ReadPlan

#: How strings come: as Arrow's string and binary, or as their views.
Strings: TypeAlias = Literal["plain", "view"]
#: Rows wanted: all terms of a list, or of one of several lists.
Filters: TypeAlias = Sequence[tuple[Any, ...]] | Sequence[Sequence[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to read, and the Arrow types and the parts of columns that it becomes."""

    plan: ReadPlan
    field: Field
    branches: tuple[Branch, ...]

    @classmethod
    def of(cls, contents: Contents, plan: ReadPlan, strings: Strings, fields: ColumnFields) -> ReadRequest:
        """What a plan becomes.

        The file's key-value metadata, such as that of pandas, stay with the schema of what is read.
        """
        branches = branches_of(contents.schema, plan.shown)
        field = struct_projected(fields.struct([column.position for column in plan.shown]), branches)
        if strings == "view":
            field = field.with_children(*map(with_views, field.children))
        return cls(plan, field, branches)


def check_strings(strings: object) -> None:
    """Refuse what is no layout of strings.

    Raises:
        SchemaError: It is none.
    """
    if strings not in get_args(Strings):
        words = " or ".join(map(repr, get_args(Strings)))
        raise SchemaError(f"strings is {strings!r}, which is no layout of strings", hint=f"strings={words}")


def check_limit(limit: object) -> None:
    """Refuse what is no number of rows.

    Raises:
        SchemaError: It is not.
    """
    if limit is not None and (not isinstance(limit, Integral) or isinstance(limit, bool) or limit < 0):
        raise SchemaError(f"limit is {limit!r}; it is a number of rows, 0 or more, or None")
