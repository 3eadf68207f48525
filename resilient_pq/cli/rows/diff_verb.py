"""`rpq diff`: whether two files, or folders, have the same columns, metadata and rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

import nanoarrow
import numpy as np
import typer
from numpy.typing import NDArray

import resilient_pq as rpq
from resilient_pq.arrow.types.field import Field
from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.cli.input.input_rows import metadata_of
from resilient_pq.cli.output import text_rows, wording
from resilient_pq.cli.output.verb_output import Output
from resilient_pq.cli.rows.row_source import open_rows
from resilient_pq.cli.running import verb

#: Rows that are compared at one time, and different values that are shown.
_BATCH_ROWS = 65_536
_SHOWN = 10
_Difference = dict[str, Any]


@verb(
    "diff",
    "both have the same columns, metadata and rows",
    "they differ, or one of them is damaged",
    "rpq diff flights.parquet recovered.parquet",
    "rpq diff s3://bucket/flights/ flights/ --json",
    nothing="one of them is not a Parquet file",
    about=lambda given: [given["one"], given["two"]],
)
async def diff(
    output: Output,
    one: Annotated[str, typer.Argument(metavar="A", help="A file, a folder or a pattern: a path or a URL.")],
    two: Annotated[str, typer.Argument(metavar="B", help="What it is compared with.")],
) -> int:
    """Compare two files: schema, metadata, number of rows, values.

    Rows are compared by their position, and columns by their names; how values are encoded, compressed and cut into
    row groups does not count. NaN equals NaN. Both are streamed, a batch at a time.
    """
    async with open_rows(output, [one]) as ours, open_rows(output, [two]) as theirs:
        found: dict[str, list[_Difference]] = {"schema": _schema(ours, theirs), "metadata": _metadata(ours, theirs)}
        _show(output, found)
        if ours.num_rows != theirs.num_rows:
            output.line("rows", f"{ours.num_rows:,} -> {theirs.num_rows:,}")
        counts, first = await _values(output, ours, theirs)
    for each in first:
        output.line("value", f"row {each['row']:,}, {each['column']}: {_json(each['a'])} -> {_json(each['b'])}")
    for name, number in counts.items():
        output.line("column", f"{name}: {wording.counted(number, 'different value')}")
    same = not (found["schema"] or found["metadata"] or counts) and ours.num_rows == theirs.num_rows
    if same:
        output.line("same", wording.counted(ours.num_rows, "row"))
    rows = {"a": ours.num_rows, "b": theirs.num_rows}
    values = {"columns": dict(counts), "first": first}
    facts: dict[str, Any] = {"num_rows": rows, **found, "values": values}
    output.finish("same" if same else "different", url=output.url, **facts)
    return ExitCode.SOUND if same else ExitCode.DAMAGE


def _show(output: Output, found: dict[str, list[_Difference]]) -> None:
    for kind, differences in found.items():
        for each in differences:
            output.line(kind, f"{each['name']}: {_shown(each['a'])} -> {_shown(each['b'])}")


def _json(value: Any) -> str:
    return wording.shortened(text_rows.json_text(value), at_most=60)


def _shown(value: str | None) -> str:
    return "(none)" if value is None else wording.shortened(value, at_most=60)


def _types(dataset: rpq.Dataset) -> dict[str, str]:
    columns = Field.of(dataset.arrow_schema).children
    return {each.name: str(nanoarrow.Schema(each.to_c())).removeprefix("<Schema> ") for each in columns}


def _changes(one: dict[str, Any], two: dict[str, Any]) -> list[_Difference]:
    names = [name for name in dict.fromkeys([*one, *two]) if one.get(name) != two.get(name)]
    return [{"name": name, "a": one.get(name), "b": two.get(name)} for name in names]


def _schema(one: rpq.Dataset, two: rpq.Dataset) -> list[_Difference]:
    types, others = _types(one), _types(two)
    if (changes := _changes(types, others)) or list(types) == list(others):
        return changes
    return [{"name": "order of columns", "a": ", ".join(types), "b": ", ".join(others)}]


def _metadata(one: rpq.Dataset, two: rpq.Dataset) -> list[_Difference]:
    return _changes(metadata_of(one.files[0]), metadata_of(two.files[0]))


async def _values(output: Output, one: rpq.Dataset, two: rpq.Dataset) -> tuple[Counter[str], list[_Difference]]:
    """How many values differ in each column that both have, and the first of them."""
    counts: Counter[str] = Counter()
    first: list[_Difference] = []
    names = [name for name in _types(one) if name in _types(two)]
    done, least = 0, min(one.num_rows, two.num_rows)
    if not names:
        return counts, first
    with output.progress("comparing") as meter:
        ours, theirs = (each.batches(_BATCH_ROWS, names, limit=least) for each in (one, two))
        async with aclosing(ours), aclosing(theirs), aclosing(_aligned(ours, theirs)) as pairs:
            async for a, b in pairs:
                for name in names:
                    values, others = a[name], b[name]
                    different = _different(values, others)
                    counts[name] += len(different)
                    for at in different[: _SHOWN - len(first)].tolist():
                        pair = {"a": _value(values, at), "b": _value(others, at)}
                        first.append({"row": done + at, "column": name, **pair})
                done += a.num_rows
                meter.update(done / least, wording.counted(done, "row"))
    return +counts, first


async def _aligned(
    one: AsyncIterator[rpq.Table], two: AsyncIterator[rpq.Table]
) -> AsyncGenerator[tuple[rpq.Table, rpq.Table], None]:
    """The rows of two streams in pieces of the same rows."""
    a, b = await anext(one, None), await anext(two, None)
    while a is not None and b is not None:
        rows = min(a.num_rows, b.num_rows)
        yield a.slice(0, rows), b.slice(0, rows)
        a = a.slice(rows) if rows < a.num_rows else await anext(one, None)
        b = b.slice(rows) if rows < b.num_rows else await anext(two, None)


def _different(one: NDArray[Any], two: NDArray[Any]) -> NDArray[np.int64]:
    """The positions at which two columns differ."""
    kind = one.dtype.kind
    # NumPy would round an int to compare it with a float; Python does not.
    if kind == "O" or kind != two.dtype.kind:
        pairs = zip(one.tolist(), two.tolist(), strict=True)
        return np.array([at for at, (a, b) in enumerate(pairs) if not _same(a, b)], np.int64)
    nulls, others = np.ma.getmaskarray(one), np.ma.getmaskarray(two)
    a, b = np.ma.getdata(one), np.ma.getdata(two)
    if kind in "mM" and one.dtype != two.dtype:
        unlike = _unlike_times(a, b) if np.promote_types(a.dtype, b.dtype) == a.dtype else _unlike_times(b, a)
    else:
        with np.errstate(invalid="ignore"):
            unlike = (a != b) & ~((a != a) & (b != b))  # noqa: PLR0124 (NaN)
    return np.flatnonzero((nulls != others) | (~nulls & ~others & unlike))


def _unlike_times(fine: NDArray[Any], coarse: NDArray[Any]) -> NDArray[np.bool_]:
    """Where times of two units differ; those of the coarse one may lie beyond what the fine one reaches."""
    cut = fine.astype(coarse.dtype)
    return np.asarray((cut != coarse) | (cut.astype(fine.dtype) != fine))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b or (a != a and b != b))  # noqa: PLR0124 (NaN)


def _value(values: NDArray[Any], at: int) -> Any:
    value = values[at]
    if value is np.ma.masked:
        return None
    if isinstance(value, float) and value != value:  # noqa: PLR0124
        return "NaN"
    return text_rows.plain(value.item() if isinstance(value, np.generic) and value.dtype.kind in "biuf" else value)
