"""What the tests of column chunks share: leaves, their data by hand, and bytes that become columns again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.pages.chunk_decoder import decode_chunk
from resilient_pq.format.pages.chunk_encoder import ChunkOptions, EncodedChunk, encode_chunk
from resilient_pq.format.pages.page import pages_of
from resilient_pq.format.physical_values import ByteArrays, LeafColumn, LeafData
from resilient_pq.format.schema_tree import Group, Leaf, Node, Primitive, Schema

DTYPES = {
    Type.BOOLEAN: np.bool_,
    Type.INT32: np.int32,
    Type.INT64: np.int64,
    Type.FLOAT: np.float32,
    Type.DOUBLE: np.float64,
}


def _leaf_of(kind: Type, *, length: int | None = None, optional: bool = True, lists: int = 0) -> Leaf:
    """A column that is optional, or a list of optional elements, several lists deep."""
    repetition = Repetition.OPTIONAL if optional else Repetition.REQUIRED
    node: Node = Primitive("element" if lists else "c", repetition, kind, length)
    for depth in range(lists):
        name = "c" if depth == lists - 1 else "element"
        node = Group(name, repetition, (Group("list", Repetition.REPEATED, (node,)),))
    return Schema(Group("schema", Repetition.REQUIRED, (node,))).leaves[0]


def _values_of(leaf: Leaf, values: Sequence[Any]) -> Any:
    if leaf.node.physical_type is Type.BYTE_ARRAY:
        offsets = np.cumsum([0, *map(len, values)]).astype(np.int32)
        return ByteArrays(offsets, np.frombuffer(b"".join(values), np.uint8))
    if leaf.node.physical_type in DTYPES:
        return np.array(values, DTYPES[leaf.node.physical_type])
    width = leaf.node.type_length or 12
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), width)


def _flat(leaf: Leaf, rows: Sequence[Any]) -> LeafData:
    """The rows of a flat column; None is null."""
    levels = None
    if leaf.max_definition_level:
        levels = np.array([row is not None for row in rows], np.uint8)
    return LeafData(len(rows), levels, None, _values_of(leaf, [row for row in rows if row is not None]))


def _lists(leaf: Leaf, rows: Sequence[Any]) -> LeafData:
    """The rows of a list of optional elements, one list deep."""
    definition: list[int] = []
    repetition: list[int] = []
    values = []
    for row in rows:
        for at, element in enumerate(row if row else [None]):
            repetition.append(min(at, 1))
            if not row:
                definition.append(0 if row is None else 1)
            else:
                definition.append(2 if element is None else 3)
                values.extend([] if element is None else [element])
    levels = np.array(definition, np.uint8), np.array(repetition, np.uint8)
    return LeafData(len(rows), *levels, _values_of(leaf, values))


def _decoded(leaf: Leaf, chunk: EncodedChunk, *, codec: int | None = None, num_rows: int) -> LeafColumn:
    data = memoryview(b"".join(chunk.buffers))
    return decode_chunk(leaf, chunk.metadata.codec if codec is None else codec, list(pages_of(data, 0)), num_rows)


def _rows_of(column: LeafColumn) -> list[Any]:
    """A flat column's rows as Python values, None for null."""
    values = column.values
    if isinstance(values, ByteArrays):
        plain: list[Any] = [values.value(at) for at in range(len(values))]
    elif values.ndim > 1:
        plain = [row.tobytes() for row in values]
    else:
        plain = values.tolist()
    present = column.present
    return plain if present is None else [v if there else None for v, there in zip(plain, present, strict=True)]


@pytest.fixture(scope="session")
def leaf_of() -> Callable[..., Leaf]:
    return _leaf_of


@pytest.fixture(scope="session")
def flat() -> Callable[[Leaf, Sequence[Any]], LeafData]:
    return _flat


@pytest.fixture(scope="session")
def lists() -> Callable[[Leaf, Sequence[Any]], LeafData]:
    return _lists


@pytest.fixture(scope="session")
def encode() -> Callable[..., EncodedChunk]:
    """Encodes one piece of a chunk; the options are those of `ChunkOptions`."""

    def encode_one(leaf: Leaf, data: LeafData, **options: Any) -> EncodedChunk:
        return encode_chunk(leaf, [data], ChunkOptions(**options))

    return encode_one


@pytest.fixture(scope="session")
def decoded() -> Callable[..., LeafColumn]:
    """An encoded chunk's column."""
    return _decoded


@pytest.fixture(scope="session")
def rows_of() -> Callable[[LeafColumn], list[Any]]:
    return _rows_of
