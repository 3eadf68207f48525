"""The upload that can always be completed: whatever arrives when, and wherever the writer dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sampled import sampled

from resilient_pq.errors import StoreError
from resilient_pq.io import Part, SinkOptions
from resilient_pq.io.upload.part_layout import MAX_PARTS, PartBuffers, PartLayout, max_object_size, part_size
from resilient_pq.io.upload.upload_plan import Later, ListParts, PutPart, UploadPlan
from resilient_pq.units import GiB, MiB

TiB = 1024 * GiB
GRACE = 60.0


@dataclass
class Store:
    """What has arrived, as ranges of the object; some stores list every version of a part, in any order."""

    lists_versions: bool
    versions: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def arrive(self, put: PutPart) -> None:
        kept = self.versions.get(put.number, []) if self.lists_versions else []
        self.versions[put.number] = [*kept, (put.start, put.end)]

    def listed(self) -> list[Part]:
        found = [
            Part(number, end - start, f'"{start}-{end}"')
            for number, versions in self.versions.items()
            for start, end in versions
        ]
        random.Random(len(found)).shuffle(found)
        return found

    def by_the_rule(self) -> list[tuple[int, int]] | None:
        """Parts without a gap up to the first that is no whole number of MiB; of each number the largest."""
        found = []
        number = 1
        while number in self.versions:
            start, end = max(self.versions[number], key=lambda version: version[1] - version[0])
            found.append((start, end))
            if (end - start) % MiB:
                return found
            number += 1
        return None


@dataclass
class Sending:
    """A part under way, and whether an attempt of it went unanswered."""

    put: PutPart
    unanswered_at: float | None = None


class World:
    """A writer, a store, and requests between them that arrive late, twice or without an answer."""

    def __init__(self, *, lists_versions: bool, part_bytes: int, in_flight: int, head: int | None) -> None:
        self.options = SinkOptions(
            part_bytes=part_bytes, max_part_bytes=part_bytes, max_bytes_in_flight=in_flight, undecided_grace=GRACE
        )
        self.store = Store(lists_versions)
        self.plan = UploadPlan(self.options)
        self.now = 0.0
        self.sending: list[Sending] = []
        #: Attempts that were sent whole and not answered: they may arrive until the time beside them.
        self.adrift: list[tuple[PutPart, float]] = []
        self.listing = False
        self.closed = False
        self.points: set[int] = set()
        self.released: set[int] = set()
        self.wanted = 0
        if head is not None:
            self.plan.append(head)
            self.plan.mark()
            self.points.add(head)

    def pump(self) -> None:
        while (request := self.plan.next_request(self.now)) is not None:
            match request:
                case PutPart():
                    assert request.number not in self.released, "its bytes are not at hand any more"
                    assert all(other.put.number != request.number for other in self.sending)
                    assert all(
                        put.number != request.number or put.end == request.end or until < self.now
                        for put, until in self.adrift
                    ), "other bytes are sent while an attempt may still arrive"
                    self.sending.append(Sending(request))
                case ListParts():
                    assert not self.listing
                    self.listing = True
                case Later(at):
                    assert at > self.now
                    break
        self.released.update(self.plan.take_released())
        total = sum(one.put.end - one.put.start for one in self.sending)
        assert len(self.sending) <= 1 or total <= self.options.max_bytes_in_flight

    def write(self, size: int) -> None:
        self.plan.append(size)
        self.pump()

    def checkpoint(self, size: int) -> None:
        self.plan.append(size + ((self.plan.position + size) % MiB == 0))
        self.points.add(self.plan.position)
        self.wanted = self.plan.commit()
        assert self.wanted == self.plan.position
        self.pump()

    def close(self, size: int) -> None:
        self.plan.append(size + ((self.plan.position + size) % MiB == 0))
        self.points.add(self.plan.position)
        self.wanted = self.plan.position
        self.plan.close()
        self.closed = True
        self.pump()

    def is_unanswered(self, which: int, *, lost: bool) -> None:
        """An attempt is sent whole and not answered; it arrived now, or it may arrive later. It is repeated."""
        one = self.sending[which]
        one.unanswered_at = self.now
        if not lost:
            self.store.arrive(one.put)
        self.adrift.append((one.put, self.now + GRACE - 0.5))

    def arrives(self, which: int) -> None:
        one = self.sending.pop(which)
        self.store.arrive(one.put)
        size = one.put.end - one.put.start
        etag = f'"{one.put.start}-{one.put.end}"'
        part = Part(one.put.number, size, etag)
        if one.unanswered_at is not None:
            part = replace(part, undecided=True, undecided_for=self.now - one.unanswered_at)
        self.plan.acknowledged(part, self.now)
        self.pump()

    def drifts_ashore(self, which: int) -> None:
        """What went unanswered arrives after all, within the grace."""
        put, until = self.adrift.pop(which)
        if until >= self.now:
            self.store.arrive(put)

    def is_listed(self) -> None:
        self.listing = False
        self.plan.listed(self.store.listed(), self.now)
        self.pump()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pump()

    def check(self) -> None:
        """Whoever completes the upload now has what was stored, and an object that is whole; memory is bounded."""
        if not self.plan.congested:
            busy = self.sending or self.listing or self.plan.committing
            held = self.plan.position - self.plan._released_bytes
            assert busy or held <= 2 * self.options.part_bytes + max(self.options.max_bytes_in_flight, MiB)
        found = self.store.by_the_rule()
        if found is None:
            assert self.plan.stored_end == 0
            return
        assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])], "the ranges join"
        assert found[-1][1] in self.points, "it ends where the object is whole"
        assert found[-1][1] >= self.plan.stored_end

    def drain(self) -> None:
        """When all arrives, what was wanted is stored, and a closed upload can be completed."""
        for _ in range(100_000):
            self.pump()
            if self.sending:
                self.arrives(0)
            elif self.listing:
                self.is_listed()
            elif self.plan.committing:
                self.now += GRACE
            else:
                break
            self.check()
        assert self.plan.stored_end >= self.wanted
        if self.closed:
            assert self.plan.completable
            assert sum(part.size for part in self.plan.parts) == self.plan.position
            assert [part.number for part in self.plan.parts] == list(range(1, len(self.plan.parts) + 1))


class UploadMachine(RuleBasedStateMachine):
    """Any interleaving that hypothesis thinks of, and makes small when it fails."""

    world: World | None = None

    @initialize(
        lists_versions=st.booleans(),
        part_bytes=st.sampled_from([MiB, 2 * MiB, 3 * MiB]),
        in_flight=st.sampled_from([1, 2 * MiB, 7 * MiB]),
        head=st.sampled_from([None, 17, MiB - 1, MiB]),
    )
    def begin(self, lists_versions: bool, part_bytes: int, in_flight: int, head: int | None) -> None:
        self.world = World(lists_versions=lists_versions, part_bytes=part_bytes, in_flight=in_flight, head=head)

    @precondition(lambda self: not self.world.closed)
    @rule(size=st.one_of(st.integers(1, 5 * MiB), st.sampled_from([MiB, 2 * MiB, 64 * MiB])))
    def write(self, size: int) -> None:
        self.world.write(size)

    @precondition(lambda self: not self.world.closed)
    @rule(size=st.integers(1, 3 * MiB))
    def checkpoint(self, size: int) -> None:
        self.world.checkpoint(size)

    @precondition(lambda self: not self.world.closed and self.world.plan.begun)
    @rule(size=st.integers(1, 3 * MiB))
    def close(self, size: int) -> None:
        self.world.close(size)

    @precondition(lambda self: self.world.sending)
    @rule(which=st.integers(0, 9), lost=st.booleans())
    def is_unanswered(self, which: int, lost: bool) -> None:
        self.world.is_unanswered(which % len(self.world.sending), lost=lost)

    @precondition(lambda self: self.world.sending)
    @rule(which=st.integers(0, 9))
    def arrives(self, which: int) -> None:
        self.world.arrives(which % len(self.world.sending))

    @precondition(lambda self: self.world.adrift)
    @rule(which=st.integers(0, 9))
    def drifts_ashore(self, which: int) -> None:
        self.world.drifts_ashore(which % len(self.world.adrift))

    @precondition(lambda self: self.world.listing)
    @rule()
    def is_listed(self) -> None:
        self.world.is_listed()

    @rule(seconds=st.sampled_from([0.5, 10.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.world.wait(seconds)

    @invariant()
    def check(self) -> None:
        if self.world is not None:
            self.world.check()

    def teardown(self) -> None:
        if self.world is not None:
            self.world.drain()


UploadMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyInterleaving = UploadMachine.TestCase


def live(seed: int, steps: int) -> None:
    """One life of an upload, drawn without hypothesis, which is a hundred times as slow."""
    rng = random.Random(seed)
    world = World(
        lists_versions=rng.random() < 0.5,
        part_bytes=rng.choice([MiB, 2 * MiB, 3 * MiB]),
        in_flight=rng.choice([1, 2 * MiB, 7 * MiB]),
        head=rng.choice([None, 17, MiB - 1, MiB]),
    )
    # Some lives have much of one kind and nothing of another.
    weights = [rng.choice([0, 1, 4]) or 0.1 for _ in range(7)]
    for _ in range(steps):
        (what,) = rng.choices(range(7), weights)
        size = rng.choice([rng.randint(1, 100), rng.randint(1, 3 * MiB), MiB, rng.randint(1, 9 * MiB)])
        if what == 0 and not world.closed:
            world.write(size)
        elif what == 1 and not world.closed:
            world.checkpoint(size)
        elif what == 2 and world.sending:
            world.is_unanswered(rng.randrange(len(world.sending)), lost=rng.random() < 0.5)
        elif what == 3 and world.sending:
            world.arrives(rng.randrange(len(world.sending)))
        elif what == 4 and world.adrift:
            world.drifts_ashore(rng.randrange(len(world.adrift)))
        elif what == 5 and world.listing:
            world.is_listed()
        elif what == 6:
            world.wait(rng.choice([0.5, 10.0, 61.0]))
        elif world.plan.begun and not world.closed and rng.random() < 0.05:
            world.close(size)
        world.check()
    world.drain()


@pytest.mark.parametrize("portion", range(4))
@sampled(150, 20_000, 1800)
def test_many_lives(portion: int, count: int) -> None:
    for seed in range(count * portion, count * (portion + 1)):
        live(seed, 60 if count < 1000 else 100)


# --- part sizes, by simulation of whole uploads


def run_to(total: int, options: SinkOptions, *, step: int, commit_every: int) -> Iterator[UploadPlan]:
    """Everything that is asked for is done at once; gives the plan after each step."""
    plan = UploadPlan(options)
    plan.append(1000)
    plan.mark()
    since = 0
    while plan.position < total:
        plan.append(min(step, total - plan.position))
        since += step
        if since >= commit_every:
            since = 0
            plan.append(1 + (plan.position % MiB == MiB - 1))
            plan.commit()
        serve(plan)
        yield plan
    plan.close()
    serve(plan)
    yield plan


def serve(plan: UploadPlan) -> None:
    while (request := plan.next_request(0.0)) is not None:
        match request:
            case PutPart(number, start, end):
                plan.acknowledged(Part(number, end - start, f"{start}-{end}"), 0.0)
            case ListParts():
                plan.listed([slot.part for slot in plan._slots.values() if slot.part is not None], 0.0)
            case Later():
                raise AssertionError("nothing went unanswered")


@pytest.mark.parametrize(
    ("total", "options"),
    [
        (5 * TiB - 3, SinkOptions(max_part_bytes=1 * GiB)),
        (500 * GiB + 17, SinkOptions()),
        (48 * GiB, SinkOptions(equal_parts=True)),
    ],
)
def test_an_object_of_any_size_within_its_memory(total: int, options: SinkOptions) -> None:
    most_held = 0
    for plan in run_to(total, options, step=96 * MiB, commit_every=20 * GiB):
        most_held = max(most_held, plan.position - plan._released_bytes)
    assert plan.completable
    parts = plan.parts
    assert len(parts) <= MAX_PARTS
    assert sum(part.size for part in parts) == plan.position >= total
    assert all(part.size == part_size(part.number, options) for part in parts[:-1])
    # All that is asked for is served at once, so only the open slot and the part being filled are held.
    assert most_held <= 2 * (options.part_bytes if options.equal_parts else options.max_part_bytes) + 96 * MiB


def test_the_ten_thousandth_part_is_the_last() -> None:
    options = SinkOptions(equal_parts=True)
    plan = UploadPlan(options)
    plan.append(max_object_size(options))
    with pytest.raises(StoreError, match="more than 10,000 parts") as caught:
        plan.append(1)
    assert caught.value.hint is not None and caught.value.hint.startswith("raise part_bytes,")
    assert plan.position == max_object_size(options)
    plan.close()
    serve(plan)
    assert plan.completable and len(plan.parts) == MAX_PARTS


def test_what_a_commit_costs_is_counted() -> None:
    plan = UploadPlan(SinkOptions())
    plan.append(3 * MiB + 1)
    assert plan.commit_cost == 3 * MiB + 1
    plan.commit()
    serve(plan)
    assert (plan.stored_end, plan.num_bytes_resent) == (3 * MiB + 1, 0)
    plan.append(20 * MiB)
    plan.commit()
    serve(plan)
    assert plan.num_bytes_resent == 3 * MiB + 1, "the open slot was sent in full"
    assert plan.stored_end == 23 * MiB + 1


def test_no_commit_on_a_multiple_of_a_mebibyte() -> None:
    plan = UploadPlan(SinkOptions())
    plan.append(2 * MiB)
    assert plan.commit() == 0
    assert plan.next_request(0.0) is None


def test_a_store_that_lost_a_part_is_found_out() -> None:
    plan = UploadPlan(SinkOptions(part_bytes=MiB))
    plan.append(3 * MiB + 5)
    plan.close()
    requests = [plan.next_request(0.0) for _ in range(4)]
    for request in requests:
        assert isinstance(request, PutPart)
        plan.acknowledged(Part(request.number, request.end - request.start, "a"), 0.0)
    found = [Part(1, MiB, "a"), Part(2, MiB, "b"), Part(3, MiB, "a"), Part(4, 5, "a")]
    now, waits = 0.0, []
    for _ in range(3):
        assert isinstance(plan.next_request(now), ListParts)
        plan.listed(found, now)
        later = plan.next_request(now)
        assert isinstance(later, Later), "a listing that was old a moment ago is old now"
        waits.append(later.at - now)
        now = later.at
    assert waits == [0.25, 1.0, 4.0]
    assert isinstance(plan.next_request(now), ListParts)
    with pytest.raises(StoreError, match="part 2 is not what was sent"):
        plan.listed(found, now)


def test_a_last_part_that_the_store_lost_is_sent_again() -> None:
    plan = UploadPlan(SinkOptions(part_bytes=MiB))
    plan.append(MiB + 5)
    plan.close()
    for _ in range(2):
        request = plan.next_request(0.0)
        assert isinstance(request, PutPart)
        plan.acknowledged(Part(request.number, request.end - request.start, "a"), 0.0)
    assert isinstance(plan.next_request(0.0), ListParts)
    plan.listed([Part(1, MiB, "a"), Part(2, 5, "b")], 0.0)
    assert plan.next_request(1000.0) == PutPart(2, MiB, MiB + 5)


@given(st.lists(st.tuples(st.integers(1, 100_000), st.booleans()), max_size=20))
def test_bytes_that_are_lent_out_never_change(pieces: list[tuple[int, bool]]) -> None:
    buffers, data, lent = PartBuffers(PartLayout(SinkOptions())), b"", []
    for size, looks in pieces:
        piece = bytes([len(lent)]) * size
        data += piece
        buffers.append(memoryview(piece))
        if looks:
            lent.append((buffers.view(1, len(data)), data))
    for views, then in lent:
        assert b"".join(views) == then


def test_parts_that_were_copied_may_have_sizes_of_their_own() -> None:
    copied = [Part(1, 5 * MiB, '"1"'), Part(2, 8 * MiB, '"2"')]
    plan = UploadPlan.resume(13 * MiB + 5, copied, SinkOptions())
    put = plan.next_request(0.0)
    assert put == PutPart(3, 13 * MiB, 13 * MiB + 5)
    plan.acknowledged(Part(3, 5, '"3"'), 0.0)
    assert isinstance(plan.next_request(0.0), ListParts)
    plan.listed([*copied, Part(3, 5, '"3"')], 0.0)
    plan.append(20 * MiB)
    assert plan.next_request(0.0) == PutPart(4, 18 * MiB, 23 * MiB)


@pytest.mark.parametrize(
    ("sizes", "position", "equal"),
    [
        ((5 * MiB, 8 * MiB), 14 * MiB, True),
        ((5 * MiB + 1,), 6 * MiB, False),
        ((0,), 1, False),
        ((6 * MiB,), MiB, False),
    ],
    ids=["unequal", "no whole MiB", "empty", "beyond"],
)
def test_parts_that_cannot_have_been_copied(sizes: tuple[int, ...], position: int, equal: bool) -> None:
    copied = [Part(number, size, f'"{number}"') for number, size in enumerate(sizes, start=1)]
    with pytest.raises(ValueError, match=r"does not fit|beyond"):
        UploadPlan.resume(position, copied, SinkOptions(equal_parts=equal))
