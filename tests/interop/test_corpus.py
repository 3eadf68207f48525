"""Files that others have collected: what any library reads we read too, with the same values; the rest we refuse.

Each is read in a process of its own kind, within bounds of time and memory; `scripts/corpus_judging.py` says how,
and names the exceptions. `scripts/corpus_report.py` prints the same as a table.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from corpus_of_others import CORPUS, absent

ROOT = Path(__file__).resolve().parents[2]
#: How many files the quick suite takes besides those of parquet-testing.
SAMPLE = 40
#: How many files one test of the thorough suite takes.
PORTION = 50


def _load(name: str) -> ModuleType:
    """A module of the folder of scripts, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


judging: Any = _load("corpus_judging")
FILES: list[Path] = judging.parquet_files(CORPUS) if CORPUS.is_dir() else []
SMALL = [path for path in FILES if not path.name.endswith(judging.LARGE)]
REFERENCE = [path for path in SMALL if path.relative_to(CORPUS).parts[0] == "parquet-testing"]


def _sample() -> list[Path]:
    others = sorted(set(SMALL) - set(REFERENCE))
    return REFERENCE + random.Random(1).sample(others, min(SAMPLE, len(others)))


def _parameters(files: list[Path]) -> list[Any]:
    if not files:
        return [pytest.param(CORPUS, id="absent")]
    return [pytest.param(path, id=str(path.relative_to(CORPUS))) for path in files]


def _require() -> None:
    if not FILES:
        absent()


@pytest.fixture(scope="module")
def judge() -> Iterator[Any]:
    with judging.Judge() as found:
        yield found


@pytest.mark.parametrize("path", _parameters(_sample()))
@pytest.mark.ways_in_quick(120)
def test_a_sample(path: Path, judge: Any) -> None:
    _require()
    verdict = judge.judge(path)
    assert not verdict.faults, verdict


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("start", range(0, max(len(FILES), 1), PORTION))
def test_every_file(start: int, judge: Any) -> None:
    _require()
    verdicts = [judge.judge(path) for path in FILES[start : start + PORTION]]
    assert not [verdict for verdict in verdicts if verdict.faults]


def test_every_exception_is_there() -> None:
    _require()
    for end in judging.EXCEPTIONS:
        assert any(str(path).endswith(end) for path in FILES), end


def test_the_values_of_int96_from_spark() -> None:
    _require()
    table = judging.read_by_us(str(CORPUS / "parquet-testing" / "data" / "int96_from_spark.parquet"))
    expected = [
        1704141296123456,
        1704070800000000,
        253402225200000000,
        1735599600000000,
        None,
        9089380393200000000,
    ]
    assert [count and count // 1000 for count in judging.plain_values(table["a"])] == expected


# --- the judge itself ---------------------------------------------------------------------------------------


def _write(path: Path, **columns: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)
    return path


def test_equal_values_are_found_so(tmp_path: Path, judge: Any) -> None:
    verdict = judge.judge(_write(tmp_path / "a.parquet", c=[1.5, float("nan"), None], s=["a", None, "b"]))
    assert (verdict.outcome, verdict.peer, verdict.faults) == ("equal", "pyarrow", [])
    assert verdict.seconds > 0 and verdict.peak < 100 * judging.MiB


def test_what_nobody_reads_is_refused(tmp_path: Path, judge: Any) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100))
    verdict = judge.judge(tmp_path / "a.parquet")
    assert (verdict.outcome, verdict.peer, verdict.faults) == ("refused", None, [])
    assert "TornFileError" in verdict.detail


def test_what_only_a_peer_reads_is_a_fault(tmp_path: Path, judge: Any) -> None:
    path = _write(tmp_path / "a.parquet", c=[1, 2, 3])
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    verdict = judge.judge(path)
    assert (verdict.outcome, verdict.peer) == ("missed", "pyarrow")
    assert "NotParquetError" in verdict.faults[0]


def test_other_values_are_a_fault(tmp_path: Path) -> None:
    import pyarrow as pa

    one = pa.table({"c": pa.array([[{"a": 1.0}], None, [{"a": None}]])})
    other = pa.table({"c": pa.array([[{"a": 1.0}], None, [{"a": 2.0}]], pa.large_list(one["c"].type.value_type))})
    assert judging.first_difference(one, one) == ""
    assert "'c', row 2" in judging.first_difference(one, other)
    assert "3 rows, not 2" in judging.first_difference(one, one.slice(1))
    assert "columns ['c']" in judging.first_difference(one, one.rename_columns(["d"]))


def test_columns_are_compared_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that those of the largest files need no more memory than their tables."""
    import pyarrow as pa

    maps = [None if i % 5 == 0 else [(f"k{j}", j) for j in range(i % 4)] for i in range(200)]
    lists = [None if i % 7 == 0 else [[i] * (i % 3)] * (i % 2) for i in range(200)]
    kinds = [pa.map_(pa.string(), pa.int64()), pa.list_(pa.list_(pa.int64()))]
    one = pa.table({"m": pa.array(maps, kinds[0]), "l": pa.array(lists, kinds[1])})
    kinds = [pa.map_(pa.large_string(), pa.int64()), pa.large_list(pa.list_(pa.int64()))]
    other = pa.table({"m": pa.array(maps, kinds[0]), "l": pa.array([*lists[:150], [[9]], *lists[151:]], kinds[1])})
    for at_once in (1, 100, 1 << 20):
        monkeypatch.setattr(judging, "AT_ONCE", at_once)
        assert judging.first_difference(one.select(["m"]), other.select(["m"])) == ""
        assert "'l', row 150" in judging.first_difference(one, other)


def test_a_reader_that_ends_or_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "reader.py"
    path = tmp_path / "a.parquet"
    monkeypatch.setattr(judging, "__file__", str(program))
    monkeypatch.setattr(judging, "TIME_LIMIT", 2.0)
    for body, outcome in (("import os; os.abort()", "crashed"), ("import time; time.sleep(60)", "hung")):
        program.write_text(body)
        with judging.Judge() as judge:
            verdict = judge.judge(path)
        assert verdict.outcome == outcome and verdict.faults


def test_the_report_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = _load("corpus_report")
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    _write(tmp_path / "good" / "a.parquet", c=[1, 2])
    (tmp_path / "good" / "torn.parquet").write_bytes(b"PAR1" + bytes(100))
    assert report.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["corpus", "files", "read"]
    assert [line.split()[:6] for line in lines if line.startswith("good")] == [["good", "2", "1", "1", "0", "1"]]
    path = _write(tmp_path / "bad" / "b.parquet", c=[1])
    path.write_bytes(b"XXXX" + path.read_bytes()[4:])
    assert report.main([str(tmp_path)]) == 1
    assert "bad/b.parquet: missed" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        report.main([str(tmp_path / "nothing")])
    assert caught.value.code == 2
    assert "no such folder" in capsys.readouterr().err
