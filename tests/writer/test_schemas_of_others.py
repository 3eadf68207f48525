"""Files that others wrote, copied under their own schemas: what comes back is the schema and the rows."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from corpus_of_others import CORPUS, absent
from sampled import ALL, either

import resilient_pq as rpq
from resilient_pq.errors import ResilientPQError
from resilient_pq.io.memory_store import MemoryStore

#: Not to be copied, and why.
UNLIKE = {
    "unknown-logical-type.parquet": "an annotation that nobody knows cannot be written",
    "large_string_map.brotli.parquet": "two strings of a gigabyte",
}

pytestmark = pytest.mark.filterwarnings("ignore::resilient_pq.IncompleteFileWarning")


def _files() -> list[Path]:
    found = sorted(CORPUS.rglob("*.par*"))
    if not found:
        absent()
    return [path for path in found if path.is_file() and path.name not in UNLIKE and path.stat().st_size < 2**20]


async def _copied(path: Path) -> bool:
    """Compare a copy with its original; whether there is one, or the original cannot be read."""
    store = MemoryStore()
    await store.put("original", path.read_bytes())
    try:
        async with rpq.open((store, "original")) as original:
            schema, rows = original.schema, await original.read()
            if pa.schema(original.arrow_schema).types != pa.schema(rows.schema).types:
                return False  # values that the column's type cannot hold came in a wider one
    except ResilientPQError:
        return False
    async with rpq.create((store, "copy"), schema) as writer:
        await writer.write(rows)
    async with rpq.open((store, "copy")) as copy:
        assert copy.schema == schema, path
        found = pa.table(await copy.read())
    expected = pa.table(rows).cast(found.schema)
    # NaN equals nothing, but its text equals itself.
    assert found.equals(expected) or str(found.to_pydict()) == str(expected.to_pydict()), path
    return True


@pytest.mark.parametrize(("count", "copied"), either([(40, 30)], [(ALL, 1000)]))
async def test_files_of_others(count: int, copied: int) -> None:
    files = _files()
    assert sum([await _copied(path) for path in random.Random(7).sample(files, min(count, len(files)))]) > copied
