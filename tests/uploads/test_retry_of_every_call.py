"""For how long each public call goes on asking a store that does not answer: as it is told, or as its purpose is."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import resilient_pq as rpq
import resilient_pq.dask as dask_rpq
from resilient_pq import sync
from resilient_pq.cli.main import run
from resilient_pq.errors import ResilientPQError, SchemaError, TransientError
from resilient_pq.io import READING, WRITING, RetryPolicy, S3Store, resolve, with_retry
from resilient_pq.io.transfer import attempts

ROWS = {"a": [1, 2, 3]}
OPTIONS = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "s"}
URL = "s3://bucket/day.parquet"


@pytest.fixture
def policies(monkeypatch: pytest.MonkeyPatch) -> list[RetryPolicy]:
    """Under which policy each operation on a store was asked for; none is tried."""
    found: list[RetryPolicy] = []

    async def never(_: Callable[[], Awaitable[Any]], policy: RetryPolicy, **__: Any) -> Any:
        found.append(policy)
        raise TransientError("nobody is asked")

    monkeypatch.setattr(attempts, "retrying", never)
    return found


@pytest.fixture(autouse=True)
def file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the working folder is a file."""
    monkeypatch.chdir(tmp_path)
    with sync.create("here.parquet") as writer:
        writer.write(ROWS)


async def first_result(results: Any) -> None:
    async with results:
        async for result in results:
            assert result.error is not None
            raise result.error if isinstance(result.error, Exception) else ResilientPQError(result.error.message)


async def entered(creation: Any) -> None:
    async with creation as writer:
        await writer.write(ROWS)


async def read(opening: Any) -> None:
    async with opening:
        raise AssertionError("nobody listens")


Call = Callable[[dict[str, Any]], Awaitable[Any]]
CALLS: dict[str, tuple[Call, RetryPolicy]] = {
    "open": (lambda how: read(rpq.open(URL, **how)), READING),
    "open_many": (lambda how: read(rpq.open_many([URL], **how)), READING),
    "open_trevni": (lambda how: read(rpq.open_trevni("s3://bucket/a.trv", **how)), READING),
    "check": (lambda how: rpq.check(URL, **how), READING),
    "check_many": (lambda how: first_result(rpq.check_many(URL, **how)), READING),
    "recover_many": (lambda how: first_result(rpq.recover_many(URL, "s3://bucket/out/", **how)), WRITING),
    "recover": (lambda how: rpq.recover("here.parquet", "s3://bucket/saved.parquet", **how), WRITING),
    "convert": (lambda how: rpq.convert("here.parquet", "s3://bucket/a.parquet", **how), WRITING),
    "read": (lambda how: rpq.read(URL, **how), READING),
    "scan": (lambda how: asyncio.to_thread(lambda: rpq.scan([URL], **how).arrow_schema), READING),
    "protect": (lambda how: rpq.protect(URL, **how), READING),
    "repair": (lambda how: rpq.repair(URL, "here.parquet", **how), READING),
    "scrub": (lambda how: rpq.scrub("s3://bucket/", "scrub.state", **how), WRITING),
    "seal": (lambda how: rpq.seal("here.parquet", "s3://bucket/a.parquet", **how), WRITING),
    "compact": (lambda how: rpq.compact(URL, "s3://bucket/large/", **how), WRITING),
    "write": (lambda how: rpq.write(URL, {"a": [1]}, **how), WRITING),
    "create": (lambda how: entered(rpq.create(URL, **how)), WRITING),
    "create_or_resume": (lambda how: entered(rpq.create_or_resume(URL, **how)), WRITING),
    "create_dataset": (lambda how: entered(rpq.create_dataset("s3://bucket/days", **how)), WRITING),
    "resume": (lambda how: entered(rpq.resume(URL, **how)), WRITING),
    "append": (lambda how: entered(rpq.append(URL, **how)), WRITING),
    "resume_dataset": (lambda how: entered(rpq.resume_dataset("s3://bucket/days", **how)), WRITING),
    "write_metadata": (lambda how: rpq.write_metadata("s3://bucket/days", **how), WRITING),
    "rotate_master_keys": (lambda how: rpq.rotate_master_keys(URL, rpq.KeyTools(object()), **how), WRITING),
    "complete_upload": (lambda how: rpq.complete_upload(URL, **how), WRITING),
    "abort_upload": (lambda how: rpq.abort_upload(URL, **how), WRITING),
    "list_uploads": (lambda how: rpq.list_uploads("s3://bucket", **how), READING),
    "resume_info": (lambda how: rpq.resume_info(URL, **how), READING),
}


def test_every_call_that_takes_options_of_a_store_takes_a_policy() -> None:
    public = {name: getattr(rpq, name) for name in rpq.__all__} | {
        f"dask.{name}": getattr(dask_rpq, name) for name in dask_rpq.__all__
    }
    asking = {
        name
        for name, each in public.items()
        if inspect.isfunction(each) and "storage_options" in inspect.signature(each).parameters
    }
    assert {name for name in asking if "retry" not in inspect.signature(public[name]).parameters} == set()
    assert {name for name in asking if not name.startswith("dask.")} <= set(CALLS)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_as_patient_as_its_purpose(name: str, policies: list[RetryPolicy]) -> None:
    call, purpose = CALLS[name]
    with pytest.raises(ResilientPQError):
        await call({"storage_options": OPTIONS})
    assert set(policies) == {purpose}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_as_patient_as_it_is_told(name: str, policies: list[RetryPolicy]) -> None:
    call, _ = CALLS[name]
    told = RetryPolicy(seconds=7)
    with pytest.raises(ResilientPQError):
        await call({"storage_options": OPTIONS, "retry": told})
    assert set(policies) == {told}


async def test_what_is_no_policy() -> None:
    with pytest.raises(SchemaError, match="retry is 30"):
        await rpq.check(URL, retry=30)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [(["check", URL], 30), (["check", URL, "--retry-for", "300"], 300), (["uploads", "complete", URL], 120)],
)
def test_the_command_line(
    arguments: list[str],
    seconds: float,
    policies: list[RetryPolicy],
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run([*arguments, "--endpoint-url", OPTIONS["endpoint_url"]])
    assert code != 0
    assert {policy.seconds for policy in policies} == {seconds}
    capsys.readouterr()


def test_a_policy_travels_with_the_options() -> None:
    """To another process, too; and stores that are made of them take it out."""
    told = RetryPolicy(seconds=7)
    options = pickle.loads(pickle.dumps(with_retry({"key": "k"}, told)))
    store, _ = resolve(URL, options, retry=WRITING)
    assert isinstance(store, S3Store)
    assert store._attempts.policy == told


async def test_a_store_keeps_its_own_policy(policies: list[RetryPolicy]) -> None:
    async with S3Store(OPTIONS, retry=RetryPolicy(seconds=3)) as store:
        with pytest.raises(ResilientPQError):
            await rpq.check((store, "bucket/day.parquet"))
    assert {policy.seconds for policy in policies} == {3}
