"""How the bytes of one object are written: the options of a sink, and the sink."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, Protocol, TypeAlias

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.io.stored_object import ObjectInfo
from resilient_pq.io.upload.epoch import LeaseTerms
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.units import GiB, MiB

Buffer: TypeAlias = bytes | bytearray | memoryview
"""What may be written: contiguous bytes, which must not change until the object is published."""


class StoredState(StrEnum):
    """How safe bytes are that were given to a sink."""

    ACCEPTED = "accepted"
    """In memory: lost with the process."""
    STORED = "stored"
    """In the store: they survive the process, but nobody sees them before the object is completed."""
    VISIBLE = "visible"
    """Part of a completed object."""


class Fencing(StrEnum):
    """What keeps two writers from both being told that their bytes of one object are stored."""

    LOCK = "lock"
    """A lock on the local file, held until its writer ends."""
    LEASE = "lease"
    """An epoch object, which the store replaces only for those who know its newest version."""
    ADVISORY = "advisory"
    """An epoch object in a store that heeds no conditions: of writers that begin at one moment several are told so."""
    NONE = "none"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How an object is written."""

    # ``"w"`` replaces what is there when the object is completed, ``"x"`` fails if it exists
    mode: Literal["w", "x"] = "w"
    # Replace this version only, by its ETag, where the store can tell at the moment of publishing
    if_match: str | None = None
    when_replaced: str | None = None  # What the error says to do where that version is there no more
    # Size of the first parts of an upload, a whole number of MiB. An object smaller than one part is a single request
    part_bytes: int = 5 * MiB
    # Parts double every 500 parts up to this size, if it is above `part_bytes`. 10,000 parts of the default reach 0.5
    # TiB, 1 GiB reaches 5 TiB
    max_part_bytes: int = 64 * MiB
    # Keep all parts at `part_bytes`, for stores that ask for it (Cloudflare R2). An object can then have at most 10,000
    # times `part_bytes`
    equal_parts: bool = False
    # Bytes of parts being sent at one time, twelve parts at first; at least one part is, whatever its size
    max_bytes_in_flight: int = 60 * MiB
    # Seconds that an upload waits after a part was sent whole and not answered before other bytes are sent under that
    # number, unless the store lists it: a store is taken to have dropped by then what has not arrived
    undecided_grace: float = 60.0
    # Local files: write to ``NAME.<random>.partial`` instead of ``NAME.partial``, so that neither stands in the way of
    # the other
    private_partial: bool = False
    # Local files: replace a ``NAME.partial`` that a dead writer left. One that a living writer holds is never replaced
    overwrite_partial: bool = False
    # Uploads: what the epoch object beside the object is to say, so that bytes are stored for its holder alone
    # (`io.upload.lease`); None for no such object
    lease: LeaseTerms | None = None
    # Local files: what others than the owner may do with it, at most, as `os.chmod` takes it; None for what the umask
    # leaves
    permissions: int | None = None

    def __post_init__(self) -> None:
        """Refuse what could only fail later, in the middle of an upload."""
        if self.mode not in ("w", "x"):
            raise ValueError(f'mode is "w" or "x", not {self.mode!r}')
        for name in ("part_bytes", "max_part_bytes"):
            size = getattr(self, name)
            if size % MiB or not MiB <= size <= 5 * GiB:
                raise ValueError(f"{name} is a whole number of MiB, at most 5 GiB, not {size:,} bytes")
        if self.max_bytes_in_flight < 1:
            raise ValueError(f"max_bytes_in_flight is at least 1, not {self.max_bytes_in_flight:,}")
        if not self.undecided_grace >= 0:
            raise ValueError(f"undecided_grace is not below 0 seconds, and {self.undecided_grace} is not that")


DEFAULT_SINK_OPTIONS = SinkOptions()


