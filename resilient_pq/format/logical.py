"""Annotations of the schema: a frozen class per logical type, from and to `LogicalType` and `ConvertedType`."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

from resilient_pq.format import annotations as structs
from resilient_pq.format.annotations import EdgeInterpolationAlgorithm, Empty, LogicalType
from resilient_pq.format.file_metadata import ConvertedType, SchemaElement, Type
from resilient_pq.lazy_dataclass import dataclass


class TimeUnit(StrEnum):
    """Units of TIME and TIMESTAMP."""

    MILLIS = "ms"
    MICROS = "us"
    NANOS = "ns"


@dataclass(frozen=True, slots=True)
class Plain:
    """STRING, ENUM, JSON, BSON, UUID, FLOAT16, DATE, UNKNOWN, INTERVAL, LIST, MAP or FILE: without parameters."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """DECIMAL(precision, scale): an unscaled integer times 10 to the power of -scale."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Integer:
    """INTEGER(bits, signed)."""

    bits: int
    signed: bool

    def __str__(self) -> str:
        return f"INTEGER({self.bits},{str(self.signed).lower()})"


@dataclass(frozen=True, slots=True)
class Time:
    """TIME(unit, utc): the time of day."""

    unit: TimeUnit
    utc: bool

    def __str__(self) -> str:
        return f"TIME({self.unit.name},{str(self.utc).lower()})"


@dataclass(frozen=True, slots=True)
class Timestamp:
    """TIMESTAMP(unit, utc): an instant when `utc`, else a local date and time."""

    unit: TimeUnit
    utc: bool

    def __str__(self) -> str:
        return f"TIMESTAMP({self.unit.name},{str(self.utc).lower()})"


@dataclass(frozen=True, slots=True)
class Uninterpreted:
    """An annotation that is kept as it was found and not interpreted: VARIANT, GEOMETRY, GEOGRAPHY, or unknown."""

    name: str  # its name, UNKNOWN_ANNOTATION for one that parquet.thrift does not have yet
    #: What it says beyond its name: the version of VARIANT, the coordinate reference system of GEOMETRY, that
    #: and the algorithm of GEOGRAPHY. What is left out has the specification's default.
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({','.join(self.parameters)})" if self.parameters else self.name


Logical = Plain | Decimal | Integer | Time | Timestamp | Uninterpreted

STRING, ENUM, JSON, BSON = Plain("STRING"), Plain("ENUM"), Plain("JSON"), Plain("BSON")
UUID, FLOAT16, DATE = Plain("UUID"), Plain("FLOAT16"), Plain("DATE")
UNKNOWN_ANNOTATION = "UNKNOWN_ANNOTATION"
DEFAULT_CRS = "OGC:CRS84"  # The coordinate reference system of GEOMETRY and GEOGRAPHY that name none
UNKNOWN, INTERVAL, LIST, MAP = Plain("UNKNOWN"), Plain("INTERVAL"), Plain("LIST"), Plain("MAP")

_PLAIN_MEMBERS = ("STRING", "MAP", "LIST", "ENUM", "DATE", "UNKNOWN", "JSON", "BSON", "UUID", "FLOAT16", "FILE")
#: Names of annotations without parameters; INTERVAL has a converted type only.
PLAIN_NAMES = (*_PLAIN_MEMBERS, "INTERVAL")
_CONVERTED_INTEGERS: dict[int, Logical] = {
    ConvertedType.UINT_8: Integer(8, False),
    ConvertedType.UINT_16: Integer(16, False),
    ConvertedType.UINT_32: Integer(32, False),
    ConvertedType.UINT_64: Integer(64, False),
    ConvertedType.INT_8: Integer(8, True),
    ConvertedType.INT_16: Integer(16, True),
    ConvertedType.INT_32: Integer(32, True),
    ConvertedType.INT_64: Integer(64, True),
}
_CONVERTED: dict[int, Logical] = {
    ConvertedType.UTF8: STRING,
    ConvertedType.MAP: MAP,
    ConvertedType.MAP_KEY_VALUE: MAP,
    ConvertedType.LIST: LIST,
    ConvertedType.ENUM: ENUM,
    ConvertedType.DATE: DATE,
    ConvertedType.TIME_MILLIS: Time(TimeUnit.MILLIS, True),
    ConvertedType.TIME_MICROS: Time(TimeUnit.MICROS, True),
    ConvertedType.TIMESTAMP_MILLIS: Timestamp(TimeUnit.MILLIS, True),
    ConvertedType.TIMESTAMP_MICROS: Timestamp(TimeUnit.MICROS, True),
    ConvertedType.JSON: JSON,
    ConvertedType.BSON: BSON,
    ConvertedType.INTERVAL: INTERVAL,
    **_CONVERTED_INTEGERS,
    24: UNKNOWN,  # of old parquet-cpp only, which called it NA
}
_TO_CONVERTED: dict[Logical, ConvertedType] = {
    **{logical: ConvertedType(converted) for converted, logical in _CONVERTED_INTEGERS.items()},
    STRING: ConvertedType.UTF8,
    MAP: ConvertedType.MAP,
    LIST: ConvertedType.LIST,
    ENUM: ConvertedType.ENUM,
    DATE: ConvertedType.DATE,
    JSON: ConvertedType.JSON,
    BSON: ConvertedType.BSON,
    INTERVAL: ConvertedType.INTERVAL,
    # The specification asks for the converted types of times also when they are not adjusted to UTC.
    **{Time(TimeUnit.MILLIS, utc): ConvertedType.TIME_MILLIS for utc in (True, False)},
    **{Time(TimeUnit.MICROS, utc): ConvertedType.TIME_MICROS for utc in (True, False)},
    **{Timestamp(TimeUnit.MILLIS, utc): ConvertedType.TIMESTAMP_MILLIS for utc in (True, False)},
    **{Timestamp(TimeUnit.MICROS, utc): ConvertedType.TIMESTAMP_MICROS for utc in (True, False)},
}


