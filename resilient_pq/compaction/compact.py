"""`compact`: many files become few, and each row is in the outputs once, whatever happens. An async shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from resilient_pq.bulk.run_listing import scope_of
from resilient_pq.bulk.run_tasks import refuse_overlap, resolve_folder
from resilient_pq.compaction.compaction_plan import Limits
from resilient_pq.compaction.compaction_run import Compaction, CompactionRun, Progress, RunOptions
from resilient_pq.compaction.source_listing import SourceListing
from resilient_pq.dataset.file_listing import Source
from resilient_pq.errors import SchemaError
from resilient_pq.io import WRITING, RetryPolicy, Stores, with_retry
from resilient_pq.io.resolve import Location
from resilient_pq.tables.file_table import TableSettings
from resilient_pq.units import MiB
from resilient_pq.writer.option_checks import parity_share, whole_number


async def compact(
    src: Source | Sequence[Source],
    dst: Location,
    *,
    target_bytes: int = 512 * MiB,
    copy_bytes: int = 8 * MiB,
    row_group_bytes: int = 64 * MiB,
    parity: float | str | None = None,
    table: TableSettings | None = None,
    remove_sources: bool = False,
    dry_run: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    dst_storage_options: Mapping[str, Any] | None = None,
    retry: RetryPolicy | None = None,
    progress: Progress | None = None,
) -> Compaction:
    """Make few files of many. Large row groups are copied as bytes, small ones are decoded and written together.

    Rows keep their order. Files of one hive partition (``day=1/``) become files of that partition. Checksums of what is
    copied are compared with what the footers of the sources say; page indexes, bloom filters and sort orders go along,
    and outputs have the records and checkpoints of every file of ours. Parity is made anew where a source has some.

    The plan is kept below `dst`, in ``_compact/``, before the first output is written. A run that was interrupted goes
    on by it when it is called again, several runs at one time carry out one plan, and a source that was taken once is
    not taken again: called again, this takes only files that have come since. `dst` has every row once when this
    returns, and some of them before. It lies outside of `src`, since a reader of both would see rows twice.

    Args:
        src: A folder, with its ``*.parquet`` files at any depth; a pattern; or a list of files. As of `open_many`.
        dst: The folder of the outputs.
        target_bytes: Bytes of an output, about.
        copy_bytes: Bytes from which on a row group is copied as it is.
        row_group_bytes: Bytes in memory of the row groups that are made of small ones.
        parity: Parity inside the outputs, as of `create`; None for that of the sources.
        table: An `IcebergTable` or a `DeltaTable` that has the sources: they are replaced in it by the outputs, at
            once and exactly once, when these were read back and are sound. Its readers see every row once at any time.
        remove_sources: Remove the sources, and parity beside them, when all outputs were read back and are sound. Row
            groups without checksums are decoded before they are copied, then.
        dry_run: Write nothing; the result says what would be done.
        storage_options: Credentials, endpoint and so on for `src`, as fsspec and pandas take them.
        dst_storage_options: The same for `dst`; None means those of `src`.
        retry: How long requests are tried again while a store that a URL leads to does not answer; None is 120 s.
        progress: Called now and then with the bytes of the sources that are done, and all that there are.

    Raises:
        SchemaError: The schemas of two files differ in more than `open_many` allows; or a setting is out of range.
        NotFoundError: There is no such file.
        FormatError: A source is damaged; it names the file. Nothing was removed, and no output has rows of it.
        RecoveryError: `dst` is `src`, or below or above it; a source was changed after it was taken; or an output is
            not sound when it is read back.
        AlreadyExistsError: An output's name is taken by something else.
        StoreError: A store refused.

    Warns:
        IncompleteFileWarning: A source is a checkpoint of a writer that never finished, or what a recovery could keep
            of one.
    """
    for name, value in (("target_bytes", target_bytes), ("row_group_bytes", row_group_bytes)):
        whole_number(name, value)
    whole_number("copy_bytes", copy_bytes, least=0)
    if parity is not None:
        parity_share("parity", parity)
    if table is not None and not hasattr(table, "connect"):
        raise SchemaError(f"table is {table!r}", hint="it is an rpq.IcebergTable or an rpq.DeltaTable")
    storage_options = with_retry(storage_options, retry)
    apart = dst_storage_options is not None
    reached = with_retry(dst_storage_options, retry) if apart else storage_options
    stores = Stores(storage_options, WRITING)
    dst_stores = Stores(reached, WRITING) if apart else stores
    try:
        scope = scope_of(src, stores)
        output = resolve_folder(dst, dst_stores)
        if scope is not None:
            given = isinstance(dst, tuple) or isinstance(src, tuple)
            refuse_overlap(output, scope, same_names=not given and not apart)
        limits = Limits(target_bytes, copy_bytes, row_group_bytes, parity)
        options = RunOptions(limits, table, remove_sources, dry_run, reached, progress)
        sources = SourceListing(src, stores, output, remove=remove_sources, in_table=table is not None)
        return await CompactionRun(sources, output, options).run()
    finally:
        await stores.close()
        await dst_stores.close()
