"""Recover a damaged Parquet file: ``python scripts/recover.py SRC DST``.

The same as ``rpq recover``, for where there is a checkout of the sources, but the package is not installed. What the
package needs must be installed all the same: numpy, nanoarrow and the others that pyproject.toml names.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent

if find_spec("resilient_pq") is None:
    sys.path.insert(0, str(CHECKOUT))


def main() -> int:
    """Recover, or say which package is missing."""
    try:
        from resilient_pq.cli.main import run_alone  # noqa: PLC0415 (what it needs may be missing)
    except ModuleNotFoundError as error:
        print(f"error       {error.name} is not installed\nhint        pip install {CHECKOUT}", file=sys.stderr)
        return 2
    return run_alone("recover", sys.argv[1:], name="recover.py")


if __name__ == "__main__":
    sys.exit(main())