def from_element(element: SchemaElement) -> Logical | None:
    """The annotation of a schema element: its `LogicalType`, else its `ConvertedType`, else None."""
    if element.converted_type == ConvertedType.DECIMAL:
        # A missing scale means 0 (parquet-format, LogicalTypes.md, DECIMAL).
        converted: Logical | None = Decimal(element.precision or 0, element.scale or 0)
    else:
        converted = None if element.converted_type is None else _CONVERTED.get(element.converted_type)
    if element.logicalType is None:
        return converted
    annotation = _from_thrift(element.logicalType)
    # parquet-java says UNKNOWN of what has a converted type only, such as INTERVAL. Of an annotation of the future,
    # or an empty one, the converted type has more information.
    says_nothing = annotation in (UNKNOWN, Uninterpreted(UNKNOWN_ANNOTATION), Decimal(0, 0))
    return converted if says_nothing and converted is not None else annotation


def _from_thrift(union: LogicalType) -> Logical:
    if union.DECIMAL is not None:
        return Decimal(union.DECIMAL.precision, union.DECIMAL.scale)
    if union.INTEGER is not None:
        return Integer(union.INTEGER.bitWidth, union.INTEGER.isSigned)
    for kind, member in ((Time, union.TIME), (Timestamp, union.TIMESTAMP)):
        if member is not None:
            unit = _unit_from_thrift(member.unit)
            if unit is None:
                return Uninterpreted(UNKNOWN_ANNOTATION, (kind.__name__.upper(),))
            return kind(unit, member.isAdjustedToUTC)
    for name in _PLAIN_MEMBERS:
        if getattr(union, name) is not None:
            return Plain(name)
    return _uninterpreted_from_thrift(union)


def _uninterpreted_from_thrift(union: LogicalType) -> Uninterpreted:
    parameters: list[object] = []
    if union.VARIANT is not None:
        name, parameters = "VARIANT", [union.VARIANT.specification_version]
    elif union.GEOMETRY is not None:
        name, parameters = "GEOMETRY", [union.GEOMETRY.crs]
    elif union.GEOGRAPHY is not None:
        name, parameters = "GEOGRAPHY", [union.GEOGRAPHY.crs]
        if (algorithm := union.GEOGRAPHY.algorithm) is not None:
            known = algorithm in EdgeInterpolationAlgorithm.__members__.values()
            parameters = [DEFAULT_CRS if union.GEOGRAPHY.crs is None else union.GEOGRAPHY.crs]
            parameters.append(EdgeInterpolationAlgorithm(algorithm).name if known else algorithm)
    else:
        name = UNKNOWN_ANNOTATION
    return Uninterpreted(name, tuple(str(each) for each in parameters if each is not None))


def _unit_from_thrift(unit: structs.TimeUnitUnion | None) -> TimeUnit | None:
    for name in ("MILLIS", "MICROS", "NANOS"):
        if unit is not None and getattr(unit, name) is not None:
            return TimeUnit[name]
    return None


def writable(element: SchemaElement) -> SchemaElement:
    """The element as it can be written: without an annotation that readers refuse, or of which nothing was read."""
    annotation = None if element.logicalType is None else _from_thrift(element.logicalType)
    if isinstance(annotation, Uninterpreted) and annotation.name == UNKNOWN_ANNOTATION:
        element = replace(element, logicalType=None)
    annotation = from_element(element)
    if annotation is None or element.type not in list(Type):
        return element
    if may_annotate(annotation, Type(element.type), element.type_length):
        return element
    return replace(element, logicalType=None, converted_type=None)


