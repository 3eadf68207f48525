"""`convert`: a file of another format into resilient Parquet, as a stream. An async shell."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any, Final, Literal, Unpack

from resilient_pq.arrow.batch_ingest import Batch
from resilient_pq.arrow.leaf_rows import ShreddedRows
from resilient_pq.damage.on_damage import OnDamage
from resilient_pq.errors import (
    FormatError,
    NothingToRecoverError,
    RowsLostError,
    SchemaError,
    TornFileError,
    UnsupportedError,
    Where,
    located,
)
from resilient_pq.format.schema_tree import Schema, Selection
from resilient_pq.io import WRITING, ReadStore, RetryPolicy, WriteStore, place_of, with_retry
from resilient_pq.io.output_target import Target, check_free, check_other
from resilient_pq.io.resolve import Opening
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.reader.opening import open
from resilient_pq.reader.read_options import ReadOptions
from resilient_pq.recovery.report import Damage, Finding, Kept, LostRegion, Outcome, Report
from resilient_pq.recovery.verification.findings import Progress
from resilient_pq.shell_commands import command
from resilient_pq.trevni.blocks.row_windows import needed_columns
from resilient_pq.trevni.blocks.trevni_metadata import text_metadata
from resilient_pq.trevni.trevni_source import KeptRows, RowStream, TrevniSource, given_schema, open_source
from resilient_pq.writer.creation import new_file
from resilient_pq.writer.file_writer import Writer
from resilient_pq.writer.option_keywords import StreamKeywords, known_options, takes_options
from resilient_pq.writer.write_options import EncoderOptions

VERB: Final = "convert"


@takes_options(StreamKeywords)
async def convert(
    src: str | os.PathLike[str] | tuple[ReadStore, str],
    dst: str | os.PathLike[str] | tuple[WriteStore, str],
    *,
    columns: Sequence[str] | None = None,
    schema: Schema | str | None = None,
    on_damage: Literal["drop", "null", "raise"] = "drop",
    verify: bool = True,
    overwrite: bool = False,
    read_options: ReadOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
    **options_given: Unpack[StreamKeywords],
) -> Report:
    """Write the rows of a Trevni file, Parquet's ancestor, to a resilient Parquet file.

    Rows are streamed: blocks are read by byte range, a batch of rows at a time, and what is on its way is bounded by
    `ReadOptions.memory_budget` and the row group, or by one block of each column where these are larger. The schema is
    the one that the file has in its metadata, or what the names and levels of its columns tell; its own metadata go
    into the footer's, under their own keys. Where the file has no checksums nothing tells changed values from others.

    Args:
        src: The Trevni file: a URL, a path, or a pair of a store and a key in it. It is only read.
        dst: Where the Parquet file goes.
        columns: Names of the top-level columns wanted, in their order; None is all.
        schema: A Parquet schema, or its text, of the same columns in the same order, for files with definition and
            repetition levels whose nesting these leave open.
        on_damage: What is done with rows of which a value is lost, in a block that is damaged or cut off: "drop" leaves
            them out, in every column; "null" makes columns that may be null null in them; "raise" writes nothing.
        verify: Compare every checksum that the file has.
        overwrite: Replace an object that is at `dst`.
        **options_given: How the Parquet file is written: `StreamKeywords`, as of `create`.
        read_options: How to read.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 30 s for
            reading, and 120 s for writing.
        progress: Called now and then with the rows that are done and those that there are.

    Returns:
        The report: its outcome is "sound" (all rows are there), "recovered" (all rows, though something is odd), or
        "partial" (rows or values are lost).

    Raises:
        NothingToRecoverError: Not one row can be kept; nothing was written.
        RowsLostError: Rows or values are lost, and `on_damage` is "raise"; nothing was written.
        RecoveryError: `src` and `dst` are the same object.
        AlreadyExistsError: There is an object at `dst`, and `overwrite` is False.
        SchemaError: There is no such column or `on_damage`; `schema` is not that of the file, or it needs one.
        FormatError: `src` is no Trevni file.
        StoreError: A store refused; nothing was published.
    """
    storage_options = with_retry(storage_options, retry)
    if dst_storage_options is not None:
        dst_storage_options = with_retry(dst_storage_options, retry)
    policy = OnDamage.named(on_damage, [OnDamage.DROP, OnDamage.NULL, OnDamage.RAISE])
    given = given_schema(schema)
    options = EncoderOptions(**known_options(convert, options_given), on_error="abort")
    dst_options = storage_options if dst_storage_options is None else dst_storage_options
    reached = place_of(dst, dst_options, retry=WRITING)
    async with place_of(src, storage_options) as (store, key), reached as (dst_store, dst_key):
        target = Target(dst_store, dst_key, overwrite)
        await check_other(store.address_of(key), target)
        await check_free(target)
        with located(Where(key=store.url_of(key))):
            source = await _open_source(store, key, given, read_options or ReadOptions(), policy)
            selected, out_schema = _select_columns(source, columns)
        options = replace(options, metadata=text_metadata(source.header.metadata))
        if options.write.permissions is None:
            options = replace(options, options=replace(options.write, permissions=source.info.permissions))
        creation = new_file(
            (target.store, target.key), None, schema=out_schema, options=options, mode="w" if overwrite else "x"
        )
        stream = RowStream(source, selected, policy, verify, keep_empty=False)
        conversion = _Conversion(source, stream, out_schema, verify)
        await _write(conversion, creation, policy, progress)
        keys = {} if options.encryption is None else options.encryption.reading()
        async with open((target.store, target.key), **keys) as file:
            return conversion.report(Kept(file.url, file.num_rows, 0, 0), file.num_row_groups)


def _select_columns(source: TrevniSource, columns: Sequence[str] | None) -> tuple[tuple[Selection, ...], Schema]:
    """The columns wanted, and the schema of the output."""
    whole = source.layout.schema
    selected = tuple(whole.select(columns))
    for column in selected:
        if column != whole.columns[column.position]:
            raise SchemaError(f"only whole columns are converted, and of {column.node.name!r} a part is wanted")
    if not selected:
        raise UnsupportedError("there is no column to convert")
    return selected, Schema(replace(whole.root, children=tuple(column.node for column in selected)))


async def _open_source(
    store: ReadStore, key: str, schema: Schema | None, options: ReadOptions, policy: OnDamage
) -> TrevniSource:
    """The file, its header and its tables read."""
    try:
        return await open_source(store, key, schema=schema, options=options)
    except FormatError as error:
        if policy is OnDamage.RAISE:
            raise
        url, size = store.url_of(key), (await store.head(key)).size
        damage = Damage.TORN if isinstance(error, TornFileError) else Damage.FOREIGN
        where = error.where.merged_with(Where(key=url))
        report = Report(
            verb=VERB,
            url=url,
            outcome=Outcome.NOTHING,
            num_rows=0,
            size=size,
            findings=(Finding(damage, error.message, where),),
            kept=Kept(None, 0, 0, None, (LostRegion(0, size, None, damage, error.message, where),)),
        )
        raise NothingToRecoverError(f"nothing to convert: {error.message}", report=report) from error


@dataclass(frozen=True, slots=True)
class _Conversion:
    """A conversion: its source, its rows and its schema, and its report."""

    source: TrevniSource
    stream: RowStream
    schema: Schema
    verify: bool

    def batch(self, rows: KeptRows) -> Batch:
        """Rows as the writer takes them."""
        pairs = zip(self.schema.leaves, self.stream.leaves, strict=True)
        return Batch.of([ShreddedRows(out, rows.leaves[leaf.ordinal]) for out, leaf in pairs], rows.num_rows)

    def report(self, kept: Kept, num_row_groups: int) -> Report:
        """The report, where all rows were read."""
        lost = self.stream.regions()
        findings = [
            Finding(
                region.damage,
                region.reason,
                region.where,
                region.start,
                region.end,
                costs_rows=bool(region.num_rows or region.num_nulled),
            )
            for region in lost
        ]
        findings += [
            Finding(Damage.UNVERIFIED, note, Where(key=self.source.url), costs_rows=False)
            for note in (*self.source.notes, *self._unverified())
        ]
        outcome = Outcome.RECOVERED if findings else Outcome.SOUND
        if self.stream.num_lost or self.stream.num_nulled:
            outcome = Outcome.PARTIAL if kept.output is not None else Outcome.NOTHING
        return Report(
            verb=VERB,
            url=self.source.url,
            outcome=outcome,
            num_rows=kept.num_rows,
            num_row_groups=num_row_groups,
            size=self.source.info.size,
            findings=tuple(findings),
            next=() if kept.output is None else (command("check", kept.output),),
            schema=str(self.schema),
            kept=replace(kept, rows_lost=self.stream.num_lost, lost=lost),
        )

    def _unverified(self) -> Iterator[str]:
        """Columns and blocks whose values no checksum covers."""
        if not self.verify or not self.source.num_rows:
            return
        columns = needed_columns(self.source.layout.sources[leaf.ordinal] for leaf in self.stream.leaves)
        bare = sum(not self.source.header.columns[position].checksum.size for position in columns)
        if bare:
            yield f"{bare:,} of {len(columns):,} columns have no checksums: nothing vouches for their values"
        unverified = self.stream.unverified
        if unverified:
            yield (
                f"the checksums of {sum(unverified.values()):,} blocks in {len(unverified):,} columns are those of no"
                " bytes, as Avro's writer leaves them with the null codec: nothing vouches for their values"
            )


async def _write(
    conversion: _Conversion, creation: Opening[Writer], policy: OnDamage, progress: Progress | None
) -> None:
    """Write and publish the kept rows; nothing if there are none of a file with rows."""
    source, arriving = conversion.source, conversion.stream.windows()
    async with AsyncExitStack() as stack, aclosing(arriving):
        writer = None if source.num_rows else await stack.enter_async_context(creation)
        try:
            async for rows in arriving:
                if rows.num_rows:
                    if writer is None:
                        writer = await stack.enter_async_context(creation)
                    await writer.write(conversion.batch(rows))
                if progress is not None:
                    progress(rows.end, source.num_rows)
        except FormatError as error:
            if policy is not OnDamage.RAISE:
                raise
            hint = "on_damage may be drop or null"
            raise RowsLostError(f"rows would be lost: {error.message}", where=error.where, hint=hint) from error
        if writer is None:
            report = conversion.report(Kept(None, 0, 0, 0), 0)
            hint = "leave out the columns that are damaged: columns=, or --columns"
            raise NothingToRecoverError(
                "nothing to convert: no row is whole", report=report, where=Where(key=source.url), hint=hint
            )
