"""A store around a store that fails as scripted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from store_wrapper import Call, Result, StoreWrapper

from resilient_pq.errors import TransientError, Where
from resilient_pq.io.protocols import WriteStore
from resilient_pq.io.stored_object import ObjectTail


@dataclass(slots=True)
class Fault:
    """What goes wrong.

    Attributes:
        verb: The method it happens to, of the store or of a sink: ``"read_range"``, ``"write"``.
        error: Raised instead of carrying out the call.
        after: Carry the call out first, and raise then: the reply is lost.
        flip_bit: Of what is read, this bit is flipped, counted from the first byte's lowest.
        cut_to: Of what is read, only so many bytes come back: a store that breaks its word.
        skip: How many calls of the verb go well first.
        times: How many calls fail then.
    """

    verb: str
    error: BaseException | None = None
    after: bool = False
    flip_bit: int | None = None
    cut_to: int | None = None
    skip: int = 0
    times: int = 1


class FaultyStore(StoreWrapper):
    """Fails as its script says, and works otherwise.

    Attributes:
        faults: The script; a fault is used up `times` times, the first that fits a call happens to it.
    """

    def __init__(self, store: WriteStore, faults: Sequence[Fault] = ()) -> None:
        """Follow the script; more may be appended to `faults` at any time."""
        super().__init__(store)
        self.faults = list(faults)

    async def _do(self, call: Call, action: Callable[[], Awaitable[Result]]) -> Result:
        fault = self._next_fault(call.verb)
        if fault is None:
            return await action()
        spoils_bytes = fault.flip_bit is not None or fault.cut_to is not None
        if spoils_bytes or fault.after:
            result = await action()
            if spoils_bytes:
                return _spoiled(result, fault)
        raise fault.error or TransientError(f"scripted: {call.verb}", where=Where(key=self.url_of(call.key)))

    def _next_fault(self, verb: str) -> Fault | None:
        for fault in self.faults:
            if fault.verb != verb or not fault.times:
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            return fault
        return None


def _spoiled(result: Result, fault: Fault) -> Result:
    """What was read, changed or cut."""
    data = bytearray(result.data if isinstance(result, ObjectTail) else memoryview(result))  # type: ignore[arg-type]
    if fault.flip_bit is not None:
        data[fault.flip_bit // 8] ^= 1 << fault.flip_bit % 8
    spoiled = memoryview(data)[: fault.cut_to]
    if isinstance(result, ObjectTail):
        return ObjectTail(result.info, result.offset, spoiled)  # type: ignore[return-value]
    return spoiled  # type: ignore[return-value]
