"""How files are read, checked once and passed down whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import OptionError
from resilient_pq.io import FetchOptions, MergeOptions, ObjectTail
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.machine_limits import processors, share_of_memory
from resilient_pq.units import KiB, MiB

if TYPE_CHECKING:
    from resilient_pq.damage.lost_region import LostRegion
    from resilient_pq.encryption.keys import KeysArgument

#: Called with each region of a file that is lost.
OnLost = Callable[["LostRegion"], object]


#: Gaps are read over whatever they waste up to this share of `ReadOptions.merge_gap`.
_SMALL_GAP = 16
#: Of the time that a wave of blocks takes, this share is to go into moving their bytes.
_MOVING = 0.9
#: Share of a round trip that a longer tail may cost, to spare a second one.
_TAIL_SHARE = 1 / 8


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    The defaults suit object storage: some 30 ms until an answer, some 100 MB/s then. `from_network` reckons others.

    Attributes:
        tail_bytes: Bytes asked for from the end of the object when it is opened; a longer footer costs one
            more request.
        merge_gap: Gaps of at most this many bytes between wanted bytes are read over, while a request has no more
            than twice its useful bytes; gaps of a sixteenth of it always are. 0 reads nothing that is not wanted.
        block_bytes: Requests are merged up to this many bytes, so that they are made side by side; a single range
            of more than twice as much is split. Where a wave has fewer requests than `max_requests`, its blocks are
            smaller, but no smaller than 1 MiB.
        max_requests: Requests under way at one time.
        memory_budget: Bytes requested and not decoded yet; at least one request goes out, whatever its size. 64 MiB, or
            a sixteenth of the memory that this process may use where that is less, as in a small container.
        max_threads: Column chunks decoded at one time; None is the number of processors that this process may use.
        coerce_int96_timestamp_unit: The unit of time stamps that INT96 columns become, "us", "ms" or "s":
            values are cut to whole ones of it. None is nanoseconds, and microseconds for columns with a value
            outside the years 1677 to 2262, which is all that nanoseconds reach; with `File.batches` that may
            differ from one row group to the next.
        restore_types: Whether columns come in the forms that the writer had them in, as the key ``ARROW:schema`` of the
            file says: dictionaries (pandas' categoricals, Polars' Enum and Categorical), views of strings, binaries
            and lists, decimals of 32 and 64 bits. False gives the plain types with the same values: string, binary,
            list, decimal128. Large offsets, time zones, durations and lists of one size are kept either way.
    """

    tail_bytes: int = 256 * KiB
    merge_gap: int = 1 * MiB
    block_bytes: int = 8 * MiB
    max_requests: int = 16
    memory_budget: int = share_of_memory(16, 64 * MiB)
    max_threads: int | None = None
    coerce_int96_timestamp_unit: Literal["us", "ms", "s"] | None = None
    restore_types: bool = True

    def __post_init__(self) -> None:
        """Refuse settings that are out of range."""
        for name, least in (("merge_gap", 0), ("block_bytes", 1), ("max_requests", 1), ("memory_budget", 1)):
            value: object = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise OptionError(f"{name} is {value!r}; it is a whole number, at least {least}")
        threads: object = self.max_threads
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise OptionError(f"max_threads is {threads!r}; it is a whole number, at least 1")
        unit: str | None = self.coerce_int96_timestamp_unit
        if unit not in (None, "us", "ms", "s"):
            raise OptionError(
                f'coerce_int96_timestamp_unit is {unit!r}; it must be "us", "ms", "s" or None',
                hint="leave it out for nanoseconds" if unit == "ns" else None,
            )

    @classmethod
    def from_network(cls, ttfb: float, bandwidth: float) -> Self:
        """Options for a network whose numbers are known; `dataclasses.replace` changes the others.

        Reading over a gap costs what its bytes take, and leaving it out costs a request: so gaps are worth reading
        over up to what is moved until a first byte comes. Blocks are so large that a wave of them spends nine tenths
        of its time moving bytes, and a tail costs an eighth of a round trip.

        Args:
            ttfb: Seconds from a request until the first byte of its answer.
            bandwidth: Bytes a second, of all requests together.

        Returns:
            Options with `merge_gap` from 64 KiB to 8 MiB, `block_bytes` from 1 to 8 MiB, and `tail_bytes` from
            64 KiB to 1 MiB.

        Raises:
            SchemaError: A number is not above 0.
        """
        if not (0 < ttfb < float("inf") and 0 < bandwidth < float("inf")):
            raise OptionError(f"ttfb and bandwidth are seconds and bytes a second, not {ttfb!r} and {bandwidth!r}")
        moved = ttfb * bandwidth
        block = moved * _MOVING / (1 - _MOVING) / cls().max_requests
        return cls(
            tail_bytes=_clamp(64 * KiB, moved * _TAIL_SHARE, 1 * MiB),
            merge_gap=_clamp(64 * KiB, moved, 8 * MiB),
            block_bytes=_clamp(1 * MiB, block, 8 * MiB),
        )

    @cached_property
    def fetch(self) -> FetchOptions:
        """How a wave of reads is shaped."""
        merge = MergeOptions(
            always_gap=self.merge_gap // _SMALL_GAP, wide_gap=self.merge_gap, block_bytes=self.block_bytes
        )
        return FetchOptions(merge, self.max_requests, self.memory_budget)


