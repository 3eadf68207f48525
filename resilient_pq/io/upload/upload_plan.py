"""When which bytes go into which part of an upload, so that it can always be completed: a pure state machine.

Events go in (bytes were appended, a commit is wanted, a part was acknowledged), requests come out. It knows no
store, no bytes and no clock: times are given to it.

Part n covers a fixed range of the object, a whole number of MiB. The **open slot** is the part that holds the end
of what was committed last; it has exactly the bytes up to that end, which never lies on a multiple of a MiB.
To commit up to an end in part m, the parts behind the open slot are sent, part m only up to that end. When
all of them are acknowledged the open slot is sent in full: that single request is the commit, and m is the open
slot from then on. So whoever takes parts 1, 2, ... up to and including the first whose size is no whole number of
MiB has, at every moment, exactly what was committed last. Where nothing was committed before the end, nothing
is lost by sending the open slot beside the others: all of them together are the first commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from resilient_pq.errors import TransientError
from resilient_pq.io.multipart_store import Part
from resilient_pq.io.object_sink import DEFAULT_SINK_OPTIONS, SinkOptions
from resilient_pq.io.stored_object import bare_etag
from resilient_pq.io.upload.part_layout import PartLayout, PartSlot
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import MiB

# How often a part is sent, or a listing asked for, again because the store lists other bytes than it acknowledged;
# and the seconds before the first listing that can only be asked for again, four times as many before each next one.
_MAX_REPAIRS = 3
_FIRST_WAIT = 0.25


@dataclass(frozen=True, slots=True)
class PutPart:
    """Send the bytes from `start` up to `end` of the object as part `number`."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ListParts:
    """Ask the store which parts it has."""


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing can be sent before the time `at`."""

    at: float


class UploadPlan:
    """What to send next, of an object of unknown size."""

    def __init__(self, options: SinkOptions = DEFAULT_SINK_OPTIONS) -> None:
        self.position = 0  # Bytes appended so far
        self.num_bytes_resent = 0  # Bytes that were sent more than once so far, retries not counted
        self.begun = False  # Whether any part was ever asked to be sent; until then the object can be a single request
        self._options = options
        self.layout = PartLayout(options)  # Which bytes belong to which part
        self._slots: dict[int, PartSlot] = {}
        self._elsewhere = 0  # bytes that survive in another object
        self._done = 0  # bytes that whoever completes the upload would find
        self._open = 1
        self._next = 2  # the lowest part behind the open slot that was neither asked for nor passed over
        self._passed_over: set[int] = set()  # parts that were frozen when their turn came
        self._head: int | None = None
        self._target: int | None = None
        self._queued: int | None = None
        self._closing = self._stopping = self._listing = False
        # Before the first promise the store has to show that it lists what it was given.
        self._unsure, self._listed, self.unanswered = True, False, False
        self._list_at = 0.0
        self._tells: bool | None = None
        self._sending: dict[int, int] = {}
        self._released: list[int] = []
        self._released_bytes = 0
        self._repairs = 0

    @classmethod
    def resume(cls, position: int, copied: Sequence[Part], options: SinkOptions) -> UploadPlan:
        """Plan an upload whose first parts are there already."""
        plan = cls(options)
        for number, part in enumerate(copied, 1):
            unequal = options.equal_parts and part.size != options.part_bytes
            if part.number != number or not part.size or part.size % MiB or unequal:
                raise ValueError(f"part {part.number} of {part.size:,} bytes does not fit as part {number}")
            plan.layout.add(part.size)
        if plan.layout.end_of(len(copied)) > position:
            raise ValueError("the parts reach beyond what is known")
        plan.append(position)
        plan.begun = True
        plan._open, plan._next = len(copied) + 1, len(copied) + 2
        for number, part in enumerate(copied, 1):
            slot = plan._slot(number)
            slot.part, slot.sent_end = part, slot.end
            plan._release(slot)
        plan._elsewhere, plan._done = position, plan._released_bytes
        plan.commit()
        return plan

    # -- events ----------------------------------------------------------------------------------

    def append(self, size: int) -> None:
        """More bytes are at hand."""
        self.layout.cover(self.position + size)
        self.position += size

    def mark(self) -> None:
        """What was appended so far is the first thing to be stored, if anything is."""
        self._head = self.position

    def commit(self) -> int:
        """Make what was appended so far what anyone would find; gives the end that `committed_end` will reach."""
        # No commit can end on a multiple of a MiB, and none is of use that nobody could find.
        if self.position % MiB and self._tells is not False:
            self._aim_at(self.position)
        return max(self._done, self._target or 0, self._queued or 0)

    def close(self, *, in_parts: bool = False) -> None:
        """No more bytes will come. What was appended is to be sent, and listed."""
        self._closing = True
        if in_parts or self.begun or self.position >= self.layout.end_of(1):
            self._aim_at(self.position)

    def stop(self) -> None:
        """Ask for nothing more than what a commit under way needs."""
        self._stopping = True
        self._queued = None

    def acknowledged(self, part: Part, now: float) -> None:
        """The store has this part."""
        slot = self._slots[part.number]
        assert slot.sending_end is not None
        slot.part, slot.sent_end, slot.sending_end = part, slot.sending_end, None
        del self._sending[part.number]
        if part.undecided:
            slot.quiet_until = now + self._options.undecided_grace - part.undecided_for
            self._unsure = self.unanswered = True
        if part.number > self._open and slot.sent_end == slot.end and part.number not in self._frozen():
            self._release(slot)
        if self._target is not None and self._committed() and not self._unsure and not self._listing:
            self._advance()

    def listed(self, parts: Sequence[Part], now: float) -> None:
        """What the store has; of a number with several versions the largest counts."""
        found: dict[int, Part] = {}
        for part in parts:
            known = found.get(part.number)
            ours = self._is_ours(part.number, part)
            if known is None or (part.size, ours) > (known.size, False):
                found[part.number] = part
        last = self.layout.number_of(self._done if self._target is None else self._target)
        wrong = [number for number in range(1, last + 1) if not self._is_ours(number, found.get(number))]
        if wrong:
            self._listing = False
            self._send_again(wrong, now)
        else:
            self.unanswered = False
            self.unlisted(findable=True)

    def unlisted(self, *, findable: bool) -> None:
        """The listed parts match, or the store cannot list them: then completing the upload verifies them."""
        self._listing = False
        self._tells = self._tells or findable
        if self._target is not None and self._committed():
            self._advance()
        self._listed = self.sent

    # -- what to do ------------------------------------------------------------------------------

    def next_request(self, now: float) -> PutPart | ListParts | Later | None:
        """What to send now; it counts as under way from here on. None when only an event can help."""
        later: float | None = None
        if not self._listing and self._must_list():
            if now < self._list_at:
                later = self._list_at
            else:
                self._listing, self._unsure = True, False
                return ListParts()
        for slot, end in self._wanted():
            if slot.sending_end is not None or slot.sent_end >= end:
                continue
            if slot.part is not None and now < slot.quiet_until:
                later = slot.quiet_until if later is None else min(later, slot.quiet_until)
                continue
            size = end - slot.start
            if self._sending and sum(self._sending.values()) + size > self._options.max_bytes_in_flight:
                return None
            if slot.part is not None:
                self.num_bytes_resent += slot.sent_end - slot.start
            slot.sending_end = end
            self._sending[slot.number] = size
            self._next += slot.number == self._next
            self._passed_over.discard(slot.number)
            self.begun = True
            return PutPart(slot.number, slot.start, end)
        return None if later is None else Later(later)

    @property
    def stored_end(self) -> int:
        """Bytes of the object, from its beginning, that survive: whoever completes it now would find them."""
        return max(self._done if self._tells else 0, self._elsewhere)

    @property
    def committed_end(self) -> int:
        """Bytes that commits have brought into parts, whether or not anybody could find these."""
        return max(self._done, self._elsewhere)

    @property
    def promises(self) -> bool:
        """Whether what is listed next would be the first promise that bytes survive; none is made at the end."""
        return self.committing and self._tells is None and not self._closing

    @property
    def adds_nothing(self) -> bool:
        """Whether the upload has no more than what survives in another object."""
        return 0 < self._elsewhere >= self._done

    @property
    def single(self) -> bool:
        """Whether the object is closed and small, so that one request can write it and no upload is needed."""
        return self._closing and not self.begun and self._target is None

    @property
    def sent(self) -> bool:
        """Whether everything that was appended is in acknowledged parts, and no more will come."""
        return self._closing and self.begun and not self._sending and self._done >= self.position

    @property
    def arrived(self) -> bool:
        """Whether all that was appended is in acknowledged parts, listed or not, and no more will come."""
        return self._committed() if self._closing and self._target == self.position else self.sent

    @property
    def completable(self) -> bool:
        """Whether all parts are sent, and were listed as they should be."""
        return self.sent and self._listed

    @property
    def committing(self) -> bool:
        """Whether a commit is under way."""
        return self._target is not None

    @property
    def congested(self) -> bool:
        """Whether too many bytes are held, while something is under way that will release some."""
        # Allowed are those in flight, and two parts: the open slot, and the part that is being filled.
        last = self.layout.number_of(self.position)
        parts = self.layout.size_of(self._open) + (self.layout.size_of(last) if last > self._open else 0)
        held = self.position - self._released_bytes
        busy = bool(self._sending) or self._listing or self.committing
        return busy and held > self._options.max_bytes_in_flight + parts

    @property
    def commit_cost(self) -> int:
        """Bytes that a commit of what was appended so far sends, and that will be sent again later."""
        return self.position - self.layout.start_of(self.layout.number_of(self.position)) if self.position else 0

    @property
    def parts(self) -> list[Part]:
        """The acknowledged parts that make what was committed, from 1."""
        slots = (self._slots.get(number) for number in range(1, self.layout.number_of(self._done) + 1))
        return [slot.part for slot in slots if slot is not None and slot.part is not None]

    def take_released(self) -> list[int]:
        """Parts whose bytes are needed no more, each given once."""
        released, self._released = self._released, []
        return released

    # -- inside ----------------------------------------------------------------------------------

    def _aim_at(self, end: int) -> None:
        if end <= max(self._done, self._target or 0):
            return
        if self._target is None:
            self._target = end
        else:
            self._queued = end

    def _wanted(self) -> Iterator[tuple[PartSlot, int]]:
        """Parts and how far they are to be sent, the most urgent first."""
        slot, target = self._slot(self._open), self._target
        last = None if target is None else self.layout.number_of(target)
        if self._head_wanted(slot, last):
            assert self._head is not None
            yield slot, self._head
        if target is not None and last is not None:
            if self._only_the_commit_is_left(last) or (self._closing and not self.committed_end):
                yield slot, target if last == self._open else slot.end
            if last > self._open:
                yield self._slot(last), target
        for number in self._whole_parts():
            if not self._stopping or (last is not None and number < last):
                yield self._slot(number), self.layout.end_of(number)

    def _whole_parts(self) -> list[int]:
        """Parts behind the open slot that wait to be sent in full; of those never asked for, the first."""
        frozen = self._frozen()
        while self._next in frozen:
            self._passed_over.add(self._next)
            self._next += 1
        waiting = sorted(number for number in self._passed_over if number not in frozen)
        waiting.append(self._next)
        return [number for number in waiting if self.layout.is_full(number, self.position)]

    def _head_wanted(self, slot: PartSlot, last: int | None) -> bool:
        if slot.number != 1 or slot.part is not None or slot.sending_end is not None or self._stopping:
            return False
        if not self._head or self._head % MiB == 0 or self._head > slot.end:
            return False
        return self.position >= slot.end or (last is not None and last > 1)

    def _only_the_commit_is_left(self, last: int) -> bool:
        """Whether all parts behind the open slot, up to the target's, are acknowledged."""
        if last == self._open:
            return True
        if any(number < last for number in self._passed_over) or self._next < last:
            return False
        behind = self._slots.get(last)
        if behind is None or behind.part is None or behind.sent_end != self._target:
            return False
        return not any(self._open < number <= last for number in self._sending)

    def _committed(self) -> bool:
        """Whether the request that commits was acknowledged."""
        assert self._target is not None
        last = self.layout.number_of(self._target)
        slot = self._slot(self._open)
        end = self._target if last == self._open else slot.end
        return slot.part is not None and slot.sent_end == end and self._only_the_commit_is_left(last)

    def _advance(self) -> None:
        """The commit is done."""
        assert self._target is not None
        last = self.layout.number_of(self._target)
        if last != self._open:
            self._release(self._slot(self._open))
        self._open, self._next = last, max(self._next, last + 1)
        self._passed_over.discard(last)
        self._done = self._target
        self._target, self._queued = self._queued, None
        self._repairs = 0

    def _must_list(self) -> bool:
        """Whether parts must be listed: for a commit after an unanswered request, and before completing."""
        if self._target is not None:
            return self._unsure and self._committed()
        return self.sent and not self._listed

    def _send_again(self, wrong: Sequence[int], now: float) -> None:
        """Send parts again that the store lists otherwise, or have them listed again where their bytes are gone."""
        self._repairs += 1
        self._unsure = True
        lost = [number for number in wrong if self._slot(number).released]
        if self._repairs > _MAX_REPAIRS:
            raise TransientError(
                f"part {(lost or wrong)[0]} is not what was sent: the store lists other bytes under this number,"
                " or none"
            )
        if lost:  # nothing can be sent for them; but a store may list what it had some time ago: it is asked again
            self._list_at = now + _FIRST_WAIT * 4 ** (self._repairs - 1)
            return
        for number in wrong:
            slot = self._slot(number)
            end, slot.sent_end = slot.sent_end, slot.start
            if self._target is None:  # closing: the commit of the last bytes has to be repeated
                self._target, self._done = end, slot.start

    def _frozen(self) -> set[int]:
        """Parts behind the open slot that are sent only up to the end of a commit."""
        ends = [end for end in (self._target, self._queued) if end is not None]
        return {number for number in map(self.layout.number_of, ends) if number > self._open}

    def _slot(self, number: int) -> PartSlot:
        slot = self._slots.get(number)
        if slot is None:
            start, end = self.layout.start_of(number), self.layout.end_of(number)
            slot = self._slots[number] = PartSlot(number, start, end, sent_end=start)
        return slot

    def _is_ours(self, number: int, listed: Part | None) -> bool:
        """Whether the store lists a part as it acknowledged it."""
        slot = self._slots.get(number)
        if listed is None or slot is None or slot.part is None:
            return False
        return (listed.size, bare_etag(listed.etag)) == (slot.part.size, bare_etag(slot.part.etag))

    def _release(self, slot: PartSlot) -> None:
        slot.released = True
        self._released.append(slot.number)
        self._released_bytes += slot.end - slot.start
