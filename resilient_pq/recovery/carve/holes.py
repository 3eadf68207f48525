"""Whether bytes between two pages were overwritten, so that all of them are there, or may be deleted. Sans-io."""

from __future__ import annotations

import re

from resilient_pq.damage.page_header_checks import LIMITS, header_at
from resilient_pq.lazy_dataclass import dataclass
from resilient_pq.recovery.carve.range_windows import RangeRequests, RangeWindow

#: A block that was overwritten with one value. Where a header should begin, which has a type and a size, fewer tell.
_ONE_VALUE = re.compile(rb"(.)\1{15}", re.DOTALL)
_ONE_VALUE_AT_START = re.compile(rb"(.)\1{7}", re.DOTALL)
#: Bytes before and behind the place of a missing header that such a block would be in.
_BEFORE, _BEHIND = 16, 48
#: A deletion leaves the front of one page and the end of another between two whole pages.
_MOST_LEFT = 2


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes between two pages that are of no whole page."""

    is_full_length: bool  # Whether as many bytes are there as were written
    num_values: int | None = None  # Of the damaged pages, where their headers lead from its start to its end


def examine_hole(window: RangeWindow, start: int, end: int, largest_page: int) -> RangeRequests[Hole]:
    """Examine a hole: its size, its page headers, and what stands where a header is missing, may prove its length."""
    if end - start > _MOST_LEFT * largest_page:
        return Hole(is_full_length=True)
    at, num_values = start, 0
    while at < end:
        before = max(at - _BEFORE, start)
        data = yield from window.read(before, min(at + LIMITS.max_header, end))
        behind = data[at - before :]
        found = header_at(behind, 0)
        if _ONE_VALUE.search(data[: at - before + _BEHIND] if found is None else behind[: found[1]]):
            return Hole(is_full_length=True)
        if found is None:
            return Hole(is_full_length=_ONE_VALUE_AT_START.match(behind) is not None)
        header, size = found
        detail = header.data_page_header or header.data_page_header_v2
        num_values += detail.num_values if detail is not None else 0
        at += size + header.compressed_page_size
    return Hole(is_full_length=True, num_values=num_values) if at == end else Hole(is_full_length=False)
