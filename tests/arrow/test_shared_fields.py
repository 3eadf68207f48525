"""What is found of the Arrow fields of a schema serves other files, and never those of another schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from resilient_pq.arrow.types import arrow_schema as module
from resilient_pq.arrow.types.arrow_schema import ColumnFields, encode_arrow_schema
from resilient_pq.errors import UnsupportedError
from resilient_pq.format.file_metadata import Repetition, Type
from resilient_pq.format.schema_tree import Group, Node, Primitive, Schema

NAMES = ("a", "b", "c")
#: Types of one physical type: which of them a column has, is for ``ARROW:schema`` to say.
KINDS = (pa.binary(), pa.large_binary(), pa.binary_view())
UNITS = ("s", "ms", "us", "ns")


def _columns(last: Type) -> Schema:
    blobs = [Primitive(name, Repetition.OPTIONAL, Type.BYTE_ARRAY) for name in NAMES[:2]]
    return Schema(Group("schema", Repetition.REQUIRED, (*blobs, Primitive("c", Repetition.OPTIONAL, last))))


def _stored(kinds: Sequence[pa.DataType]) -> dict[str, str | None]:
    return {"ARROW:schema": encode_arrow_schema(pa.schema(dict(zip(NAMES, kinds, strict=False))))}


@dataclass(frozen=True)
class Asked:
    """What is asked of a file, and whether its schema is forgotten then."""

    last: Type
    kinds: list[pa.DataType] | None
    unit: str
    columns: list[int] | None
    forget: bool


asked = st.builds(
    Asked,
    last=st.sampled_from([Type.INT96, Type.INT64, Type.BYTE_ARRAY]),
    kinds=st.none() | st.lists(st.sampled_from(KINDS), min_size=1, max_size=2),
    unit=st.sampled_from(UNITS),
    columns=st.none() | st.lists(st.integers(0, 2), unique=True),
    forget=st.booleans(),
)


@given(st.lists(asked, max_size=30))
def test_they_are_those_that_a_file_alone_has(questions: list[Asked]) -> None:
    """Also where schemas are let go of, and others take their places in memory."""
    schemas: dict[Type, Schema] = {}
    for question in questions:
        schema = schemas.setdefault(question.last, _columns(question.last))
        key_value = _stored(question.kinds) if question.kinds else {"ARROW:schema": None}
        found, alone = (
            ColumnFields(each, key_value, int96_unit=question.unit).struct(question.columns)
            for each in (schema, _columns(question.last))
        )
        assert found == alone
        if question.forget:
            del schemas[question.last], schema


def test_files_that_share_a_schema_share_them() -> None:
    schema, key_value = _columns(Type.INT96), _stored(KINDS[1:])
    one = ColumnFields(schema, key_value).struct([0])
    other = ColumnFields(schema, dict(key_value)).struct([0])
    assert other.children[0] is one.children[0]
    assert ColumnFields(_columns(Type.INT96), key_value).struct([0]).children[0] is not one.children[0]


def test_metadata_that_change_afterwards() -> None:
    schema, key_value = _columns(Type.INT64), _stored(KINDS[1:])
    fields = ColumnFields(schema, key_value)
    key_value.update(_stored([KINDS[0]]))
    for whose in (fields, ColumnFields(schema, _stored(KINDS[1:]))):
        assert pa.schema(whose.struct([0]).to_c()).field("a").type == pa.large_binary()


def test_a_column_that_has_no_form_has_none_the_next_time() -> None:
    broken: Node = Group("g", Repetition.OPTIONAL, (Group("e", Repetition.OPTIONAL, ()),))
    whole = Primitive("x", Repetition.REQUIRED, Type.INT32)
    schema = Schema(Group("schema", Repetition.REQUIRED, (whole, broken, whole)))
    for _ in range(2):
        with pytest.raises(UnsupportedError):
            ColumnFields(schema, {}).struct()
        assert ColumnFields(schema, {}).struct([0, 2]).children[1].name == "x"


def test_few_schemas_are_kept() -> None:
    module._shared_fields.cache_clear()
    large = module._MOST_SHARED_COLUMNS + 1
    columns = tuple(Primitive(str(at), Repetition.REQUIRED, Type.INT32) for at in range(large))
    ColumnFields(Schema(Group("schema", Repetition.REQUIRED, columns)), {}).struct([0])
    assert module._shared_fields.cache_info().currsize == 0
    for _ in range(40):
        ColumnFields(_columns(Type.INT32), {}).struct()
    assert module._shared_fields.cache_info().currsize == module._shared_fields.cache_info().maxsize
