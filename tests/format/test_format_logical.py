"""Annotations: both ways between our classes and `LogicalType` and `ConvertedType`, as pyarrow writes them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq.format import annotations, compact_protocol, logical
from resilient_pq.format import file_metadata as m
from resilient_pq.format.annotations import Empty
from resilient_pq.format.file_metadata import ConvertedType, SchemaElement
from resilient_pq.format.logical import Decimal, Integer, Plain, Time, Timestamp, TimeUnit, Uninterpreted

EVERY = [
    *(Plain(name) for name in (
        "STRING", "ENUM", "JSON", "BSON", "UUID", "FLOAT16", "DATE", "UNKNOWN", "INTERVAL", "LIST", "MAP", "FILE")),
    *(Integer(bits, signed) for bits in (8, 16, 32, 64) for signed in (True, False)),
    *(kind(unit, utc) for kind in (Time, Timestamp) for unit in TimeUnit for utc in (True, False)),
    Decimal(1, 0), Decimal(38, 38), Decimal(76, 5),
]  # fmt: skip

CONVERTED = {
    logical.STRING: ConvertedType.UTF8,
    logical.ENUM: ConvertedType.ENUM,
    logical.JSON: ConvertedType.JSON,
    logical.BSON: ConvertedType.BSON,
    logical.DATE: ConvertedType.DATE,
    logical.LIST: ConvertedType.LIST,
    logical.MAP: ConvertedType.MAP,
    logical.INTERVAL: ConvertedType.INTERVAL,
    Integer(8, False): ConvertedType.UINT_8,
    Integer(64, True): ConvertedType.INT_64,
    Time(TimeUnit.MILLIS, False): ConvertedType.TIME_MILLIS,
    Time(TimeUnit.MICROS, True): ConvertedType.TIME_MICROS,
    Timestamp(TimeUnit.MILLIS, True): ConvertedType.TIMESTAMP_MILLIS,
    Timestamp(TimeUnit.MICROS, False): ConvertedType.TIMESTAMP_MICROS,
    Decimal(9, 2): ConvertedType.DECIMAL,
}


@pytest.mark.parametrize("annotation", EVERY, ids=str)
def test_written_and_read_again(annotation: logical.Logical) -> None:
    element = SchemaElement(name="c")
    logical.annotate(element, annotation)
    assert (
        logical.from_element(compact_protocol.decode(SchemaElement, compact_protocol.encode(element))[0]) == annotation
    )


@pytest.mark.parametrize(("annotation", "converted"), CONVERTED.items(), ids=str)
def test_older_readers_get_the_converted_type(annotation: logical.Logical, converted: ConvertedType) -> None:
    element = SchemaElement(name="c")
    logical.annotate(element, annotation)
    assert element.converted_type == converted


@pytest.mark.parametrize(
    "annotation",
    [
        logical.UUID,
        logical.FLOAT16,
        logical.UNKNOWN,
        Time(TimeUnit.NANOS, True),
        Timestamp(TimeUnit.NANOS, False),
    ],
    ids=str,
)
def test_newer_types_have_no_converted_type(annotation: logical.Logical) -> None:
    element = SchemaElement(name="c")
    logical.annotate(element, annotation)
    assert element.converted_type is None and element.logicalType is not None


@pytest.mark.parametrize("converted", list(ConvertedType))
def test_converted_types_alone_are_understood(converted: ConvertedType) -> None:
    element = SchemaElement(name="c", converted_type=int(converted), precision=9, scale=2)
    found = logical.from_element(element)
    expected: dict[ConvertedType, logical.Logical] = {
        ConvertedType.MAP_KEY_VALUE: logical.MAP,
        ConvertedType.TIME_MILLIS: Time(TimeUnit.MILLIS, True),
        ConvertedType.TIMESTAMP_MICROS: Timestamp(TimeUnit.MICROS, True),
        ConvertedType.DECIMAL: Decimal(9, 2),
        ConvertedType.UINT_16: Integer(16, False),
    }
    assert found is not None
    if converted in expected:
        assert found == expected[converted]
    again = SchemaElement(name="c")
    logical.annotate(again, found)
    wanted = ConvertedType.MAP if converted == ConvertedType.MAP_KEY_VALUE else converted
    assert again.converted_type == wanted


def test_the_logical_type_counts_more_than_the_converted_one() -> None:
    element = SchemaElement(
        name="c", converted_type=int(ConvertedType.UTF8), logicalType=annotations.LogicalType(JSON=Empty())
    )
    assert logical.from_element(element) == logical.JSON


def test_a_decimal_without_scale_has_scale_0() -> None:
    assert logical.from_element(
        SchemaElement(name="c", converted_type=int(ConvertedType.DECIMAL), precision=7)
    ) == Decimal(7, 0)


def test_what_is_not_known_is_kept_by_name() -> None:
    assert logical.from_element(SchemaElement(logicalType=annotations.LogicalType())) == Uninterpreted(
        "UNKNOWN_ANNOTATION"
    )
    variant = annotations.LogicalType(VARIANT=annotations.VariantType(specification_version=1))
    assert logical.from_element(SchemaElement(logicalType=variant)) == Uninterpreted("VARIANT", ("1",))
    geography = annotations.LogicalType(GEOGRAPHY=annotations.GeographyType(crs="OGC:CRS84", algorithm=2))
    assert str(logical.from_element(SchemaElement(logicalType=geography))) == "GEOGRAPHY(OGC:CRS84,THOMAS)"
    no_unit = annotations.LogicalType(
        TIMESTAMP=annotations.TimeType(isAdjustedToUTC=True, unit=annotations.TimeUnitUnion())
    )
    assert logical.from_element(SchemaElement(logicalType=no_unit)) == Uninterpreted(
        "UNKNOWN_ANNOTATION", ("TIMESTAMP",)
    )
    assert logical.from_element(SchemaElement(converted_type=77)) is None
    assert logical.from_element(SchemaElement()) is None


def test_nothing_is_annotated_without_an_annotation() -> None:
    element = SchemaElement(name="c")
    logical.annotate(element, None)
    assert element == SchemaElement(name="c")


ARROW: list[tuple[pa.DataType, logical.Logical | None]] = [
    (pa.int8(), Integer(8, True)),
    (pa.uint64(), Integer(64, False)),
    (pa.int32(), None),
    (pa.string(), logical.STRING),
    (pa.binary(), None),
    (pa.date32(), logical.DATE),
    (pa.float16(), logical.FLOAT16),
    (pa.time32("ms"), Time(TimeUnit.MILLIS, False)),
    (pa.time64("ns"), Time(TimeUnit.NANOS, False)),
    (pa.timestamp("us"), Timestamp(TimeUnit.MICROS, False)),
    (pa.timestamp("ns", "UTC"), Timestamp(TimeUnit.NANOS, True)),
    (pa.decimal128(12, 4), Decimal(12, 4)),
    (pa.null(), logical.UNKNOWN),
]


@pytest.mark.parametrize(("kind", "annotation"), ARROW, ids=str)
def test_pyarrows_annotations_are_understood(kind: pa.DataType, annotation: logical.Logical | None) -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"c": pa.array([None], kind)}), out)
    data = out.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    footer: Any = compact_protocol.decode(m.FileMetaData, data[-8 - length : -8])[0]
    assert logical.from_element(footer.schema[1]) == annotation
