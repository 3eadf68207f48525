"""Settings of the reader that can never work are refused where they are made."""

from __future__ import annotations

from typing import Any

import pytest

import resilient_pq as rpq


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_threads": 0}, "max_threads is 0"),
        ({"max_threads": "2"}, "max_threads is '2'"),
        ({"coerce_int96_timestamp_unit": "ns"}, "coerce_int96_timestamp_unit is 'ns'"),
    ],
)
def test_settings_out_of_range(given: dict[str, Any], message: str) -> None:
    with pytest.raises(rpq.SchemaError, match=message):
        rpq.ReadOptions(**given)


def test_options_of_the_other_side() -> None:
    with pytest.raises(rpq.SchemaError, match="open takes ReadOptions"):
        rpq.open("x.parquet", options=rpq.WriteOptions())  # type: ignore[arg-type]
    with pytest.raises(rpq.SchemaError, match="takes WriteOptions"):
        rpq.create("x.parquet", options=rpq.ReadOptions())  # type: ignore[arg-type]
