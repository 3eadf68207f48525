"""Files of other writers that say more than they hold: what other readers get out of them we get, too."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footers_of_others import chunks_of, footer_of, with_bytes_behind

import resilient_pq as rpq

TABLE = pa.table({"n": [None if i % 7 == 0 else i for i in range(40)], "s": [[f"v{i}"] * (i % 3) for i in range(40)]})
LAYOUTS: list[dict[str, Any]] = [{}, {"write_page_checksum": True}, {"data_page_version": "2.0"}]


def written(table: pa.Table = TABLE, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **{"row_group_size": 20, "store_schema": False, **options})
    return sink.getvalue()


# --- bytes behind the last value ------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"\x00", b"\xff" * 30, bytes(100), b"PAR1"], ids=["byte", "ones", "zeros", "magic"])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_bytes_behind_the_last_value(more: bytes, layout: dict[str, Any], outcome_of: Any) -> None:
    data = with_bytes_behind(written(**layout), more)
    assert pq.read_table(io.BytesIO(data)).equals(TABLE)
    outcome = await outcome_of(data)
    assert isinstance(outcome.read, pa.Table), outcome.read
    assert outcome.read.equals(TABLE)
    assert (outcome.check.outcome, outcome.check.findings) == (rpq.Outcome.SOUND, ())
    assert (outcome.recovery.outcome, outcome.recovery.num_rows) == (rpq.Outcome.SOUND, 40)


async def test_what_is_copied_ends_with_the_last_value(outcome_of: Any) -> None:
    data = bytearray(with_bytes_behind(written(), bytes(100)))
    damaged = chunks_of(footer_of(bytes(data)))[0]
    at = damaged.data_page_offset
    data[at : at + 12] = bytes(12)
    outcome = await outcome_of(bytes(data))
    assert outcome.recovery.kept.rows_lost == 20
    assert pq.read_table(io.BytesIO(outcome.output)).equals(TABLE.slice(20))
    assert sum(chunk.total_compressed_size for chunk in chunks_of(footer_of(outcome.output))) < (
        sum(chunk.total_compressed_size for chunk in chunks_of(footer_of(written()))[2:]) + 10
    )