class ObjectSink(Protocol):
    """The bytes of one object, appended in order; nobody sees them before `complete`.

    One task uses a sink. It ends with exactly one of `complete`, `abort` and `keep`; `abort` and `keep` may
    also follow a `complete` that failed, and do nothing after one that succeeded. None of the three leaves a
    task behind, and a cancellation that arrives while one of them runs is raised when it is done.
    """

    @property
    @abstractmethod
    def position(self) -> int:
        """Bytes accepted so far: the absolute offset of the next one."""

    @property
    @abstractmethod
    def num_bytes_stored(self) -> int:
        """Bytes from the beginning, without a gap, that survive a kill of this process; none after `abort`."""

    @abstractmethod
    async def write(self, *buffers: Buffer) -> None:
        """Append the buffers, waiting while too many bytes are in flight.

        Every buffer is accepted, in `position`, even when the call is cancelled while it waits. The sink may
        keep the buffers, uncopied, until it ends: they must not change.

        Raises:
            StoreError: This or an earlier write failed; every later call fails likewise.
            WriterClosedError: The sink has ended.
        """

    @property
    def num_bytes_copied(self) -> int:
        """Bytes that the store copied itself from other objects."""
        return 0

    def expect_copy(self, store: object, source: ObjectInfo, start: int, place: ByteRange) -> None:
        """Note that bytes to come are those of another object from `start` on, which the store may copy itself."""
        # They are written all the same: only some parts may be copied, or none.
        return

    def mark(self) -> None:
        """Note that what was written so far is whole by itself: if anything is stored, that much of it is."""
        # To be called once, before anything was committed. A sink whose bytes are stored as they come needs no mark.
        return

    @abstractmethod
    async def commit(self, *, wait: bool = True) -> StoredState:
        """Make all that was written as durable as this store can, and say how durable that is.

        What was written so far becomes what anyone would find who completed the object now.

        Args:
            wait: Return only when it is done. Otherwise a sink that has to wait for a store goes on by itself, and
                `num_bytes_stored` tells when it is done; while it is at work, further calls that do not wait ask
                for nothing.
        """

    @property
    def num_bytes_resent(self) -> int:
        """Bytes that were sent more than once so far, since commits needed them; retries are not counted."""
        return 0

    @property
    def can_store(self) -> bool:
        """Whether `commit` makes bytes survive this process before the object is complete."""
        return True

    @property
    def needs_loop(self) -> bool:
        """Whether its methods have to be awaited in an event loop; else `cancellation.in_one_hop` may have them run."""
        return True

    @property
    def stored_as_written(self) -> bool:
        """Whether all bytes that were written can be found again as they are; a commit is against a power loss then."""
        # Otherwise nothing can be read of an object that is not complete, and a commit belongs behind something whole.
        return False

    @property
    def commit_seconds(self) -> float:
        """Seconds that the newest commit took of those that were not waited for and are done."""
        return 0.0

    @property
    def commit_cost(self) -> int:
        """Bytes of what is written now that a commit would cause to be sent once more."""
        return 0

    @abstractmethod
    async def complete(self) -> ObjectInfo:
        """Publish the object.

        Raises:
            AlreadyExistsError: ``mode="x"``, and the object exists.
            StoreError: Nothing was published; `abort` or `keep` is still to be called.
        """

    @abstractmethod
    async def abort(self) -> None:
        """Leave nothing behind."""

    @abstractmethod
    async def keep(self) -> None:
        """Publish nothing, but leave what is stored where `describe` says, and let go of files and tasks."""

    @abstractmethod
    def describe(self) -> str:
        """Where what was kept can be found: the path of ``NAME.partial``, or the key and upload id."""

    @property
    def published(self) -> ObjectInfo | None:
        """What `complete` published, even where it could not say so since it was cancelled; None until then."""
        return None

    @property
    def in_doubt(self) -> bool:
        """Whether the store may have published the object without saying so: what was sent is never removed then."""
        return False

    @property
    def upload_id(self) -> str | None:
        """The id of the open upload that the bytes go to; None where there is none."""
        return None

    @property
    def fencing(self) -> Fencing:
        """What keeps others from being told that their bytes of this object are stored."""
        return Fencing.NONE

    def rescue_command(self) -> str | None:
        """The command that makes an object of what was kept; None where nothing is."""
        return None


def pieces_of(data: Sequence[Buffer] | Buffer) -> list[memoryview]:
    """One or many buffers as flat views of bytes, empty ones left out, without copying."""
    buffers = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
    return [view for buffer in buffers if (view := memoryview(buffer).cast("B")).nbytes]
