"""Carving: rebuilding the footer of a file from its pages, where nothing else is left.

`find_files` searches bytes for pages and the files that they belong to; `carve` lays the pages of a file out in columns
and row groups. Both are sans-io: generators that ask for ranges of bytes.
"""

from resilient_pq.recovery.carve.carve_limits import CarveLimits
from resilient_pq.recovery.carve.carving import carve
from resilient_pq.recovery.carve.file_spans import FoundFile, find_files
from resilient_pq.recovery.carve.invented_columns import NamedColumn

__all__ = ["CarveLimits", "FoundFile", "NamedColumn", "carve", "find_files"]
