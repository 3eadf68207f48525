"""The JSON document of `rpq inspect`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

import resilient_pq as rpq
from resilient_pq.cli.inspect import footer_facts
from resilient_pq.cli.inspect.footer_facts import PageFacts
from resilient_pq.cli.output.verb_output import base_document
from resilient_pq.errors import SchemaError, Where, located
from resilient_pq.format.pages.page import pages_of
from resilient_pq.parity.inline_parity import find_inline
from resilient_pq.parity.pinned_object import PinnedObject
from resilient_pq.reader.read_plan import chunk_read


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections asked for instead of the summary."""

    schema: bool
    row_groups: bool
    chunks: bool
    pages: str | None
    checkpoints: bool
    parity: bool

    @property
    def nothing(self) -> bool:
        """Whether only the summary is asked for."""
        listed = self.schema or self.row_groups or self.chunks or self.checkpoints or self.parity
        return not listed and self.pages is None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A parity group inside a file: its bytes, those of its parity, and how many in a row that rebuilds anywhere."""

    group: int
    num_bytes: int
    parity_bytes: int
    burst_bytes: int


async def groups_of(file: rpq.File) -> list[GroupFacts]:
    """The parity groups inside a file."""
    store, key = file.place
    found = await find_inline(PinnedObject(store, key, file.info))
    return [
        GroupFacts(group.number, group.shape.num_bytes, group.shape.parity_bytes, group.shape.inline_burst_bytes)
        for group in (() if found is None else found.groups)
    ]


async def pages_of_column(file: rpq.File, name: str) -> AsyncIterator[PageFacts]:
    """The pages of a column, chunk by chunk."""
    leaf = file.schema.leaf_named(name)
    if leaf is None:
        names = [leaf.column_path for leaf in file.schema.leaves]
        raise SchemaError(
            f"there is no column {name!r}", where=Where(key=file.url), hint=f"columns: {', '.join(names)}"
        )
    with located(Where(key=file.url)):
        chunks = [chunk_read(file.contents, ordinal, leaf) for ordinal in range(file.num_row_groups)]
        await file.objects.pin(chunk.file for chunk in chunks)
        places = [file.objects.place_of(chunk) for chunk in chunks]
        async with aclosing(file.objects.fetch_places(places, in_order=True)) as arriving:
            async for ordinal, data in arriving:
                chunk = chunks[ordinal]
                with located(chunk.where.merged_with(Where(key=file.objects.url_of(chunk.file)))):
                    for page in pages_of(data, chunk.range.start):
                        yield footer_facts.page_of(ordinal, page)


def document_of(
    file: rpq.File,
    sections: Sections,
    pages: Sequence[PageFacts] | None,
    groups: Sequence[GroupFacts] | None = None,
) -> dict[str, Any]:
    """The document of a file (docs/json.md), with the sections, the pages and the parity groups asked for."""
    document = base_document("inspect", "read", rows=file.num_rows, url=file.url)
    document |= footer_facts.summary_of(file.contents, file.info.size)
    document["schema"] = str(file.schema)
    document["columns"] = [asdict(column) for column in footer_facts.columns_of(file.contents)]
    document["checkpoints"] = [asdict(checkpoint) for checkpoint in file.checkpoints]
    if sections.row_groups:
        document["row_group_list"] = [asdict(group) for group in footer_facts.row_groups_of(file.contents)]
    if sections.chunks:
        document["chunks"] = [asdict(chunk) for chunk in footer_facts.chunks_of(file.contents)]
    if pages is not None:
        document["pages"] = [asdict(page) for page in pages]
    if groups is not None:
        document["parity"] = [asdict(group) for group in groups]
    return document
