"""Any table with strings anywhere in it: read with views it has the values that it has without them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampled import either

quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("max_rows", either([20], [60], 1800))
@given(draw=st.data())
@settings(quick)
def test_views_of_any_table(
    draw: st.DataObject, max_rows: int, leaf_of: Any, tables: Any, ways: Any, encodings: Any, written: Any,
    read_back: Any, exact: Any,
) -> None:  # fmt: skip
    kinds = [pa.string(), pa.binary(), pa.large_string(), pa.string(), pa.int32()]
    table = draw.draw(tables(max_rows, leaves=[leaf_of(kind) for kind in kinds]))
    way = {**draw.draw(ways), "encodings": draw.draw(encodings(table.schema))}
    data = written([table], table.schema, way)
    plain, views = read_back(data), read_back(data, strings="view")
    assert exact(views) == exact(plain)
    assert "string" not in str(views.schema.types).replace("string_view", "")
