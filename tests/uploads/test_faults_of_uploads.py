"""Whatever breaks a request of an upload: the object is exactly right, or the error is clear and nothing stored is lost."""

from __future__ import annotations

import asyncio
import io
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sampled import either

import resilient_pq as rpq
from resilient_pq.io import ObjectSink, SinkOptions, StoredState
from resilient_pq.io.s3.s3_store import S3Store
from resilient_pq.io.transfer.retry import RetryPolicy
from resilient_pq.units import MiB

GRACE = 0.5  # seconds
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>said so</Message></Error>"

#: What is asked of the server: its method, and part of its target.
OPERATIONS = {
    "create": ("POST", "?uploads"),
    "part": ("PUT", "partNumber="),
    "list": ("GET", "uploadId="),
    "complete": ("POST", "uploadId="),
    "abort": ("DELETE", "uploadId="),
}
FAULTS: dict[str, dict[str, Any]] = {
    "500": {"status": 500, "body": ERROR % b"InternalError"},
    "503": {"status": 503, "body": ERROR % b"SlowDown"},
    "429": {"status": 429, "headers": {"Retry-After": "0.05"}, "body": ERROR % b"TooManyRequests"},
    "an error in 200": {"status": 200, "body": ERROR % b"InternalError"},
    "403": {"status": 403, "body": ERROR % b"AccessDenied"},
    "reset before": {"reset": True},
    "reset after": {"lose_reply": True},
    "hang before": {"hang": True},
    "hang after": {"hang_reply": True},
    "cut request": {"cut_request": 0},
    "cut answer": {"cut_after": 5},
    "late": {"late": True},
    "duplicate": {"duplicate": True},
    "conditions ignored": {"drop_headers": ("If-Match", "If-None-Match")},
}
MATRIX = list(itertools.product(OPERATIONS, FAULTS, (1, 1000)))
QUICK = [("part", "late", 1), ("part", "500", 1000), ("complete", "reset after", 1)]


class PatientStore(S3Store):
    """S3 that is given up soon."""

    async def create(self, key: str, options: SinkOptions = SinkOptions()) -> ObjectSink:  # noqa: B008
        return await super().create(key, replace(options, undecided_grace=GRACE))


@cache
def rows(number: int) -> pa.Table:
    """The n-th batch: 3 MiB that do not compress."""
    rng = random.Random(number)
    noise = pa.array([rng.randbytes(100_000) for _ in range(31)], pa.binary())
    return pa.table({"id": pa.array(range(31 * number, 31 * (number + 1))), "noise": noise})


@dataclass
class Written:
    """What a writer did."""

    num_batches: int = 0
    num_rows_promised: int = 0
    error: BaseException | None = None
    states: list[StoredState] = field(default_factory=list)

    def said(self) -> str:
        """All that the error says."""
        assert self.error is not None
        return "\n".join([str(self.error), *getattr(self.error, "__notes__", [])])


class StopError(Exception):
    """What a caller raises while it writes."""


