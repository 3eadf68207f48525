"""`--keys` and `--key-command`: encrypted files are read, and a key is shown nowhere."""

from __future__ import annotations

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from corpus_of_others import of_corpus
from trevni_bytes import write_trevni

from resilient_pq import sync as rpq

KEY = b"the key of tests"
SHOWN = (KEY.decode(), KEY.hex(), KEY.hex().upper(), base64.b64encode(KEY).decode(), repr(list(KEY)))


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    """A file of Arrow, all of it encrypted with one key."""
    path = tmp_path / "day.parquet"
    properties = pe.create_encryption_properties(KEY, aad_prefix=b"day", store_aad_prefix=True)
    with pq.ParquetWriter(path, pa.schema({"x": pa.int64()}), encryption_properties=properties) as writer:
        writer.write_table(pa.table({"x": [1, 2, 3]}))
    return path


@pytest.fixture
def keys_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of keys."""

    def write(keys: Any = None, mode: int = 0o600) -> Path:
        path = tmp_path / "keys.json"
        keys = keys or {"footer": base64.b64encode(KEY).decode()}
        path.write_text(keys if isinstance(keys, str) else json.dumps(keys))
        path.chmod(mode)
        return path

    return write


def printing(text: str, status: int = 0) -> str:
    """A command that prints text, and ends with a status."""
    return shlex.join([sys.executable, "-c", f"import sys; print({text!r}); sys.exit({status})"])


def no_key_in(*texts: str) -> bool:
    return not any(shown in text for shown in SHOWN for text in texts)


class TestFile:
    @pytest.mark.parametrize(
        "text", [base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode(), KEY.hex(), KEY.hex().upper()]
    )
    def test_its_keys_are_base64_or_hexadecimal(self, rpq_run: Any, encrypted: Path, keys_file: Any, text: str) -> None:
        ended = rpq_run("cat", encrypted, "--keys", keys_file({"footer": text}))
        assert (ended.code, ended.out) == (0, '{"x": 1}\n{"x": 2}\n{"x": 3}\n')
        assert ended.err == ""

    @pytest.mark.parametrize("verb", ["head", "tail", "schema", "count", "stats", "inspect"])
    def test_every_verb_that_reads_takes_it(self, rpq_run: Any, encrypted: Path, keys_file: Any, verb: str) -> None:
        ended = rpq_run(verb, encrypted, "--json", "--keys", keys_file())
        assert ended.code == 0 and no_key_in(ended.out, ended.err)

    def test_two_files_are_compared(self, rpq_run: Any, encrypted: Path, keys_file: Any) -> None:
        assert rpq_run("diff", encrypted, encrypted, "--keys", keys_file()).code == 0

    def test_a_folder_is_read_and_counted(self, rpq_run: Any, encrypted: Path, keys_file: Any) -> None:
        (encrypted.parent / "days").mkdir()
        for name in "ab":
            (encrypted.parent / "days" / f"{name}.parquet").write_bytes(encrypted.read_bytes())
        assert rpq_run("count", encrypted.parent / "days", "--keys", keys_file()).out.endswith("6  total\n")
        assert rpq_run("inspect", encrypted.parent / "days", "--keys", keys_file(), "--json").code == 0

    def test_columns_without_a_key_are_asked_for_by_name(self, rpq_run: Any, keys_file: Any) -> None:
        path = of_corpus("parquet-testing/data/encrypt_columns_and_footer.parquet.encrypted")
        keys = {"kf": b"0123456789012345".hex(), "kc1": b"1234567890123450".hex()}
        ended = rpq_run("cat", path, "--columns", "double_field,boolean_field", "--head", 1, "--keys", keys_file(keys))
        assert (ended.code, ended.out) == (0, '{"double_field": 0.0, "boolean_field": true}\n')
        ended = rpq_run("cat", path, "--columns", "float_field", "--keys", keys_file(keys))
        assert ended.code and "float_field" in ended.err and "--keys" in ended.err

    @pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
    @pytest.mark.parametrize(("mode", "told"), [(0o600, False), (0o640, True), (0o604, True), (0o400, False)])
    def test_others_should_not_read_it(
        self, rpq_run: Any, encrypted: Path, keys_file: Any, mode: int, told: bool
    ) -> None:
        ended = rpq_run("count", encrypted, "--keys", keys_file(mode=mode))
        assert (ended.code, ended.out) == (0, "3\n")
        assert ("chmod 600" in ended.err) == told

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ({"footer": base64.b64encode(KEY[:15]).decode()}, "the key called 'footer' cannot be used"),
            ({"footer": KEY.hex()[:31]}, "the key called 'footer' cannot be used"),
            ({"footer": KEY.decode()}, "neither base64 nor hexadecimal"),
            ({"footer": None}, "the key called 'footer' cannot be used: it is not a text"),
            ({"footer": 5}, "the key called 'footer' cannot be used: it is not a text"),
            ({KEY.hex(): "footer"}, "the key cannot be used"),
            ([KEY.hex()], "not a JSON object"),
            (f'{{"footer": "{KEY.hex()}"', "not a JSON object"),
            ("[" * 100_000, "not a JSON object"),
        ],
    )
    def test_what_is_wrong_is_told_without_a_key(
        self, rpq_run: Any, encrypted: Path, keys_file: Any, content: Any, message: str
    ) -> None:
        ended = rpq_run("count", encrypted, "--json", "--keys", keys_file(content))
        assert ended.code == 2 and message in ended.document["error"]["message"]
        assert no_key_in(ended.out, ended.err)

    def test_one_that_is_missing_is_told(self, rpq_run: Any, encrypted: Path, tmp_path: Path) -> None:
        ended = rpq_run("count", encrypted, "--keys", tmp_path / "none.json")
        assert ended.code == 2 and "cannot be read: No such file" in ended.err.replace("\n", " ")


class TestCommand:
    def test_it_gets_the_key_metadata_and_prints_the_key(self, rpq_run: Any, tmp_path: Path) -> None:
        path = of_corpus("parquet-testing/data/encrypt_columns_and_footer.parquet.encrypted")
        script = tmp_path / "keys.py"
        script.write_text(
            "import os, sys\n"
            "name = sys.stdin.buffer.read().decode()\n"
            "assert os.environ['RPQ_KEY_METADATA'] == name\n"
            "keys = {'kf': b'0123456789012345', 'kc1': b'1234567890123450'}\n"
            "print('not for you', file=sys.stderr) if name not in keys else print(keys[name].hex())\n"
            "sys.exit(name not in keys)\n"
        )
        command = shlex.join([sys.executable, str(script)])
        ended = rpq_run("cat", path, "--columns", "double_field", "--head", 1, "--key-command", command)
        assert (ended.code, ended.out) == (0, '{"double_field": 0.0}\n')
        ended = rpq_run("cat", path, "--columns", "float_field", "--key-command", command)
        assert ended.code and "float_field" in ended.err

    def test_no_shell_sees_the_key_metadata(self, rpq_run: Any, encrypted: Path, tmp_path: Path) -> None:
        made = tmp_path / "made"
        ended = rpq_run("count", encrypted, "--key-command", f"echo {KEY.hex()}; touch {made}")
        assert ended.code and not made.exists() and no_key_in(ended.out, ended.err.split("\n", 1)[1])

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            (printing("no key"), "printed no key"),
            (printing(KEY.hex()[:-2]), "printed no key"),
            (printing(KEY.hex(), 3), "footer"),
            ("/no/such/program", "cannot be started"),
        ],
    )
    def test_what_goes_wrong_is_told_without_a_key(
        self, rpq_run: Any, encrypted: Path, command: str, message: str
    ) -> None:
        ended = rpq_run("count", encrypted, "--json", "--key-command", command)
        assert ended.code and message in ended.document["error"]["message"]
        assert no_key_in(ended.out, ended.err)

    @pytest.mark.parametrize("command", ["", "  ", "echo 'open"])
    def test_it_has_to_be_a_command(self, rpq_run: Any, encrypted: Path, command: str) -> None:
        assert rpq_run("count", encrypted, "--key-command", command).code == 2

    @pytest.mark.skipif(sys.platform != "linux", reason="/proc tells which children there are")
    def test_it_ends_with_the_verb(self, encrypted: Path) -> None:
        arguments = [sys.executable, "-m", "resilient_pq", "count", str(encrypted), "--key-command", "sleep 100"]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            children, deadline = Path(f"/proc/{process.pid}/task/{process.pid}/children"), time.monotonic() + 60
            while not (child := children.read_text().strip()):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)  # to the verb alone
            _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert not Path(f"/proc/{child}").exists()

    def test_keys_come_from_one_place(self, rpq_run: Any, encrypted: Path, keys_file: Any) -> None:
        ended = rpq_run("count", encrypted, "--keys", keys_file(), "--key-command", "true")
        assert ended.code == 2 and "not from both" in ended.err


class TestAdvice:
    def test_a_file_without_keys_says_which_option(self, rpq_run: Any, encrypted: Path) -> None:
        ended = rpq_run("count", encrypted)
        assert ended.code and "--keys" in ended.err

    def test_verbs_that_open_no_encrypted_file_take_no_keys(
        self, rpq_run: Any, encrypted: Path, keys_file: Any
    ) -> None:
        assert rpq_run("protect", encrypted, "--keys", keys_file()).code == 2

    def test_the_prefix_is_compared(self, rpq_run: Any, encrypted: Path, keys_file: Any) -> None:
        assert rpq_run("count", encrypted, "--keys", keys_file(), "--aad-prefix", "day").out == "3\n"
        assert rpq_run("count", encrypted, "--keys", keys_file(), "--aad-prefix", "night").code


class TestWriting:
    @pytest.fixture
    def three(self, keys_file: Any) -> Path:
        """A file of three keys."""
        return keys_file({"kf": KEY.hex(), "kc": "00" * 24, "other": "11" * 32})

    @pytest.fixture
    def rows(self, tmp_path: Path) -> Path:
        path = tmp_path / "rows.csv"
        path.write_text("name,ssn,place\nAda,1234,London\nGrace,2345,New York\n")
        return path

    def test_a_file_is_encrypted_and_read_with_the_same_options(
        self, rpq_run: Any, rows: Path, three: Path, tmp_path: Path
    ) -> None:
        dst, keys = tmp_path / "staff.parquet", ("--keys", three)
        options = ("--encrypt", "kf", "--encrypt-column", "ssn=kc", *keys)
        written = rpq_run("write", rows, dst, *options, "--json")
        assert written.code == 0 and written.document["rows"] == 2
        assert not any(word in dst.read_bytes() for word in (b"London", b"ssn", b"name", KEY))
        assert rpq_run("cat", dst, *keys, "--columns", "name,ssn").out == (
            '{"name": "Ada", "ssn": 1234}\n{"name": "Grace", "ssn": 2345}\n'
        )
        # With the footer key alone the other columns are read.
        three.write_text(json.dumps({"kf": KEY.hex()}))
        assert rpq_run("cat", dst, *keys, "--columns", "place").code == 0
        refused = rpq_run("cat", dst, *keys)
        assert refused.code and "ssn" in refused.err
        # Arrow needs the footer key, too.
        three.write_text(json.dumps({"kf": "22" * 16}))
        assert rpq_run("count", dst, *keys).code

    def test_a_footer_and_a_column_stay_in_the_clear(
        self, rpq_run: Any, rows: Path, three: Path, tmp_path: Path
    ) -> None:
        dst = tmp_path / "staff.parquet"
        options = ("--encrypt", "kf", "--plaintext-footer", "--plaintext-columns", "place", "--keys", three)
        assert rpq_run("write", rows, dst, *options).code == 0
        data = dst.read_bytes()
        assert b"London" in data and b"Grace" not in data
        assert pq.ParquetFile(dst).read(columns=["place"]).to_pydict() == {"place": ["London", "New York"]}

    def test_a_file_is_encrypted_by_a_command(self, rpq_run: Any, rows: Path, tmp_path: Path) -> None:
        dst, options = tmp_path / "staff.parquet", ("--key-command", printing(KEY.hex()))
        assert rpq_run("write", rows, dst, "--encrypt", "any", *options).code == 0
        assert rpq_run("count", dst, *options).out == "2\n"

    def test_parquet_is_encrypted_decrypted_and_encrypted_anew(
        self, rpq_run: Any, rows: Path, three: Path, tmp_path: Path
    ) -> None:
        names = ("plain", "secret", "again", "back")
        plain, secret, again, back = (tmp_path / f"{name}.parquet" for name in names)
        assert rpq_run("write", rows, plain).code == 0
        assert rpq_run("write", plain, secret, "--encrypt", "kf", "--keys", three).code == 0
        assert rpq_run("write", secret, again, "--encrypt", "other", "--plaintext-footer", "--keys", three).code == 0
        assert rpq_run("write", again, back, "--keys", three).code == 0
        assert rpq_run("diff", plain, back, "--json").document["values"]["columns"] == {}
        assert b"London" in back.read_bytes() and b"London" not in secret.read_bytes() + again.read_bytes()

    def test_a_converted_file_is_encrypted(self, rpq_run: Any, three: Path, tmp_path: Path) -> None:
        write_trevni(tmp_path / "old.trv", {"x": [1, 2, 3]})
        dst = tmp_path / "new.parquet"
        assert rpq_run("convert", tmp_path / "old.trv", dst, "--encrypt", "kf", "--keys", three).code == 0
        assert dst.read_bytes()[-4:] == b"PARE" and rpq_run("count", dst, "--keys", three).out == "3\n"

    def test_an_unfinished_file_goes_on_encrypted(self, rpq_run: Any, rows: Path, three: Path, tmp_path: Path) -> None:
        dst, options = tmp_path / "staff.parquet", ("--encrypt", "kf", "--keys", three)
        encryption = rpq.Encryption(KEY, footer_key_metadata=b"kf")
        with pytest.raises(ZeroDivisionError), rpq.create(dst, encryption=encryption) as writer:
            writer.write({"name": ["Ada"], "ssn": [1234], "place": ["London"]})
            writer.checkpoint()
            raise ZeroDivisionError
        ended = rpq_run("resume", rows, dst, "--skip-stored", *options)
        assert ended.code == 0, ended.err
        assert b"London" not in dst.read_bytes()
        assert rpq_run("cat", dst, "--columns", "name", "--keys", three).out == '{"name": "Ada"}\n{"name": "Grace"}\n'

    def test_what_is_not_complete_is_read_on_demand(self, rpq_run: Any, three: Path, tmp_path: Path) -> None:
        dst = tmp_path / "staff.parquet"
        with pytest.raises(ZeroDivisionError), rpq.create(dst, encryption=rpq.Encryption(KEY)) as writer:
            writer.write({"x": [1, 2]})
            writer.checkpoint()
            raise ZeroDivisionError
        options = (f"{dst}.partial", "--keys", three)
        three.write_text(json.dumps({"footer": KEY.hex()}))
        for verb in ("count", "cat", "head", "inspect"):
            refused = rpq_run(verb, *options)
            assert refused.code and "--allow-incomplete" in refused.err
            assert rpq_run(verb, *options, "--allow-incomplete").code == 0

    def test_a_torn_file_is_checked_and_recovered(self, rpq_run: Any, three: Path, tmp_path: Path) -> None:
        dst, saved = tmp_path / "staff.parquet", tmp_path / "saved.parquet"
        with pytest.raises(ZeroDivisionError), rpq.create(dst, encryption=rpq.Encryption(KEY)) as writer:
            writer.write({"x": [1, 2]})
            writer.checkpoint()
            raise ZeroDivisionError
        three.write_text(json.dumps({"footer": KEY.hex()}))
        torn = f"{dst}.partial"
        checked = rpq_run("check", torn, "--keys", three, "--json")
        assert checked.document["rows"] == 2 and ["--keys", str(three)] == checked.document["next"][0][-2:]
        assert rpq_run("recover", torn, saved, "--keys", three).code in (0, 1)
        assert rpq_run("count", saved, "--keys", three, "--allow-incomplete").out == "2\n"
        refused = rpq_run("check", dst.parent, "--keys", three)
        assert refused.code == 2 and "one by one" in refused.err

    def test_a_data_set_is_encrypted(self, rpq_run: Any, rows: Path, three: Path, tmp_path: Path) -> None:
        dst, options = tmp_path / "staff", ("--keys", three)
        assert rpq_run("write", rows, dst, "--roll-rows", 1, "--encrypt", "kf", *options).code == 0
        assert rpq_run("count", dst, *options).out.endswith("2  total\n")

    @pytest.mark.parametrize(
        "options",
        [
            ("--encrypt", "kf"),
            ("--plaintext-footer",),
            ("--encrypt-column", "ssn=kf"),
            ("--encrypt", "kf", "--encrypt-column", "ssn"),
            ("--encrypt", "kf", "--encrypt-column", "ssn=kf", "--encrypt-column", "ssn=kc"),
            ("--encrypt", "none"),
            ("--encrypt", "kf", "--encrypt-column", "ssn=none"),
            ("--encrypt", "kf", "--encrypt-column", "age=kc"),
            ("--encrypt", "kf", "--plaintext-columns", "age"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, rpq_run: Any, rows: Path, three: Path, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        dst = tmp_path / "staff.parquet"
        keys = () if options == ("--encrypt", "kf") else ("--keys", three)
        ended = rpq_run("write", rows, dst, *options, *keys)
        assert ended.code == 2 and not dst.exists()
        assert no_key_in(ended.out, ended.err)
