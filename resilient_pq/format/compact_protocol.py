"""Structs of the Thrift compact protocol as classes: read by a kernel, `StructReader`, written by Apache Thrift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field
from dataclasses import field as dataclass_field
from typing import Any, TypeVar, dataclass_transform

from thrift.protocol.TCompactProtocol import TCompactProtocol
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from resilient_pq.errors import ThriftError
from resilient_pq.format import kernels
from resilient_pq.lazy_dataclass import dataclass

MAX_DEPTH = 64  # Structs nested deeper than this are refused. Real ones reach 8 (FileMetaData down to a TimeUnit).

T = TypeVar("T")

# The wire types a field can have, as (TType, arguments) pairs; the arguments tell Thrift what a container
# holds and whether a string is text.
BOOL = (TType.BOOL, None)
I8 = (TType.BYTE, None)
I16 = (TType.I16, None)
I32 = (TType.I32, None)
I64 = (TType.I64, None)
DOUBLE = (TType.DOUBLE, None)
BINARY = (TType.STRING, "BINARY")
STRING = (TType.STRING, "UTF8")

#: The wire types again, as the compact protocol numbers them.
_KINDS = {
    TType.BOOL: 1,
    TType.BYTE: 3,
    TType.I16: 4,
    TType.I32: 5,
    TType.I64: 6,
    TType.DOUBLE: 7,
    TType.STRING: 8,
    TType.LIST: 9,
    TType.STRUCT: 12,
}


def list_of(element: Any) -> tuple[int, Any]:
    """The wire type of a list of `element`, which is a wire type or a struct class."""
    wire_type, arguments = _wire_type(element)
    return TType.LIST, (wire_type, arguments, False)


def _wire_type(declared: Any) -> tuple[int, Any]:
    if isinstance(declared, type):
        return TType.STRUCT, [declared, declared.thrift_spec]  # type: ignore[attr-defined]
    pair: tuple[int, Any] = declared
    return pair


def field(number: int, declared: Any, *, default: Any = MISSING, kept: bool = False) -> Any:
    """One field of a struct by its Thrift id, 1 to 63, and its wire type; without a default it is required."""
    # With `kept` a list of structs is read lazily: `decode` checks all of them, and makes each when it is asked for.
    # Such a list may stand in a struct of another one, but not deeper.
    required = default is MISSING
    metadata = {"number": number, "type": declared, "required": required, "kept": kept}
    return dataclass_field(default=None if required else default, metadata=metadata)


@dataclass_transform(field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Make a class of `field`s a slotted dataclass that `encode` and `decode` understand."""
    declared: dict[int, Field[Any]] = {}
    for name, f in vars(cls).items():
        if isinstance(f, Field):
            f.name, declared[f.metadata["number"]] = name, f  # the name, as the dataclass is not complete yet
    made = dataclass(slots=True)(cls)
    spec: list[Any] = [None] * (max(declared, default=0) + 1)
    read: list[kernels.StructField] = []
    for number, f in declared.items():
        wire_type, arguments = _wire_type(f.metadata["type"])
        spec[number] = (number, wire_type, f.name, arguments, None)
        read.append(_read_as(f, wire_type, arguments))
    made.thrift_spec = tuple(spec)  # type: ignore[attr-defined]
    made.thrift_reader = kernels.StructReader(made, read)  # type: ignore[attr-defined]
    return made


def _read_as(declared: Any, wire_type: int, arguments: Any) -> kernels.StructField:
    """The field as `StructReader` takes it."""
    element = 0
    if wire_type == TType.LIST:
        element, arguments, _ = arguments
    is_struct = TType.STRUCT in (wire_type, element)
    return kernels.StructField(
        number=declared.metadata["number"],
        name=declared.name,
        kind=_KINDS[wire_type],
        element=_KINDS[element] if element else 0,
        nested=arguments[0].thrift_reader if is_struct else None,
        text=arguments == "UTF8",
        required=declared.metadata["required"],
        kept=declared.metadata["kept"],
        default=declared.default,
    )


class _PlainProtocol(TCompactProtocol):  # type: ignore[misc]
    """Thrift's pure-Python protocol, taught to write our structs, which have no `write`."""

    def writeContainerStruct(self, val: Any, spec: Any) -> None:  # noqa: N802 (Thrift's name)
        self.writeStruct(val, spec[1])


def _encode_plain(value: Any) -> bytes:
    transport = TMemoryBuffer()
    _PlainProtocol(transport).writeStruct(value, value.thrift_spec)
    encoded: bytes = transport.getvalue()
    return encoded


def _encoder() -> Callable[[Any], bytes]:
    """Thrift's C extension where there is one; its pure-Python protocol is about ten times slower."""
    try:
        from thrift.protocol import fastbinary  # noqa: PLC0415 (may be missing)
    except ImportError:
        return _encode_plain

    def encode_fast(value: Any) -> bytes:
        encoded: bytes = fastbinary.encode_compact(value, [type(value), value.thrift_spec])
        return encoded

    return encode_fast


_encode = _encoder()


def decode(cls: type[T], buffer: Any, offset: int = 0, *, what: str = "", lasting: bool = False) -> tuple[T, int]:
    """The struct at `buffer[offset:]`, and the offset behind it; `what` names the struct in errors."""
    # With `lasting`, lists that are read lazily hold on to `buffer`, which then may never change; otherwise they copy
    # what they need.
    try:
        read: tuple[T, int] = cls.thrift_reader.decode(buffer, offset, MAX_DEPTH, lasting)  # type: ignore[attr-defined]
    except ThriftError as error:
        raise ThriftError(f"{what or cls.__name__} is damaged: {error.message}") from None
    return read


def encode(value: Any) -> bytes:
    """The struct's bytes in the compact protocol; fields that are None are left out."""
    return _encode(value)
