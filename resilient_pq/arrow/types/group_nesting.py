"""How groups of a Parquet schema stand for lists and maps (parquet-format, LogicalTypes.md, "Nested Types")."""

from __future__ import annotations

from resilient_pq.format import logical
from resilient_pq.format.file_metadata import Repetition
from resilient_pq.format.schema_tree import Group, Node, Primitive
from resilient_pq.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ListShape:
    """A group that is a list; where `element` is None the repeated node below it is the element, never null."""

    repeated: Node
    element: Node | None


@dataclass(frozen=True, slots=True)
class MapShape:
    """A group that is a map: a repeated group of a key, never null, and a value."""

    repeated: Group
    key: Node
    value: Node


def shape_of(group: Group) -> ListShape | MapShape | None:
    """The list or map that an annotated group stands for; None where it is a struct: has no single repeated child."""
    # A map without values, or with keys that may be null, as some writers leave them, is a list: Arrow's maps cannot
    # hold it.
    if group.logical not in (logical.LIST, logical.MAP):
        return None
    if len(group.children) != 1 or group.children[0].repetition is not Repetition.REPEATED:
        return None
    repeated = group.children[0]
    if group.logical == logical.MAP and isinstance(repeated, Group) and len(repeated.children) == 2:
        key, value = repeated.children
        if key.repetition is Repetition.REQUIRED:
            return MapShape(repeated, key, value)
    return ListShape(repeated, _element(group.name, repeated))


def _element(list_name: str, repeated: Node) -> Node | None:
    """The five rules of "Nested Types", in their order."""
    if isinstance(repeated, Primitive) or len(repeated.children) != 1:
        return None
    only = repeated.children[0]
    if only.repetition is Repetition.REPEATED or repeated.name in ("array", f"{list_name}_tuple"):
        return None
    return only
