"""What values take in memory, and how their levels are spread (parquet.thrift, SizeStatistics).

What follows from the schema and the null count is left out, as the specification lets writers do: histograms of
repetition levels that are all 0, and of definition levels that only tell null from not null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from resilient_pq.format import kernels
from resilient_pq.format.metadata import SizeStatistics
from resilient_pq.format.schema import Leaf
from resilient_pq.format.values import ByteArrays, Levels, Values, is_uniform


@dataclass(frozen=True, slots=True)
class PageSizes:
    """Of one data page.

    Attributes:
        byte_array_bytes: Bytes of its BYTE_ARRAY values, without their lengths; None for other types.
        repetition_levels: How often each level stands in it, from 0 on; empty where it is left out.
        definition_levels: The same of definition levels.
    """

    byte_array_bytes: int | None = None
    repetition_levels: tuple[int, ...] = ()
    definition_levels: tuple[int, ...] = ()


#: Of a page whose schema and null count tell everything.
NO_SIZES: Final = PageSizes()


def page_sizes(
    leaf: Leaf, values: Values, repetition_levels: Levels | None, definition_levels: Levels | None
) -> PageSizes:
    """The sizes of a page with these values and levels."""
    if not isinstance(values, ByteArrays) and leaf.max_repetition_level == 0 and leaf.max_definition_level <= 1:
        return NO_SIZES
    return PageSizes(
        values.num_bytes if isinstance(values, ByteArrays) else None,
        _histogram(repetition_levels, leaf.max_repetition_level) if leaf.max_repetition_level > 0 else (),
        _histogram(definition_levels, leaf.max_definition_level) if leaf.max_definition_level > 1 else (),
    )


def _histogram(levels: Levels | None, maximum: int) -> tuple[int, ...]:
    if levels is None:
        return ()
    if is_uniform(levels):
        return tuple(len(levels) * (level == levels[0]) for level in range(maximum + 1))
    return kernels.level_counts(levels, maximum)


def size_statistics_of(pages: Sequence[PageSizes]) -> SizeStatistics | None:
    """The sizes of a chunk with these pages; None where they say nothing."""
    if all(page is NO_SIZES for page in pages):
        return None
    sizes = [page.byte_array_bytes for page in pages if page.byte_array_bytes is not None]
    repetition = _sums([page.repetition_levels for page in pages])
    definition = _sums([page.definition_levels for page in pages])
    if not sizes and repetition is None and definition is None:
        return None
    return SizeStatistics(sum(sizes) if sizes else None, repetition, definition)


def _sums(histograms: Sequence[tuple[int, ...]]) -> list[int] | None:
    return [sum(counts) for counts in zip(*histograms, strict=True)] or None


def page_histograms(histograms: Sequence[tuple[int, ...]]) -> list[int] | None:
    """The histograms of a chunk's pages one after the other, as a ColumnIndex has them."""
    return [count for histogram in histograms for count in histogram] or None
