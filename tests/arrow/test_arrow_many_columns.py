"""Schemas of many columns are made at once, and are those that are made column by column, whatever a file says."""

from __future__ import annotations

import base64
import copy
import io
import pickle
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq.arrow.types.arrow_schema import ColumnFields, schema_from_arrow
from resilient_pq.arrow.types.stored_schema import ARROW_SCHEMA_KEY, encode_arrow_schema
from resilient_pq.errors import FormatError, ResilientPQError
from resilient_pq.format import compact_protocol, kernels
from resilient_pq.format.file_metadata import FileMetaData, KeyValue
from resilient_pq.format.footer import key_values
from resilient_pq.format.schema_tree import Schema

pytestmark = pytest.mark.skipif(kernels.alike_elements is None, reason="the kernels are not compiled")

TYPES = [
    *(pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float16(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(7), pa.binary(9), pa.null()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("ms"), pa.decimal128(9, 2)),
    *(pa.timestamp("s"), pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us", "UTC"), pa.timestamp("us", "+02:00")),
    *(pa.dictionary(pa.int8(), pa.string()), pa.decimal128(12, 3), pa.decimal256(60, 3)),
]
NAMES = ["c{}", "{}", "ä{}", "a.b{}", "{}" + "x" * 200]


def stored_by(writer: str) -> tuple[FileMetaData, dict[str, str | None]]:
    """The footer of a file of many columns, read anew."""
    metadata, _ = compact_protocol.decode(FileMetaData, footer_of(writer), lasting=True)
    return metadata, key_values(metadata.key_value_metadata)


@cache
def footer_of(writer: str) -> bytes:
    fields = [
        pa.field(
            NAMES[i % 5].format(i),
            TYPES[i * 7 % len(TYPES)],
            nullable=i % 3 != 0 or TYPES[i * 7 % len(TYPES)] == pa.null(),
            metadata={"PARQUET:field_id": str(i)} if i % 50 == 0 else {"note": "x"} if i % 41 == 0 else None,
        )
        for i in range(300)
    ]
    schema = pa.schema(fields)
    if writer == "ours":
        elements = schema_from_arrow(schema).to_elements()
        pairs = {ARROW_SCHEMA_KEY: encode_arrow_schema(schema)}
        metadata = FileMetaData(1, elements, 0, [])
        metadata.key_value_metadata = [KeyValue(key, value) for key, value in pairs.items()]
        return compact_protocol.encode(metadata)
    file = io.BytesIO()
    pq.write_table(schema.empty_table(), file, store_schema=writer == "pyarrow")
    data = file.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


WRITERS = pytest.mark.parametrize("writer", ["pyarrow", "pyarrow without ARROW:schema", "ours"])


@WRITERS
def test_nodes_are_those_made_one_by_one(writer: str) -> None:
    metadata, _ = stored_by(writer)
    at_once = Schema.from_elements(metadata.schema)
    one_by_one = Schema.built(list(stored_by(writer)[0].schema))
    assert at_once.alike is not None and one_by_one.alike is None
    assert len(set(at_once.alike)) < 100
    assert at_once.num_leaves == one_by_one.num_leaves == 300
    assert at_once.without_empty_groups() is at_once
    assert at_once == one_by_one and hash(at_once) == hash(one_by_one)
    assert at_once.leaves == one_by_one.leaves
    assert at_once.columns == one_by_one.columns
    assert at_once.elements == one_by_one.elements and str(at_once) == str(one_by_one)
    for copied in (pickle.loads(pickle.dumps(at_once)), copy.copy(at_once), copy.deepcopy(at_once)):
        assert copied == at_once and copied.leaves == at_once.leaves
    with pytest.raises(AttributeError, match="nothing"):
        _ = at_once.nothing  # type: ignore[attr-defined]


@WRITERS
@pytest.mark.parametrize("restored", [True, False])
def test_fields_are_those_made_one_by_one(writer: str, restored: bool) -> None:
    metadata, key_value = stored_by(writer)
    assert (ARROW_SCHEMA_KEY in key_value) == (writer != "pyarrow without ARROW:schema")
    plain = Schema.built(list(stored_by(writer)[0].schema))
    found = ColumnFields(Schema.from_elements(metadata.schema), key_value, restore_types=restored)
    expected = ColumnFields(plain, key_value, restore_types=restored)
    assert found.struct([7, 5, 299]) == expected.struct([7, 5, 299])
    assert found.struct() == expected.struct()
    assert pa.schema(found.struct().to_c()).equals(pa.schema(expected.struct().to_c()), check_metadata=True)


@pytest.mark.parametrize("writer", ["pyarrow", "ours"])
def test_a_damaged_arrow_schema_says_the_same_at_once_and_one_by_one(writer: str) -> None:
    metadata, key_value = stored_by(writer)
    at_once = Schema.from_elements(metadata.schema)
    plain = Schema.built(list(stored_by(writer)[0].schema))
    message = base64.b64decode(key_value[ARROW_SCHEMA_KEY] or "")
    rng = np.random.default_rng(27)
    for turn in range(24):
        damaged = bytearray(message)
        for at in rng.integers(0, len(message), int(rng.choice([1, 20, 300]))):
            damaged[at] = int(rng.choice([0, 1, 255, int(rng.integers(256))]))
        if turn % 8 == 7:
            del damaged[int(rng.integers(len(message))) :]
        said = {ARROW_SCHEMA_KEY: base64.b64encode(damaged).decode()}
        outcomes = [outcome(ColumnFields(each, said).struct) for each in (at_once, plain)]
        assert outcomes[0] == outcomes[1]


def outcome(made: Callable[[], Any]) -> Any:
    try:
        return made()
    except ResilientPQError as error:
        return type(error), error.message


def test_damaged_elements_are_refused_as_they_are_one_by_one() -> None:
    data = footer_of("pyarrow")[: len(footer_of("pyarrow")) // 8]  # where the schema is
    rest = footer_of("pyarrow")[len(data) :]
    rng = np.random.default_rng(23)
    errors = set()
    for _ in range(100):
        damaged = bytearray(data)
        damaged[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        found, expected = (outcome(partial(nodes, bytes(damaged) + rest, many)) for many in (True, False))
        assert found == expected
        errors.add(found[0] if isinstance(found[0], type) else None)
    assert {FormatError, None} <= errors


def nodes(data: bytes, many: bool) -> Any:
    metadata, _ = compact_protocol.decode(FileMetaData, data, lasting=True)
    schema = Schema.from_elements(metadata.schema) if many else Schema.built(list(metadata.schema))
    return schema.root, schema.leaves