@pytest.fixture
def write(s3_proxy: Any, rows_promised: Callable[[Any], int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Writes six batches and a checkpoint after every second, with faults from some batch on."""
    s3, _ = s3_proxy
    monkeypatch.setattr("resilient_pq.io.s3.s3_client.PROGRESS_SECONDS", 2)
    retry = RetryPolicy(attempts=3, base_delay=0.001, max_delay=0.01)

    async def run(begin_faults: Callable[[], None], at: int, *, stop: bool, on_error: str) -> Written:
        written = Written()
        options = {**s3.storage_options, "config_kwargs": {"read_timeout": 2}}
        async with PatientStore(options, retry=retry) as store:
            try:
                async with rpq.create(
                    (store, f"{s3.bucket}/a"),
                    compression="none",
                    checkpoint_every=None,
                    on_error=on_error,  # type: ignore[arg-type]
                    options=rpq.WriteOptions(part_bytes=5 * MiB, max_bytes_in_flight=10 * MiB),
                ) as writer:
                    for number in range(6):
                        if number == at:
                            begin_faults()
                        await writer.write(rows(number))
                        written.num_batches += 1
                        if number % 2:
                            written.states.append((await writer.checkpoint()).state)
                            written.num_rows_promised = rows_promised(writer)
                    if stop:
                        raise StopError("stop")
            except Exception as error:
                written.error = error
        return written

    return run


@pytest.fixture
def examine(s3_proxy: Any, complete_by_the_rule: Callable[..., Any]) -> Callable[[Written], str]:
    """What is at the server after a writer, as pyarrow reads it."""
    s3, _ = s3_proxy

    def look(written: Written) -> str:
        outcome = "published"
        if "a" not in s3.object_names():
            assert written.error is not None
            # More than one when the answers to the requests that began them were lost: nothing is in those.
            completed = [upload for upload in s3.upload_ids() if complete_by_the_rule(s3, "a", upload)]
            assert bool(written.num_rows_promised) <= len(completed) <= 1
            if not completed:
                return "nothing"
            assert completed[0] in written.said() or not written.num_rows_promised
            outcome = "rescued"
        found = pq.read_table(io.BytesIO(s3.read("a")))
        wanted = pa.concat_tables([rows(number) for number in range(6)]).slice(0, found.num_rows)
        assert found.equals(wanted)
        if outcome == "published":
            assert found.num_rows == 6 * 31
        assert found.num_rows >= written.num_rows_promised
        return outcome

    return look


async def break_requests(operation: str, fault: str, times: int, s3_proxy: Any, write: Any, examine: Any) -> str:
    _, proxy = s3_proxy
    method, match = OPERATIONS[operation]
    stop = operation == "abort"
    written = await write(
        lambda: proxy.on(method, match=match, times=times, **FAULTS[fault]),
        at=0 if operation == "create" else 2,
        stop=stop,
        on_error="abort" if stop else "keep",
    )
    assert written.states == [StoredState.STORED] * len(written.states)
    await asyncio.to_thread(proxy.wait_until_idle, seconds=5)
    assert proxy.num_in_flight == 0
    if stop:
        written.num_rows_promised = 0  # the caller wanted none of them
    if written.error is not None and not isinstance(written.error, StopError):
        assert isinstance(written.error, rpq.ResilientPQError)
    await asyncio.to_thread(proxy.release)
    outcome: str = examine(written)
    if written.error is None:
        assert outcome == "published"
    if times == 1 and not stop and fault != "403":
        assert written.error is None, written.said()
    return outcome


@pytest.mark.parametrize(("operation", "fault", "times"), either(QUICK, MATRIX))
async def test_a_broken_request(
    operation: str, fault: str, times: int, s3_proxy: Any, write: Any, examine: Any
) -> None:
    await break_requests(operation, fault, times, s3_proxy, write, examine)


async def test_a_part_that_lands_late_replaces_nothing(
    s3_proxy: Any,
    rows_promised: Callable[[Any], int],
    complete_by_the_rule: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The open slot is sent, not answered, sent again, and lands once more while the next checkpoint is committed."""
    s3, proxy = s3_proxy
    retry = RetryPolicy(attempts=2, base_delay=0.001, max_delay=0.01)
    monkeypatch.setitem(globals(), "GRACE", 4.0)  # it is counted from the attempt that was not answered

    def release_when_other_bytes_are_sent() -> list[int]:
        proxy.wait_for("PUT", "partNumber=1", count=proxy.count("PUT", "partNumber=1") + 1, seconds=GRACE / 8)
        return list(proxy.release())

    async def write(store: S3Store) -> None:
        async with rpq.create(
            (store, f"{s3.bucket}/a"),
            compression="none",
            options=rpq.WriteOptions(part_bytes=5 * MiB),
        ) as writer:
            await writer.write(rows(0))
            proxy.on("PUT", match="partNumber=1", late=True)
            await writer.checkpoint()
            await writer.write(rows(1))
            landing = asyncio.create_task(asyncio.to_thread(release_when_other_bytes_are_sent))
            checkpoint = await writer.checkpoint()
            assert checkpoint.state is StoredState.STORED
            assert await landing == [200]
            assert rows_promised(writer) == 62
            raise StopError("stop")

    async with PatientStore(s3.storage_options, retry=retry) as store:
        with pytest.raises(StopError):
            await write(store)
    (upload_id,) = s3.upload_ids()
    data = complete_by_the_rule(s3, "a", upload_id)
    assert pq.read_table(io.BytesIO(data)).equals(pa.concat_tables([rows(0), rows(1)]).combine_chunks())


@pytest.mark.parametrize("how", ["completed", "aborted"])
async def test_an_upload_that_somebody_else_ended(how: str, s3: Any, complete_by_the_rule: Callable[..., Any]) -> None:
    """The writer is told so, and leaves alone what the other one made of it."""
    if s3.server == "moto":
        pytest.skip("moto answers 500 to a part of an upload that is gone")

    async def write() -> None:
        async with rpq.create(
            s3.url("a"),
            compression="none",
            storage_options=s3.storage_options,
            options=rpq.WriteOptions(part_bytes=5 * MiB),
        ) as writer:
            await writer.write(rows(0))
            await writer.checkpoint()
            (upload_id,) = s3.upload_ids()
            if how == "completed":
                complete_by_the_rule(s3, "a", upload_id)
            else:
                s3.client.abort_multipart_upload(Bucket=s3.bucket, Key="a", UploadId=upload_id)
            for number in range(1, 6):
                await writer.write(rows(number))
                await writer.checkpoint()

    with pytest.raises(rpq.WriterFencedError, match="a"):
        await write()
    assert s3.upload_ids() == []
    if how == "completed":
        assert pq.read_table(io.BytesIO(s3.read("a"))).equals(rows(0))
    else:
        assert s3.object_names() == []
