"""Structs of the Thrift compact protocol, declared once as classes with numbered fields.

The bytes are read and written by Apache Thrift (its C extension where the platform has it). Before the
extension sees foreign bytes, `thrift_end` has walked them: every length is within the buffer and the
nesting is bounded, so a hostile footer costs an error and not the process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from dataclasses import field as dataclass_field
from typing import Any, TypeVar, dataclass_transform

from thrift.protocol.TCompactProtocol import TCompactProtocol, TCompactProtocolAccelerated
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from resilient_pq.errors import ThriftError, Where
from resilient_pq.format import kernels

#: Structs nested deeper than this are refused. Real ones reach 8 (FileMetaData down to a TimeUnit).
MAX_DEPTH = 64

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


def list_of(element: Any) -> tuple[int, Any]:
    """The wire type of a list of `element`, which is a wire type or a struct class."""
    wire_type, arguments = _wire_type(element)
    return TType.LIST, (wire_type, arguments, False)


def _wire_type(declared: Any) -> tuple[int, Any]:
    if isinstance(declared, type):
        return TType.STRUCT, [declared, declared.thrift_spec]  # type: ignore[attr-defined]
    pair: tuple[int, Any] = declared
    return pair


def field(number: int, declared: Any, *, default: Any = MISSING) -> Any:
    """One field of a struct: its Thrift id and its wire type; without a default it is required.

    Thrift builds a struct empty and fills it in, so that a required field is None until then; `decode` sees to
    it that none is left so.
    """
    required = default is MISSING
    metadata = {"number": number, "type": declared, "required": required}
    return dataclass_field(default=None if required else default, metadata=metadata)


@dataclass_transform(field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Make a class of `field`s a slotted dataclass that `encode` and `decode` understand."""
    made = dataclass(slots=True)(cls)
    declared = {f.metadata["number"]: f for f in fields(made)}  # type: ignore[arg-type]
    spec: list[Any] = [None] * (max(declared, default=0) + 1)
    nested: list[tuple[str, bool]] = []
    for number, f in declared.items():
        wire_type, arguments = _wire_type(f.metadata["type"])
        spec[number] = (number, wire_type, f.name, arguments, None)
        is_list = wire_type == TType.LIST and arguments[0] == TType.STRUCT
        if is_list or wire_type == TType.STRUCT:
            nested.append((f.name, is_list))
    made.thrift_spec = tuple(spec)  # type: ignore[attr-defined]
    made.thrift_required = tuple(f.name for f in declared.values() if f.metadata["required"])  # type: ignore[attr-defined]
    made.thrift_nested = tuple(nested)  # type: ignore[attr-defined]
    return made


def _missing(value: Any) -> str | None:
    """The first required field that a struct, or one within it, lacks."""
    for name in value.thrift_required:
        if getattr(value, name) is None:
            return f"{type(value).__name__}.{name}"
    for name, is_list in value.thrift_nested:
        inner = getattr(value, name)
        if inner is None:
            continue
        for one in inner if is_list else (inner,):
            if missing := _missing(one):
                return missing
    return None


class _PlainProtocol(TCompactProtocol):  # type: ignore[misc]
    """Thrift's pure-Python protocol, taught to build our structs, which have no `read` and `write`."""

    def readString(self) -> str:  # noqa: N802 (Thrift's name)
        # As the extension does: a name that is no UTF-8 is no reason not to read the rest.
        return bytes(self.readBinary()).decode("utf-8", "replace")

    def readContainerList(self, spec: Any) -> Any:  # noqa: N802 (Thrift's name)
        wire_type, arguments, _ = spec
        found, length = self.readListBegin()
        if length and found != wire_type:
            raise TProtocolException(message=f"a list holds wire type {found} instead of {wire_type}")
        values = [self.readFieldByTType(wire_type, arguments) for _ in range(length)]
        self.readListEnd()
        return values

    def readContainerStruct(self, spec: Any) -> Any:  # noqa: N802 (Thrift's name)
        return self.readStruct(spec[0], spec[1], True)

    def writeContainerStruct(self, val: Any, spec: Any) -> None:  # noqa: N802 (Thrift's name)
        self.writeStruct(val, spec[1])


def _decode_plain(data: bytes, cls: type[T]) -> T:
    decoded: T = _PlainProtocol(TMemoryBuffer(data)).readStruct(cls, cls.thrift_spec, True)  # type: ignore[attr-defined]
    return decoded


def _encode_plain(value: Any) -> bytes:
    transport = TMemoryBuffer()
    _PlainProtocol(transport).writeStruct(value, value.thrift_spec)
    encoded: bytes = transport.getvalue()
    return encoded


def _codec() -> tuple[Callable[[bytes, type[Any]], Any], Callable[[Any], bytes]]:
    """Thrift's C extension where there is one; its pure-Python protocol is about ten times slower."""
    try:
        from thrift.protocol import fastbinary  # noqa: PLC0415 (may be missing)
    except ImportError:
        return _decode_plain, _encode_plain

    def decode_fast(data: bytes, cls: type[T]) -> T:
        protocol = TCompactProtocolAccelerated(TMemoryBuffer(data))
        decoded: T = fastbinary.decode_compact(None, protocol, [cls, cls.thrift_spec])  # type: ignore[attr-defined]
        return decoded

    def encode_fast(value: Any) -> bytes:
        encoded: bytes = fastbinary.encode_compact(value, [type(value), value.thrift_spec])
        return encoded

    return decode_fast, encode_fast


_decode, _encode = _codec()


def decode(cls: type[T], buffer: Any, offset: int = 0, *, what: str = "") -> tuple[T, int]:
    """Read one struct from the front of `buffer[offset:]`.

    Unknown fields of any type are skipped; a field of another wire type than declared counts as unknown.

    Args:
        cls: The struct's class.
        buffer: Bytes, which may go on after the struct.
        offset: Where the struct begins in `buffer`.
        what: The struct in the reader's words, for the error.

    Returns:
        The struct, and the offset in `buffer` just after it.

    Raises:
        ThriftError: The bytes are no such struct, or end before it does.
    """
    what = what or cls.__name__
    view = memoryview(buffer)
    try:
        end = kernels.thrift_end(view, offset, MAX_DEPTH)
        value = _decode(bytes(view[offset:end]), cls)
    except ThriftError as error:
        raise ThriftError(f"{what} is damaged: {error.message}", where=Where()) from None
    except (TypeError, ValueError, LookupError, EOFError, OverflowError, TProtocolException) as error:
        raise ThriftError(f"{what} is damaged: {error}") from error
    if missing := _missing(value):
        raise ThriftError(f"{what} is damaged: it lacks {missing}")
    return value, end


def encode(value: Any) -> bytes:
    """The struct's bytes in the compact protocol; fields that are None are left out."""
    return _encode(value)
