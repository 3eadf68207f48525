"""Secrets in URLs and storage options stand in nothing that `rpq` prints, writes or logs, whatever happens."""

from __future__ import annotations

import json
import logging
import os
import random
import shlex
import socket
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from resilient_pq.cli.exit_codes import ExitCode
from resilient_pq.io.location import shown

pytestmark = pytest.mark.usefixtures("two_attempts")

Run = Callable[..., Any]
S3_SECRETS = ("plantedKey", "plantedSecret", "plantedToken", "plantedUser", "plantedPa55", "plantedHeader")
OPTIONS = (
    ("headers", '{"Authorization": "Bearer plantedHeader", "X-Api": "plantedHeader"}'),
    ("client_kwargs", '{"headers": {"Cookie": "plantedHeader"}}'),
)


@pytest.fixture
def leaks(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> Callable[..., list[str]]:
    """What was told of secrets: by a command that ended, in the log, and in files below `tmp_path`."""
    caplog.set_level(logging.DEBUG, "resilient_pq")

    def found(ended: Any, *secrets: str) -> list[str]:
        texts = {"stdout": ended.out, "stderr": ended.err}
        texts |= {
            "log": "\n".join(each.getMessage() for each in caplog.records if each.name.startswith("resilient_pq"))
        }
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        texts |= {path.name: path.read_bytes().decode("latin-1") for path in files}
        caplog.clear()
        return [f"{secret} in {where}" for secret in secrets for where, text in texts.items() if secret in text]

    return found


def _port_of_nobody() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
def urls(guarded_site: Any, sound: Path, torn: Path, flipped: Path) -> dict[str, str]:
    """URLs of files in each state, and of everything that goes wrong."""
    site = guarded_site
    found = {
        "sound": site.put("sound.parquet", sound.read_bytes()),
        "torn": site.put("torn.parquet", torn.read_bytes()),
        "flipped": site.put("flipped.parquet", flipped.read_bytes()),
        "empty": site.put("empty.parquet", b""),
        "page": site.put("page.parquet", b"<html>who are you?</html>"),
        "stub": site.put("stub.parquet", sound.read_bytes()[:3] + b"x" * 40),
        "no TLS": site.url("sound.parquet", scheme="https"),
        "nobody": site.url("sound.parquet", port=_port_of_nobody()),
        "no URL": f"http://plantedUser:planted/Pa55@127.0.0.1:{site.port}/a?sig=plantedSignature",
        "other key": site.url("sound.parquet", query="X-Amz-Signature=plantedPa55"),
        "cached": f"simplecache::{site.url('flipped.parquet')}",
        "cached none": f"simplecache::{site.url('404')}",
        "no scheme": f"unheard-of://plantedUser:plantedPa55@host/a?sig={site.secrets[2]}",
        "of S3": "s3://plantedUser:plantedPa55@bucket/a.parquet",
        "one slash": "http:/plantedUser:plantedPa55@host/a.parquet",
        "no scheme at all": "plantedUser:plantedPa55@host/a.csv",
    }
    for name in ("missing", "403", "404", "429", "500", "loop", "elsewhere", "cut", "garbled"):
        found[name] = site.url(name)
    return found


NAMES = [
    "sound", "torn", "flipped", "empty", "page", "stub", "no TLS", "nobody", "no URL", "other key", "cached",
    "cached none", "no scheme", "of S3", "missing", "403", "404", "429", "500", "loop", "elsewhere", "cut", "garbled",
    "one slash", "no scheme at all",
]  # fmt: skip


def _commands(urls: dict[str, str], name: str, sound: Path, out: Path) -> list[tuple[object, ...]]:
    """Every verb, with a URL in each of its places."""
    url = urls[name]
    out.mkdir()
    return [
        ("check", url),
        ("check", url, "--json"),
        ("check", url, urls["torn"], "--resume", out / "check.journal"),
        ("check", url, "--resume", out / "one.journal", "--json"),
        ("inspect", url),
        ("inspect", url, "--json", "--schema", "--statistics"),
        ("inspect", url, urls["flipped"], "--json"),
        ("cat", url, "--head", 1),
        ("cat", url, "--on-damage", "null", "--json"),
        ("recover", url, out / "a.parquet", "--html", out / "a.html"),
        ("recover", url, out / "b.parquet", "--json", "--on-damage", "null"),
        ("recover", url, out / "many", "--resume", out / "recover.journal", "--json"),
        ("recover", url, out / "c.parquet", "--on-damage", "raise"),
        ("recover", url, urls["sound"], out / "d.parquet", "--schema-from", urls["sound"]),
        ("recover", urls["torn"], url, "--json"),
        ("recover", sound, url, "--schema-from", url),
        ("recover", sound.parent, url, "--only-damaged"),
        ("write", url, out / "e.parquet"),
        ("write", sound, url),
        ("convert", url, out / "f.parquet"),
        ("metadata", url),
        ("uploads", "list", url),
        ("uploads", "complete", url, "--json"),
        ("uploads", "abort", f"{url}/", "--json"),
        ("uploads", "resume-info", url),
        ("cat", sound, url),
        ("check", url, "--storage-option", f"key:{url}"),
    ]


def test_verbs_tell_no_secrets_of_a_url(
    rpq_run: Run, urls: dict[str, str], leaks: Any, guarded_site: Any, sound: Path, tmp_path: Path
) -> None:
    """Some verbs for each URL; the whole table is thorough."""
    rng = random.Random(13)
    for number, name in enumerate(urls):
        commands = _commands(urls, name, sound, tmp_path / f"out{number}")
        for arguments in rng.sample(commands, 3):
            ended = rpq_run(*arguments)
            assert ended.code != ExitCode.INTERNAL, (arguments, ended.err)
            assert leaks(ended, *guarded_site.secrets) == [], (name, arguments[0])


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_no_verb_tells_secrets_of_a_url(
    rpq_run: Run, urls: dict[str, str], leaks: Any, guarded_site: Any, sound: Path, tmp_path: Path, name: str
) -> None:
    for number, arguments in enumerate(_commands(urls, name, sound, tmp_path / "out")):
        ended = rpq_run(*arguments)
        assert ended.code != ExitCode.INTERNAL, (arguments, ended.err)
        assert leaks(ended, *guarded_site.secrets) == [], (number, arguments[0])


def test_no_verb_tells_secrets_of_storage_options(
    rpq_run: Run, leaks: Any, guarded_site: Any, urls: dict[str, str], tmp_path: Path
) -> None:
    options = [each for name, value in OPTIONS for each in ("--storage-option", f"{name}={value}")]
    for name in ("flipped", "403", "garbled", "nobody", "cached"):
        recovering = ("recover", urls[name], tmp_path / "a.parquet", "--overwrite", "--json")
        for arguments in (("check", urls[name]), recovering):
            ended = rpq_run(*arguments, *options)
            assert leaks(ended, *guarded_site.secrets, *S3_SECRETS) == [], (name, arguments[0])


@pytest.mark.parametrize(
    "what",
    ["refused", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("no URL", "wrong key", "environment"))],
)
def test_no_verb_tells_secrets_of_an_endpoint(
    rpq_run: Run, moto_server: Any, leaks: Any, sound: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    who = "plantedUser:plantedPa55@"
    _, _, host = moto_server.endpoint_url.partition("://")
    refused = f"http://{who}127.0.0.1:{_port_of_nobody()}"
    endpoint = {"refused": refused, "no URL": f"{who}127.0.0.1:1"}.get(what, f"http://{who}{host}")
    reaching: tuple[str, ...] = ("--endpoint-url", endpoint)
    if what == "environment":
        monkeypatch.setenv("AWS_ENDPOINT_URL", refused)
        reaching = ()
    names = ("key", "secret", "token") if what == "wrong key" else ()
    options = [each for name in names for each in ("--storage-option", f"{name}=planted{name.capitalize()}")]
    options += ["--storage-option", f'client_kwargs={{"region_name": "us-east-1", "endpoint_url": "{endpoint}"}}']
    options = options if what == "wrong key" else []
    url = f"s3://{moto_server.bucket}/secrets.parquet"
    for arguments in (
        ("write", sound, url, "--json"),
        ("check", url),
        ("check", f"s3://{moto_server.bucket}/", "--json"),
        ("cat", url, "--head", 1),
        ("inspect", url, "--json"),
        ("recover", sound, url),
        ("uploads", "list", f"s3://{moto_server.bucket}"),
        ("uploads", "complete", url, "--json"),
    ):
        ended = rpq_run(*arguments, *reaching, *options)
        assert ended.code != ExitCode.INTERNAL, ended.err
        assert leaks(ended, *S3_SECRETS) == [], arguments


def test_secrets_of_other_file_systems(
    rpq_run: Run, leaks: Any, flipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory of fsspec, by a URL that has a user; and drivers that say all that they know."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Telling(MemoryFileSystem):  # type: ignore[misc]
        protocol = "telling"
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.rpartition("@")[2].partition("/")[2]

        def info(self, path: str, **rest: Any) -> Any:
            if path.endswith("told.parquet"):
                raise RuntimeError(f"{path} with telling://plantedUser:plantedPa55@host: HTTP 500")
            if path.endswith("gone.parquet"):
                raise FileNotFoundError("https://plantedUser:plantedPa55@host/a?sig=plantedSecret")
            return super().info(path, **rest)

    fsspec.register_implementation("telling", Telling, clobber=True)
    monkeypatch.setattr(MemoryFileSystem, "store", {"/flipped.parquet": None})
    fsspec.filesystem("memory").pipe_file("/flipped.parquet", flipped.read_bytes())
    top = "telling://plantedUser:plantedPa55@host"
    for name, code in (("flipped", ExitCode.DAMAGE), ("told", ExitCode.STORE), ("gone", ExitCode.STORE)):
        for arguments in (
            ("check", f"{top}/{name}.parquet"),
            ("check", f"{top}/{name}.parquet", "--json"),
            ("check", f"{top}/{name}.parquet", "--resume", tmp_path / f"{name}.journal"),
            ("recover", f"{top}/{name}.parquet", tmp_path / "a.parquet", "--html", tmp_path / "a.html", "--overwrite"),
        ):
            ended = rpq_run(*arguments)
            assert ended.code == code, ended.err
            assert leaks(ended, *S3_SECRETS) == [], arguments


# -- presigned URLs ------------------------------------------------------------------------------


def test_the_next_command_for_a_web_source_names_a_local_output(
    rpq_run: Run, guarded_site: Any, flipped: Path, torn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    guarded_site.put("flipped.parquet", flipped.read_bytes())
    url = guarded_site.signed("flipped.parquet")
    ended = rpq_run("check", url)
    (following,) = ended.words("next")
    assert shlex.split(following) == ["rpq", "recover", shown(url), "flipped.recovered.parquet"]
    assert "the query of a URL" in ended.err
    guarded_site.put("torn.parquet", torn.read_bytes())
    for verb in ("inspect", "cat"):
        planted = 'headers={"X": "plantedHeader"}'
        ended = rpq_run(verb, guarded_site.signed("torn.parquet"), "--storage-option", planted)
        assert (ended.code, "rpq " in ended.err) == (ExitCode.DAMAGE, True), ended.err
        assert "--storage-option headers=..., the query of a URL" in ended.err
    refused = rpq_run(*shlex.split(following)[1:])
    assert (refused.code, "with its query" in refused.err) == (ExitCode.USAGE, True)
    done = rpq_run("recover", url, "flipped.recovered.parquet")
    assert (done.code, Path("flipped.recovered.parquet").stat().st_size > 0) == (ExitCode.DAMAGE, True)
    many = rpq_run("check", url, "--resume", "journal")
    (following,) = many.words("next")
    assert shlex.split(following) == ["rpq", "recover", shown(url), "flipped.parquet.recovered", "--only-damaged"]


def test_nothing_is_written_to_a_web_server(rpq_run: Run, guarded_site: Any, sound: Path) -> None:
    url = guarded_site.url("new.parquet")
    for arguments in (
        ("recover", sound, url),
        ("recover", sound.parent, url),
        ("recover", sound, f"simplecache::{url}"),
        ("write", sound, url),
        ("convert", sound, url),
    ):
        ended = rpq_run(*arguments)
        assert ended.code == ExitCode.USAGE, (arguments, ended.err)
        assert "a web server can only be read" in ended.err
        assert "write to a path" in ended.err
    assert guarded_site.asked == []


def test_a_journal_knows_files_by_a_hash_and_is_for_its_owner(
    rpq_run: Run, guarded_site: Any, sound: Path, tmp_path: Path
) -> None:
    urls = [guarded_site.put(f"{number}.parquet", sound.read_bytes()) for number in range(2)]
    urls.append(guarded_site.url("0.parquet", query="X-Amz-Signature=plantedSignature2"))
    journal = tmp_path / "journal"
    before = os.umask(0)
    try:
        first = rpq_run("check", *urls, "--resume", journal, "--json")
    finally:
        os.umask(before)
    assert (first.code, stat.S_IMODE(journal.stat().st_mode)) == (ExitCode.SOUND, 0o600)
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    assert sorted(line["url"] for line in lines) == sorted(map(shown, urls))
    assert len({line["key"] for line in lines}) == 3
    summary = json.loads(rpq_run("check", *urls, "--resume", journal, "--json").out.splitlines()[-1])
    assert (summary["files"], summary["files_resumed"]) == (3, 3)
    others = [url.replace("plantedPa55", "plantedPa56") for url in urls]
    summary = json.loads(rpq_run("check", *others, "--resume", journal, "--json").out.splitlines()[-1])
    assert (summary["files"], summary["files_resumed"]) == (3, 0)


def test_a_journal_of_before_is_gone_on_with(rpq_run: Run, sound: Path, tmp_path: Path) -> None:
    """Of names without secrets nothing but the URL is written, as ever."""
    journal = tmp_path / "journal"
    check = partial(rpq_run, "check", sound, "--resume", journal, "--json")
    check()
    line = json.loads(journal.read_text().splitlines()[1])
    assert (line["url"], "key" in line) == (str(sound), False)
    assert json.loads(check().out.splitlines()[-1])["files_resumed"] == 1
