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
from resilient_pq.reader.read_plan import chunk_read


@dataclass(frozen=True, slots=True)
class Sections:
    """The sections asked for instead of the summary."""

    schema: bool
    row_groups: bool
    chunks: bool
    pages: str | None
    checkpoints: bool

    @property
    def nothing(self) -> bool:
        """Whether only the summary is asked for."""
        return not (self.schema or self.row_groups or self.chunks or self.checkpoints) and self.pages is None


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


def document_of(file: rpq.File, sections: Sections, pages: Sequence[PageFacts] | None) -> dict[str, Any]:
    """The document of a file (docs/json.md), with the sections and the pages asked for."""
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
    return document
