"""Options and what is worked out of them are kept for the next file, and never where they may have changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from resilient_pq import WriteOptions, errors
from resilient_pq import sync as rpq

TABLE = pa.table({"a": list(range(100)), "t": ["x", "y"] * 50})


def _codecs(path: Path) -> set[str]:
    row_group = pq.read_metadata(path).row_group(0)
    return {row_group.column(at).compression for at in range(row_group.num_columns)}


def test_the_next_file_has_its_own_options(tmp_path: Path) -> None:
    """Files of one schema by turns, whose options are equal, others, or a dict that was changed."""
    path, by_column = tmp_path / "f.parquet", {"a": "snappy", "t": "gzip"}
    options = WriteOptions(statistics=False)
    for codec, expected in (
        ("snappy", {"SNAPPY"}),
        ("snappy", {"SNAPPY"}),
        ("zstd", {"ZSTD"}),
        (by_column, {"SNAPPY", "GZIP"}),
    ):
        for given in (None, options):
            rpq.write(path, TABLE, compression=codec, options=given)
            assert _codecs(path) == expected
            has_statistics = pq.read_metadata(path).row_group(0).column(0).is_stats_set
            assert has_statistics == (given is None)
    by_column["t"] = "none"
    rpq.write(path, TABLE, compression=by_column)
    assert _codecs(path) == {"SNAPPY", "UNCOMPRESSED"}
    by_column["t"] = "other"
    with pytest.raises(errors.OptionError, match="other"):
        rpq.write(path, TABLE, compression=by_column)


def test_values_that_are_equal_and_of_another_type_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    rpq.write(path, TABLE, compression_level=1)
    with pytest.raises(errors.OptionError, match=r"compression_level is 1\.0"):
        rpq.write(path, TABLE, compression_level=1.0)  # type: ignore[arg-type]
