"""Carving: the rung of the ladder for files that left no trace but their pages.

`find_files` searches bytes for pages and says what files they seem to be of; `carve` lays the pages of one out in
columns and row groups, which is to rebuild its footer. Both are sans-io: generators that ask for ranges of bytes.
"""

from resilient_pq.recovery.carve.carve_limits import CarveLimits
from resilient_pq.recovery.carve.carving import carve
from resilient_pq.recovery.carve.file_spans import FoundFile, find_files
from resilient_pq.recovery.carve.invented_columns import NamedColumn

__all__ = ["CarveLimits", "FoundFile", "NamedColumn", "carve", "find_files"]
