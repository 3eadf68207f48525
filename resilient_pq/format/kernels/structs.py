"""What readers of Thrift structs are told, and lists of structs that become objects when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from resilient_pq.format.kernels.reference.thrift import StructReader


T = TypeVar("T")


class StructField(NamedTuple):
    """One field of a struct."""

    number: int  # its Thrift id, 1 to 63
    name: str  # the attribute that it becomes
    kind: int  # its wire type in the compact protocol; 1, true, for any bool
    element: int = 0  # the wire type of a list's elements; 0 where it is no list
    nested: StructReader | None = None  # reads the struct that it is, or that its elements are
    text: bool = False  # whether binary values are text; what is no UTF-8 in it becomes U+FFFD
    required: bool = False  # whether a struct without it is refused
    kept: bool = False  # whether a list of structs becomes `KeptStructs`
    default: Any = None  # its value where it is left out


class InnerLists(NamedTuple):
    """Where the kept lists lie that stand in the elements of a kept list."""

    at: memoryview  # for each element, the offset of its kept list's header; -1 where it has none
    first: memoryview  # for each element, where its own begin in `starts`, and at the end where the last one's end
    starts: memoryview  # for each element, the offsets of its kept list's elements, and the offset behind the last


class Reader(Protocol):
    """What a `StructReader` does for the lists that it keeps."""

    def decode_kept(self, buffer: Any, start: int, end: int, inner_at: int, inner_starts: memoryview | None) -> Any:
        """The struct between two offsets, of which is known that it is sound."""


class KeptStructs(MutableSequence[T]):
    """A list of structs that are read from bytes that were checked, each when it is first asked for, and then kept.

    Attributes:
        inner: Where the kept lists in the structs lie, as they were read; None where there are none.
    """

    __slots__ = ("_data", "_made", "_plain", "_reader", "_starts", "inner")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, reader: Reader, data: Any, starts: memoryview, inner: InnerLists | None = None) -> None:
        """Keep the bytes, which never change, the offsets of the structs and behind the last, and lists within them."""
        self._reader = reader
        self._data = data
        self._starts = starts
        self.inner = inner
        self._made: dict[int, T] = {}
        self._plain: list[T] | None = None

    def __len__(self) -> int:
        """Number of structs."""
        return len(self._starts) - 1 if self._plain is None else len(self._plain)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | MutableSequence[T]:
        """One struct, or a list of some."""
        if self._plain is not None:
            return self._plain[index]
        if isinstance(index, slice):
            return [self._one(i) for i in range(*index.indices(len(self)))]
        return self._one(range(len(self))[index])

    def _one(self, index: int) -> T:
        made = self._made.get(index)
        # Two threads may both read it; what they are given is one and the same.
        return self._made.setdefault(index, self._read(index)) if made is None else made

    def _read(self, index: int) -> T:
        at, of_it, inner = -1, None, self.inner
        if inner is not None:
            at = inner.at[index]
            of_it = inner.starts[inner.first[index] : inner.first[index + 1]] if at >= 0 else None
        one: T = self._reader.decode_kept(self._data, self._starts[index], self._starts[index + 1], at, of_it)
        return one

    def __iter__(self) -> Iterator[T]:
        """The structs in order."""
        if self._plain is not None:
            return iter(self._plain)
        return map(self._one, range(len(self)))

    def fresh(self, index: int) -> T:
        """A struct of the caller's own, which changes nothing here."""
        return copy(self._plain[index]) if self._plain is not None else self._read(index)

    @property
    def spans(self) -> tuple[Any, memoryview] | None:
        """What holds the structs, and the offsets of each and behind the last; None where one may have been changed."""
        return None if self._plain is not None or self._made else (self._data, self._starts)

    def stored(self, index: int) -> bytes | None:
        """The bytes of a struct as they were read; None where the list was changed."""
        return None if self._plain is not None else bytes(self._data[self._starts[index] : self._starts[index + 1]])

    def _as_plain(self) -> list[T]:
        if self._plain is None:
            self._plain = list(self)
        return self._plain

    def __setitem__(self, index: Any, value: Any) -> None:
        """Put another struct in the place of one, or others in the place of some."""
        self._as_plain()[index] = value

    def __delitem__(self, index: int | slice) -> None:
        """Take some out."""
        del self._as_plain()[index]

    def insert(self, index: int, value: T) -> None:
        """Put one in before another."""
        self._as_plain().insert(index, value)

    def __eq__(self, other: object) -> bool:
        """Whether it has the same structs as another list."""
        if not isinstance(other, list | KeptStructs):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __repr__(self) -> str:
        """As that of a list."""
        return repr(list(self))

    def __reduce__(self) -> tuple[type[list[T]], tuple[Iterable[T]]]:
        """Copies and pickles are ordinary lists."""
        return list, (list(self),)
