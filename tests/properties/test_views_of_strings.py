"""Any table with strings anywhere in it: read with views it has the values that it has without them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

quick = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="session")
def hold(leaf_of: Any, tables: Any, ways: Any, encodings: Any, written: Any, read_back: Any, exact: Any) -> Any:
    kinds = [pa.string(), pa.binary(), pa.large_string(), pa.string(), pa.int32()]

    def check(draw: st.DataObject, max_rows: int) -> None:
        table = draw.draw(tables(max_rows, leaves=[leaf_of(kind) for kind in kinds]))
        way = {**draw.draw(ways), "encodings": draw.draw(encodings(table.schema))}
        data = written([table], table.schema, way)
        plain, views = read_back(data), read_back(data, strings="view")
        assert exact(views) == exact(plain)
        assert "string" not in str(views.schema.types).replace("string_view", "")

    return check


@given(draw=st.data())
@settings(quick, max_examples=6)
def test_views_of_any_table(draw: st.DataObject, hold: Any) -> None:
    hold(draw, 20)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@given(draw=st.data())
@settings(quick)
def test_views_of_many_tables(draw: st.DataObject, hold: Any) -> None:
    hold(draw, 60)
