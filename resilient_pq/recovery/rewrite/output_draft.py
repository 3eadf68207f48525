"""A file that is laid out for an output, and read again on the way; what does not hold is never published. A shell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from resilient_pq.byte_ranges import ByteRange
from resilient_pq.encryption.encryption import Encryption
from resilient_pq.errors import FormatError, RecoveryError, UnsupportedError, Where
from resilient_pq.format.crypto.file_cipher import FileCipher
from resilient_pq.format.crypto.sealed_footer import SealedFooter, open_chunks, plain_record, read_sealed_footer
from resilient_pq.format.file_metadata import StoredSortingColumn
from resilient_pq.format.footer import TAIL_SIZE, Footer, NeedBytes, read_footer
from resilient_pq.format.pages.chunk_encoder import EncodedChunk
from resilient_pq.format.pages.chunk_read import ChunkRead
from resilient_pq.format.pages.page_table import PageTable
from resilient_pq.format.quirks import Quirks
from resilient_pq.format.schema_tree import Leaf
from resilient_pq.io import ObjectInfo, ObjectSink, ReadStore
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.off_event_loop import AT_ONCE, off_loop
from resilient_pq.reader.contents import Contents, FileState
from resilient_pq.reader.decoder import decode
from resilient_pq.reader.read_plan import chunk_read
from resilient_pq.recovery.damaged_object import DamagedObject
from resilient_pq.writer.file_layout import Buffers, FileLayout

_TAIL_BYTES = 64 * 1024  # Bytes read of the end of a file for its footer, at first


@dataclass(frozen=True, slots=True)
class _Placed:
    """A chunk that was pushed: where it lies, and its entries."""

    place: ByteRange
    num_values: int


class Draft:
    """Lays a file out into a sink, and reads again what it pushes."""

    def __init__(
        self, sink: ObjectSink, layout: FileLayout, *, created_by: str | None, encryption: Encryption | None = None
    ) -> None:
        """Prepare to lay out; `encryption` is how that encrypts, if it does."""
        self._encryption = encryption
        self._sink = sink
        self._layout = layout
        self._quirks = Quirks.of(created_by)
        self._first = len(layout.row_groups)
        self._chunks: list[_Placed] = []
        self._row_groups: list[tuple[int, list[_Placed]]] = []

    @property
    def leaves(self) -> Sequence[Leaf]:
        """The columns of the file."""
        return self._layout.schema.leaves

    async def start(self) -> None:
        """Push the first bytes of the file."""
        await self._push(self._layout.start())

    async def chunk(
        self,
        leaf: Leaf,
        chunk: EncodedChunk,
        num_rows: int,
        *,
        is_copy: bool,
        origin: tuple[ReadStore, ObjectInfo, int] | None = None,
    ) -> None:
        """Push the next column chunk; `origin` is where its bytes lie already, in a version of another object."""
        ordinal, sealing = len(self._layout.row_groups), self._layout.sealing
        stored, place = chunk, ByteRange(0, chunk.size)
        parts = [memoryview(part).cast("B") for part in chunk.buffers]
        if sealing is not None:
            stored, origin = await off_loop(AT_ONCE + 1, partial(sealing.chunk, chunk, ordinal, leaf.ordinal)), None
        pushed = self._layout.chunk(stored)
        if sealing is None:
            place = ByteRange(self._layout.offset - chunk.size, self._layout.offset)
            parts = [memoryview(part).cast("B") for part in pushed[1:]]
        read = ChunkRead(ordinal, leaf, chunk.metadata, place, num_rows, quirks=self._quirks)
        pieces = len(chunk.header_crcs) if is_copy else AT_ONCE + 1
        try:
            await off_loop(pieces, partial(_read_again, read, parts, is_copy=is_copy))
        except (FormatError, UnsupportedError) as error:
            raise _refused(error.message, read.where) from error
        place = ByteRange(self._layout.offset - stored.size, self._layout.offset)
        self._chunks.append(_Placed(place, stored.metadata.num_values))
        if origin is not None:
            self._sink.expect_copy(*origin, place)
        await self._push(pushed)

    async def end_row_group(self, num_rows: int, sorting_columns: Sequence[StoredSortingColumn] = ()) -> None:
        """Complete the row group of the chunks that were pushed."""
        end = partial(self._layout.end_row_group, num_rows, sorting_columns=list(sorting_columns) or None)
        await self._push(await off_loop(len(self._chunks), end))
        self._row_groups.append((num_rows, self._chunks))
        self._chunks = []

    async def checkpoint_if_due(self, num_bytes: int) -> None:
        """Push a checkpoint behind so many bytes without one."""
        if self._layout.offset - self._layout.checkpoint_end > num_bytes + 10 * self._layout.next_checkpoint_bytes:
            await self._push(await off_loop(len(self._layout.row_groups), self._layout.checkpoint))

    async def finish(self, extra: dict[str, str], num_rows: int, state: FileState = FileState.SALVAGED) -> None:
        """Push the last bytes of the file, and open it."""
        num_chunks = len(self._layout.row_groups) * len(self._layout.schema.leaves)
        buffers = await off_loop(num_chunks, partial(self._layout.finish, state=state, extra=extra))
        await self._push(buffers)
        await off_loop(num_chunks, self._check_footer, buffers, num_rows)

    def _check_footer(self, buffers: Buffers, num_rows: int) -> None:
        """Open the file as a reader does, by the last bytes that were pushed."""
        tail = memoryview(b"".join(bytes(buffer) for buffer in buffers))
        start = self._sink.position - len(tail)
        encryption = self._encryption
        last = read_footer(tail, start) if encryption is None else _sealed_footer_in(tail, start, encryption)
        contents = _opened(last, num_rows)
        if not contents.verified:
            raise _refused("no record vouches for the footer", Where())
        placed = [None] * self._first + self._row_groups
        for ordinal, (group, expected) in enumerate(zip(contents.metadata.row_groups, placed, strict=True)):
            chunks = [chunk_read(contents, ordinal, leaf) for leaf in contents.schema.leaves]
            found = [_Placed(chunk.range, chunk.metadata.num_values) for chunk in chunks if chunk.metadata.num_values]
            if expected is None:
                continue  # it stays where it was read
            rows, wanted = expected
            if group.num_rows != rows or found != [chunk for chunk in wanted if chunk.num_values]:
                raise _refused("its footer says something else than what was written", Where(row_group=ordinal))

    async def _push(self, buffers: Buffers) -> None:
        await self._sink.write(*(memoryview(buffer).cast("B") for buffer in buffers))


def _sealed_footer_in(tail: memoryview, start: int, encryption: Encryption) -> Footer | NeedBytes:
    """The footer of an encrypted file, whose last bytes begin at an offset."""
    sealed = read_sealed_footer(tail, start)
    if not isinstance(sealed, SealedFooter):
        raise _refused("its footer is not encrypted", Where())
    cipher = FileCipher.of(sealed.algorithm, encryption.footer_key, encryption.aad_prefix)
    cipher.take_column_keys(encryption.column_keys)
    metadata = sealed.metadata(cipher)
    list(open_chunks(metadata.row_groups, cipher))
    record = sealed.record and plain_record(sealed.record, b"", metadata)
    return Footer(metadata, sealed.start, len(sealed.payload) - TAIL_SIZE, record)


async def check_end(source: DamagedObject, end: int, num_rows: int) -> None:
    """Hold that a file that ends at some offset of a source can be opened, and has so many rows."""
    start = max(end - _TAIL_BYTES, 0)
    found: Footer | NeedBytes = NeedBytes(start)
    while isinstance(found, NeedBytes):
        start = found.start
        try:
            found = read_footer(await source.read(ByteRange(start, end)), start)
        except FormatError as error:
            raise _refused(error.message, error.where) from error
    _opened(found, num_rows)


async def ends_well(source: DamagedObject, end: int, num_rows: int) -> bool:
    """Whether a file that ends at some offset of a source can be opened, and has so many rows."""
    try:
        await check_end(source, end, num_rows)
    except RecoveryError:
        return False
    return True


def _opened(found: Footer | NeedBytes, num_rows: int) -> Contents:
    assert isinstance(found, Footer)  # all of it is at hand
    try:
        contents = Contents.of(found)
    except FormatError as error:
        raise _refused(error.message, error.where) from error
    if contents.num_rows != num_rows:
        raise _refused(f"it has {contents.num_rows:,} rows, and {num_rows:,} are kept", Where())
    return contents


def _read_again(chunk: ChunkRead, parts: Sequence[memoryview], *, is_copy: bool) -> None:
    """Read a chunk as a reader of the output does."""
    data = parts[0] if len(parts) == 1 else memoryview(b"".join(parts))
    table = PageTable.read(data, chunk.range.start, chunk.num_values_to_read)
    last = table.page(len(table.rows) - 1) if table.rows else None
    if table.num_entries != chunk.metadata.num_values or len(data) != chunk.metadata.total_compressed_size:
        raise FormatError(f"its pages have {table.num_entries:,} values instead of {chunk.metadata.num_values:,}")
    if (0 if last is None else last.end - chunk.range.start) != len(data):
        raise FormatError("its pages end elsewhere than it does")
    if not is_copy:
        decode(chunk, data, verify=False)
    elif not chunk.leaf.max_repetition_level and table.num_entries != chunk.num_rows:
        raise FormatError(f"the pages hold {table.num_entries:,} rows instead of {chunk.num_rows:,}")


def _refused(why: str, where: Where) -> RecoveryError:
    return RecoveryError(
        f"what was recovered cannot be read again: {why}; nothing was published",
        where=where,
        hint="this is a fault of resilient_pq: please report it, with the file if you may",
    )
