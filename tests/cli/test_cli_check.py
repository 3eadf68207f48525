"""`rpq check` and `rpq recover`: words, documents, exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from resilient_pq.cli.exit_codes import ExitCode

Run = Callable[..., Any]

COMMON_KEYS = {"schema_version", "verb", "outcome", "rows", "findings", "next"}
RECOVER_KEYS = {"rows_kept", "rows_lost", "bytes_kept", "bytes_unread", "lost", "output", "outputs", "ledger"}


def test_a_sound_file(rpq_run: Run, sound: Path) -> None:
    ended = rpq_run("check", sound)
    assert ended.code == ExitCode.SOUND
    assert ended.err == ""
    assert [line[:12].rstrip() for line in ended.out.splitlines()] == ["sound"]
    assert ended.words("sound")[0].startswith("1,000 rows in 4 row groups")


def test_a_torn_file_and_the_command_that_is_printed(
    rpq_run: Run, rpq_process: Run, torn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(torn.parent)
    ended = rpq_run("check", torn.name)
    assert ended.code == ExitCode.DAMAGE
    assert ended.err == ""
    assert [line[:12].rstrip() for line in ended.out.splitlines()] == ["torn", "sound", "next"]
    assert "500 rows in 2 row groups" in ended.words("sound")[0]

    program, *arguments = shlex.split(ended.words("next")[0])
    assert program == "rpq"
    assert arguments == ["recover", "torn file.parquet", "torn file.recovered.parquet"]
    recovered = rpq_process(*arguments)
    assert recovered.code == ExitCode.DAMAGE
    assert recovered.err == ""
    assert recovered.words("kept")[0].startswith("500 rows in 2 row groups")
    assert recovered.words("lost")[0] != "nothing"
    assert recovered.words("written") == ["torn file.recovered.parquet"]
    table = pyarrow.parquet.read_table(arguments[-1])
    assert table["number"].to_pylist() == list(range(500))


def test_a_changed_byte(rpq_run: Run, flipped: Path, tmp_path: Path) -> None:
    ended = rpq_run("check", flipped)
    assert ended.code == ExitCode.DAMAGE
    assert "row group 1, column number" in ended.words("corrupt")[0]
    assert ended.words("sound")[0].startswith("750 rows in ")
    recovered = rpq_run("recover", flipped, tmp_path / "saved.parquet")
    assert recovered.code == ExitCode.DAMAGE
    assert recovered.words("kept")[0].startswith("750 of 1,000 rows in 3 row groups")
    assert "250 rows" in recovered.words("lost")[0]


def test_a_sound_file_is_recovered_whole(rpq_run: Run, sound: Path, tmp_path: Path) -> None:
    ended = rpq_run("recover", sound, tmp_path / "copy.parquet")
    assert ended.code == ExitCode.SOUND
    assert ended.words("lost") == ["nothing"]
    assert (tmp_path / "copy.parquet").read_bytes() == sound.read_bytes()


def test_nothing_to_recover(rpq_run: Run, stub: Path, tmp_path: Path) -> None:
    for ended in (rpq_run("check", stub), rpq_run("recover", stub, tmp_path / "saved.parquet")):
        assert ended.code == ExitCode.NOTHING
        assert len(ended.words("nothing")) == 1
        assert "optional int64 number" in ended.out, "the schema is whole, so it is told"
        assert ended.words("next") == []
    assert "error       nothing to recover" in ended.err
    assert not (tmp_path / "saved.parquet").exists()


def test_nothing_to_recover_as_json(rpq_run: Run, stub: Path, tmp_path: Path) -> None:
    ended = rpq_run("recover", stub, tmp_path / "saved.parquet", "--json")
    assert ended.code == ExitCode.NOTHING
    document = ended.document
    assert document.keys() >= COMMON_KEYS | RECOVER_KEYS
    assert (document["outcome"], document["rows_kept"], document["output"]) == ("nothing", 0, None)
    assert document["lost"][0]["end"] == stub.stat().st_size
    assert "number" in document["schema"]
    assert "nothing to recover" in ended.err


def test_what_is_no_parquet(rpq_run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a table\n" * 100)
    assert rpq_run("check", tmp_path / "notes.txt").code == ExitCode.NOTHING
    (tmp_path / "empty").touch()
    assert rpq_run("check", tmp_path / "empty").code == ExitCode.NOTHING


def test_no_such_file(rpq_run: Run, tmp_path: Path) -> None:
    ended = rpq_run("check", tmp_path / "nothing.parquet")
    assert (ended.code, ended.out) == (ExitCode.STORE, "")
    assert ended.err.startswith("error       ")
    assert "nothing.parquet" in ended.err
    assert "Traceback" not in ended.err


def test_an_output_that_exists_is_replaced_only_when_asked(rpq_run: Run, torn: Path, tmp_path: Path) -> None:
    output = tmp_path / "saved.parquet"
    output.write_text("precious")
    ended = rpq_run("recover", torn, output)
    assert (ended.code, ended.out) == (ExitCode.STORE, "")
    assert "hint        " in ended.err
    assert output.read_text() == "precious"
    assert rpq_run("recover", torn, output, "--overwrite").code == ExitCode.DAMAGE
    assert pyarrow.parquet.read_metadata(output).num_rows == 500


def test_recovery_never_writes_into_its_source(rpq_run: Run, torn: Path) -> None:
    before = torn.read_bytes()
    ended = rpq_run("recover", torn, torn, "--overwrite")
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert torn.read_bytes() == before


def test_documents(rpq_run: Run, torn: Path, sound: Path, tmp_path: Path) -> None:
    found = rpq_run("check", sound, "--json").document
    assert found.keys() >= COMMON_KEYS
    assert (found["schema_version"], found["verb"], found["outcome"], found["rows"]) == (
        1,
        "check",
        "sound",
        1000,
    )
    assert (found["findings"], found["next"]) == ([], [])

    ended = rpq_run("check", torn, "--json", "--endpoint-url", "http://localhost:1")
    assert (ended.code, ended.err) == (ExitCode.DAMAGE, "")
    assert ended.document["outcome"] == "damaged"
    assert ended.document["findings"][0]["damage"] == "torn"
    assert ended.document["next"][0][-2:] == ["--endpoint-url", "http://localhost:1"]

    ended = rpq_run("recover", torn, tmp_path / "saved.parquet", "--json")
    assert (ended.code, ended.err) == (ExitCode.DAMAGE, "")
    document = ended.document
    assert document.keys() >= COMMON_KEYS | RECOVER_KEYS
    assert (document["outcome"], document["rows"], document["rows_kept"]) == ("partial", 500, 500)
    lost = document["lost"]
    assert document["bytes_kept"] <= min(region["start"] for region in lost)
    assert max(region["end"] for region in lost) == torn.stat().st_size
    assert document["output"] == str(tmp_path / "saved.parquet")


def test_many_findings_are_not_all_listed(rpq_run: Run, tmp_path: Path) -> None:
    from resilient_pq import sync as rpq

    path = tmp_path / "many.parquet"
    with rpq.create(path, row_group_rows=1) as writer:
        writer.write({"number": list(range(40))})
    with rpq.open(path) as file:
        starts = [group.columns[0].meta_data.data_page_offset for group in file.metadata.row_groups]
    damaged = bytearray(path.read_bytes())
    for start in starts[:30]:
        damaged[start + 2] ^= 1
    path.write_bytes(damaged)
    ended = rpq_run("check", path)
    assert ended.code == ExitCode.DAMAGE
    assert len(ended.words("corrupt")) == 20
    count = len(rpq_run("check", path, "--json").document["findings"])
    assert count >= 30
    assert f"and {count - 20} more, which --json lists" in ended.out


def test_names_in_files_cannot_move_the_cursor(rpq_run: Run, tmp_path: Path) -> None:
    from resilient_pq import sync as rpq

    path = tmp_path / "hostile.parquet"
    with rpq.create(path) as writer:
        writer.write({"\x1b[2Jgone\r\x07": [1]})
    for arguments in ((), ("--schema",)):
        ended = rpq_run("inspect", path, *arguments)
        assert ended.code == ExitCode.SOUND
        assert "\x1b" not in ended.out
        assert "\r" not in ended.out
        assert re.search(r"\\(x|u00)1b\[2Jgone\\r\\(x|u00)07", ended.out)


def test_a_path_that_is_not_utf_8(rpq_command: list[str], torn: Path, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.parquet"
    os.rename(torn, name)
    for arguments in ([], ["--json"]):
        done = subprocess.run([*rpq_command, "check", name, *arguments], capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (ExitCode.DAMAGE, b"")
        assert b"500" in done.stdout
    assert json.loads(done.stdout)["url"] == os.fsdecode(name)