def _clamp(least: int, size: float, most: int) -> int:
    return int(min(max(size, least), most))


DEFAULT_OPTIONS: Final = ReadOptions()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The checked arguments of `open` that say how files are read."""

    verify: bool  # Whether checksums are compared
    on_damage: OnDamage  # What is done with rows of which a value is lost
    on_lost: OnLost | None  # Called with each region that is lost
    options: ReadOptions  # The rest
    heal: bool = True  # Whether damaged bytes are rebuilt from parity
    on_healed: Callable[[Any], object] | None = None  # Called with each `HealedChunk`
    # The keys of an encrypted file; None for one in the clear
    keys: KeysArgument | None = field(default=None, repr=False)
    aad_prefix: bytes | None = field(default=None, repr=False)  # What its AADs begin with
    require_complete: bool | None = None  # Whether a file of ours that was not finished is an error

    @classmethod
    def checked(
        cls,
        *,
        verify: bool,
        on_damage: str,
        on_lost: OnLost | None,
        options: ReadOptions | None,
        heal: bool = True,
        on_healed: Callable[[Any], object] | None = None,
        keys: KeysArgument | None = None,
        aad_prefix: bytes | None = None,
        require_complete: bool | None = None,
    ) -> Self:
        """The checked arguments of `open`."""
        policy = OnDamage.RAISE
        if on_damage != policy:
            policy = OnDamage.named(on_damage, [OnDamage.RAISE, OnDamage.NULL, OnDamage.DROP])
        if on_lost is not None and not callable(on_lost):
            raise OptionError(f"on_lost is {on_lost!r}; it is a function that takes a LostRegion")
        if on_healed is not None and not callable(on_healed):
            raise OptionError(f"on_healed is {on_healed!r}; it is a function that takes a HealedChunk")
        chosen = DEFAULT_OPTIONS if options is None else options
        if not isinstance(chosen, ReadOptions):
            raise OptionError(f"options is {options!r}; open takes ReadOptions")
        if aad_prefix is not None and (keys is None or not isinstance(aad_prefix, bytes)):
            raise OptionError("aad_prefix is bytes, and goes with keys")
        return cls(verify, policy, on_lost, chosen, bool(heal), on_healed, keys, aad_prefix, require_complete)

    def tell(self, lost: Sequence[LostRegion]) -> None:
        """Tell of regions that were lost, where it is asked for."""
        if self.on_lost is not None:
            for region in lost:
                self.on_lost(region)


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """How a file or a data set is followed that is still being written.

    Attributes:
        poll_seconds: Between two looks while there is nothing new.
        wait: What waits that long: a coroutine function that takes seconds.
        last_rows: Begin with the row group that has the first of so many rows that are stored last; None for all rows.
        idle_seconds: End when a data set had nothing new for so long; None never ends. A file ends when it is complete.

    Raises:
        SchemaError: A setting is out of range, or `wait` cannot be called.
    """

    poll_seconds: float = 1.0
    wait: Callable[[float], Awaitable[object]] = asyncio.sleep
    last_rows: int | None = None
    idle_seconds: float | None = None

    def __post_init__(self) -> None:
        """Refuse settings with which waiting is not possible."""
        seconds: object = self.poll_seconds
        if not isinstance(seconds, int | float) or not seconds > 0:
            raise OptionError(f"poll_seconds is {seconds!r}; it is a number above 0")
        for name in ("last_rows", "idle_seconds"):
            value: object = getattr(self, name)
            if value is not None and (not isinstance(value, int | float) or not value >= 0):
                raise OptionError(f"{name} is {value!r}; it is a number, 0 or more")
        if not callable(self.wait):
            raise OptionError(f"wait is {self.wait!r}; it is a coroutine function that takes seconds")


def follow_options(follow: object) -> FollowOptions | None:
    """What a caller says by `follow`; None where nothing is followed."""
    if not isinstance(follow, bool | FollowOptions):
        raise OptionError(f"follow is {follow!r}; it is True, False or FollowOptions")
    return FollowOptions() if follow is True else follow or None


class Tails:
    """The tails of open files, kept within a budget: what lies in them costs no request."""

    def __init__(self, most_bytes: int) -> None:
        """Keep at most so many bytes, of all files together; of one file that is alone, in any case."""
        self._left = most_bytes
        self._first = True

    def keep(self, tail: ObjectTail) -> ObjectTail:
        """The tail, without its bytes where there is no more room for them."""
        if len(tail.data) > self._left and not self._first:
            return ObjectTail(tail.info, tail.info.size, b"")
        self._left -= len(tail.data)
        self._first = False
        return tail


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits that all reads share, whichever file they are of."""

    requests: asyncio.Semaphore  # Requests under way
    threads: asyncio.Semaphore  # Threads at work
    max_threads: int  # How many those are
    tails: Tails  # What is kept of what opening brought

    @classmethod
    def of(cls, options: ReadOptions) -> Self:
        """The limits that options set."""
        threads = options.max_threads or processors()
        requests = asyncio.Semaphore(options.max_requests)
        return cls(requests, asyncio.Semaphore(threads), threads, Tails(options.memory_budget))
