"""The structs of parquet.thrift that annotate a node of the schema: `LogicalType` and its members."""

from __future__ import annotations

from enum import IntEnum

from resilient_pq.format.compact_protocol import BOOL, I8, I32, STRING, field, struct


class EdgeInterpolationAlgorithm(IntEnum):
    """How the edges of GEOGRAPHY values run between their points."""

    SPHERICAL = 0
    VINCENTY = 1
    THOMAS = 2
    ANDOYER = 3
    KARNEY = 4


@struct
class Empty:
    """A union member that carries nothing but its number."""


@struct
class DecimalType:
    """DECIMAL(precision, scale)."""

    scale: int = field(1, I32, default=0)
    precision: int = field(2, I32, default=0)


@struct
class TimeUnitUnion:
    """One of MILLIS, MICROS, NANOS."""

    MILLIS: Empty | None = field(1, Empty, default=None)
    MICROS: Empty | None = field(2, Empty, default=None)
    NANOS: Empty | None = field(3, Empty, default=None)


@struct
class TimeType:
    """TIME and TIMESTAMP carry the same two fields."""

    isAdjustedToUTC: bool = field(1, BOOL, default=False)  # noqa: N815 (the specification's name)
    unit: TimeUnitUnion | None = field(2, TimeUnitUnion, default=None)


@struct
class IntType:
    """INTEGER(bit width, signed)."""

    bitWidth: int = field(1, I8, default=0)  # noqa: N815 (the specification's name)
    isSigned: bool = field(2, BOOL, default=True)  # noqa: N815 (the specification's name)


@struct
class VariantType:
    """VARIANT."""

    specification_version: int | None = field(1, I8, default=None)


@struct
class GeometryType:
    """GEOMETRY(crs)."""

    crs: str | None = field(1, STRING, default=None)


@struct
class GeographyType:
    """GEOGRAPHY(crs, algorithm)."""

    crs: str | None = field(1, STRING, default=None)
    algorithm: int | None = field(2, I32, default=None)


@struct
class LogicalType:
    """The union of annotations; all members None means one that this version does not know."""

    STRING: Empty | None = field(1, Empty, default=None)
    MAP: Empty | None = field(2, Empty, default=None)
    LIST: Empty | None = field(3, Empty, default=None)
    ENUM: Empty | None = field(4, Empty, default=None)
    DECIMAL: DecimalType | None = field(5, DecimalType, default=None)
    DATE: Empty | None = field(6, Empty, default=None)
    TIME: TimeType | None = field(7, TimeType, default=None)
    TIMESTAMP: TimeType | None = field(8, TimeType, default=None)
    INTEGER: IntType | None = field(10, IntType, default=None)
    UNKNOWN: Empty | None = field(11, Empty, default=None)
    JSON: Empty | None = field(12, Empty, default=None)
    BSON: Empty | None = field(13, Empty, default=None)
    UUID: Empty | None = field(14, Empty, default=None)
    FLOAT16: Empty | None = field(15, Empty, default=None)
    VARIANT: VariantType | None = field(16, VariantType, default=None)
    GEOMETRY: GeometryType | None = field(17, GeometryType, default=None)
    GEOGRAPHY: GeographyType | None = field(18, GeographyType, default=None)
    FILE: Empty | None = field(19, Empty, default=None)