def annotate(element: SchemaElement, logical: Logical | None) -> None:
    """Write the annotation into a schema element, as `LogicalType` and, where one exists, `ConvertedType`."""
    if logical is None:
        return
    converted = _TO_CONVERTED.get(logical)
    element.converted_type = None if converted is None else int(converted)
    match logical:
        case Decimal(precision, scale):
            element.converted_type = int(ConvertedType.DECIMAL)
            element.precision, element.scale = precision, scale
            element.logicalType = LogicalType(DECIMAL=structs.DecimalType(scale=scale, precision=precision))
        case Integer(bits, signed):
            element.logicalType = LogicalType(INTEGER=structs.IntType(bitWidth=bits, isSigned=signed))
        case Time(unit, utc):
            element.logicalType = LogicalType(TIME=_time(unit, utc))
        case Timestamp(unit, utc):
            element.logicalType = LogicalType(TIMESTAMP=_time(unit, utc))
        case Plain("INTERVAL"):
            pass  # has a converted type only
        case Plain(name):
            element.logicalType = LogicalType()
            setattr(element.logicalType, name, Empty())
        case Uninterpreted():
            element.logicalType = _uninterpreted_to_thrift(logical)


def _uninterpreted_to_thrift(annotation: Uninterpreted) -> LogicalType | None:
    """None for what this version does not know: a schema that was read carries that over in its elements."""
    match annotation.name, annotation.parameters:
        case "VARIANT", ():
            return LogicalType(VARIANT=structs.VariantType())
        case "VARIANT", (version,):
            return LogicalType(VARIANT=structs.VariantType(specification_version=int(version)))
        case "GEOMETRY", parameters:
            return LogicalType(GEOMETRY=structs.GeometryType(crs=next(iter(parameters), None)))
        case "GEOGRAPHY", (crs, algorithm):
            known = EdgeInterpolationAlgorithm.__members__.get(algorithm)
            number = int(algorithm) if known is None else int(known)
            return LogicalType(GEOGRAPHY=structs.GeographyType(crs=crs, algorithm=number))
        case "GEOGRAPHY", parameters:
            return LogicalType(GEOGRAPHY=structs.GeographyType(crs=next(iter(parameters), None)))
    return None


def _time(unit: TimeUnit, utc: bool) -> structs.TimeType:
    return structs.TimeType(isAdjustedToUTC=utc, unit=structs.TimeUnitUnion(**{unit.name: Empty()}))


def may_annotate(logical: Logical, physical_type: Type | None, type_length: int | None = None) -> bool:
    """Whether an annotation may stand on a leaf of this type, or a group, of type None (LogicalTypes.md)."""
    match logical:
        case Decimal(precision, scale):
            most = _max_precision(physical_type, type_length)
            return precision >= 1 and 0 <= scale <= precision and (most is None or precision <= most)
        case Integer(bits, _):
            return (physical_type, bits) in _INTEGERS
        case Time(TimeUnit.MILLIS, _):
            return physical_type is Type.INT32
        case Time() | Timestamp():
            return physical_type is Type.INT64
        case Plain("DATE"):
            return physical_type is Type.INT32
        case Plain("STRING" | "ENUM" | "JSON" | "BSON") | Uninterpreted("GEOMETRY" | "GEOGRAPHY"):
            return physical_type is Type.BYTE_ARRAY
        case Plain("UUID" | "FLOAT16" | "INTERVAL"):
            return physical_type is Type.FIXED_LEN_BYTE_ARRAY and type_length == _LENGTHS[logical.name]
        case Plain("LIST" | "MAP" | "FILE") | Uninterpreted("VARIANT"):
            return physical_type is None
        case _:  # UNKNOWN may stand on everything, and no rules are known for the others
            return True


_LENGTHS = {"UUID": 16, "FLOAT16": 2, "INTERVAL": 12}
_INTEGERS = {(Type.INT32, 8), (Type.INT32, 16), (Type.INT32, 32), (Type.INT64, 64)}


def _max_precision(physical_type: Type | None, type_length: int | None) -> int | None:
    """Decimal digits that surely fit in a carrier of DECIMAL; None for no limit."""
    match physical_type:
        case Type.INT32:
            return 9
        case Type.INT64:
            return 18
        case Type.BYTE_ARRAY:
            return None
        case Type.FIXED_LEN_BYTE_ARRAY if type_length:
            return math.floor((8 * type_length - 1) * math.log10(2))
        case _:
            return 0
