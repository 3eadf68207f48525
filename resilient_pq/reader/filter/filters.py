"""`filters=` of a read, checked against the schema: which rows are wanted, by conditions on leaf columns. Pure.

The forms are those of pyarrow and fastparquet: a list of tuples, all of which have to hold, or a list of such lists,
of which one has to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from resilient_pq.errors import SchemaError, Where, located
from resilient_pq.format.indexes.condition import Condition, ConditionKind, condition_of
from resilient_pq.format.indexes.row_masks import matching_rows
from resilient_pq.format.physical_values import LeafColumn
from resilient_pq.format.schema_tree import Leaf, Schema
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.filter.bloom_filter import several

Mask = NDArray[np.bool_]
_FORM: Final = '[("a", ">", 5), ("b", "in", [1, 2])], or a list of such lists for or'


@dataclass(frozen=True, slots=True)
class Term:
    """One tuple of a filter."""

    leaf: Leaf  # The column
    condition: Condition  # On its values
    plain: tuple[bytes, ...] | None  # As of `Condition.to_plain`


@dataclass(frozen=True, slots=True)
class Filter:
    """Which rows are wanted."""

    # Alternatives; a row is wanted where all terms of one of them hold. There is at least one, and each has at least
    # one term
    any_of: tuple[tuple[Term, ...], ...]

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The columns of its terms, each once."""
        return tuple(dict.fromkeys(term.leaf for terms in self.any_of for term in terms))

    def may_hold(self, term_may_hold: Callable[[Term], bool]) -> bool:
        """Whether any row may be wanted, by whether each term may hold."""
        return any(all(map(term_may_hold, terms)) for terms in self.any_of)

    def wanted(self, columns: Mapping[int, LeafColumn], num_rows: int) -> Mask:
        """Which of some rows, by the ordinal of each leaf, are wanted."""
        known: dict[Term, Mask] = {}
        found = np.zeros(num_rows, np.bool_)
        for terms in self.any_of:
            holds = np.ones(num_rows, np.bool_)
            for term in terms:
                if term not in known:
                    with located(Where(column=term.leaf.column_path)):
                        known[term] = matching_rows(term.condition, columns[term.leaf.ordinal])
                holds &= known[term]
            found |= holds
        return found


def filter_of(schema: Schema, filters: Any) -> Filter:
    """A filter in the form that users write, checked."""
    return Filter(tuple(_all_of(schema, terms) for terms in alternatives_of(filters)))


def alternatives_of(filters: Any) -> Sequence[Any]:
    """The lists of tuples in a filter as users write it, of which one has to hold."""
    if not isinstance(filters, list | tuple) or not filters:
        raise _malformed(filters)
    if all(isinstance(each, list) for each in filters):
        return filters
    return [[filters]] if isinstance(filters[0], str) else [filters]  # one tuple alone


def _all_of(schema: Schema, terms: Any) -> tuple[Term, ...]:
    if not terms:
        raise _malformed(terms)
    return tuple(_term(schema, term) for term in terms)


def _term(schema: Schema, term: Any) -> Term:
    if not isinstance(term, list | tuple) or len(term) not in (2, 3) or not isinstance(term[0], str):
        raise _malformed(term)
    name, operator, value = (*term, None)[:3]
    if len(term) == 2 and operator not in (ConditionKind.NULL, ConditionKind.NOT_NULL):
        raise _malformed(term)
    leaf = _leaf(schema, name)
    with located(Where(column=leaf.column_path)):
        if operator in (ConditionKind.IN, ConditionKind.NOT_IN):
            value = several(value)
            if value is None:
                raise SchemaError(f'"{operator}" takes a list of values', hint=f"({name!r}, {operator!r}, [...])")
        elif several(value) is not None:
            raise SchemaError(f'"{operator}" takes one value', hint='for several there are "in" and "not in"')
        condition = condition_of(leaf.node, operator, value)
    plain = condition.to_plain()
    return Term(leaf, condition, None if plain is None else tuple(plain))


def _leaf(schema: Schema, name: str) -> Leaf:
    leaf = schema.leaf_named(name)
    if leaf is None:
        inside = [each.column_path for each in schema.leaves if each.column_path.startswith(f"{name}.")]
        known = inside or [each.column_path for each in schema.leaves if not each.max_repetition_level]
        what = "is a column with fields inside" if inside else "is no column"
        raise SchemaError(f"{name!r} in filters {what}", hint=f"columns: {', '.join(known)}")
    if leaf.max_repetition_level:
        raise SchemaError(
            f"{name!r} in filters lies in a list or a map, and may have several values in a row",
            hint="read it, and filter what was read",
        )
    return leaf


def _malformed(given: Any) -> SchemaError:
    return SchemaError(f"no filter: {given!r}", hint=f"filters={_FORM}")
