"""No promise where nobody could find what is promised: stores that take parts and list none of them, or no uploads."""

from __future__ import annotations

import random
from typing import Any

import pytest

from resilient_pq.errors import (
    AccessDeniedError,
    NotFoundError,
    StoreError,
    TransientError,
    UnsupportedError,
    WriterFencedError,
)
from resilient_pq.io import (
    MemoryStore,
    MultipartSink,
    Part,
    RetryPolicy,
    S3Store,
    SinkOptions,
    StoredState,
    UploadInfo,
)
from resilient_pq.io.upload.upload_start import findable_parts
from resilient_pq.units import GiB, MiB

SMALL = SinkOptions(part_bytes=MiB, max_part_bytes=4 * MiB, max_bytes_in_flight=3 * MiB)
DATA = random.Random(5).randbytes(3 * MiB + 5)


class Listing(MemoryStore):
    """A store with listings that tests replace, and how often each was asked for."""

    def __init__(self, *, parts: Any = None, uploads: Any = None) -> None:
        super().__init__()
        self._parts, self._uploads_answer = parts, uploads
        self.asked = {"parts": 0, "uploads": 0}

    async def list_parts(self, key: str, upload_id: str) -> list[Part]:
        self.asked["parts"] += 1
        return self._answer(self._parts, self.asked["parts"], await super().list_parts(key, upload_id))

    async def list_uploads(self, prefix: str) -> list[UploadInfo]:
        self.asked["uploads"] += 1
        return self._answer(self._uploads_answer, self.asked["uploads"], await super().list_uploads(prefix))

    @staticmethod
    def _answer(told: Any, number: int, found: Any) -> Any:
        if isinstance(told, Exception):
            raise told
        return found if told is None else told(number, found)


def nothing(_: int, __: Any) -> list[Any]:
    return []


def late(number: int, found: list[Any]) -> list[Any]:
    return found if number > 2 else []


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resilient_pq.io.upload.upload_start._WAITS", (0.0, 0.001, 0.001, 0.001))


CANNOT: dict[str, dict[str, Any]] = {
    "parts are not listed": {"parts": UnsupportedError("501")},
    "uploads are not listed": {"uploads": UnsupportedError("501")},
    "uploads are refused": {"uploads": StoreError("400")},
    "uploads are taken for something else": {"uploads": NotFoundError("no such key")},
    "no upload is ever listed": {"uploads": nothing},
    "no part is ever listed": {"parts": nothing},
    "an upload without its parts": {"parts": NotFoundError("no such upload")},
}


@pytest.mark.parametrize("answers", CANNOT.values(), ids=CANNOT)
async def test_nothing_is_promised(answers: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    store = Listing(**answers)
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(DATA)
    assert await sink.commit() is StoredState.ACCEPTED
    assert sink.num_bytes_stored == 0
    await sink.write(DATA)
    assert await sink.commit() is StoredState.ACCEPTED
    assert sink.num_bytes_resent <= len(DATA), "what promises nothing is not sent twice for it"
    asked = dict(store.asked)
    assert await sink.commit() is StoredState.ACCEPTED
    assert store.asked == asked, "it was asked for all"
    assert caplog.text.count("nothing is stored before it is complete") == 1
    store._parts = None
    await sink.complete()
    assert bytes((await store.read_tail("a", GiB)).data) == DATA * 2


@pytest.mark.parametrize(
    ("answers", "times"),
    [({}, 1), ({"uploads": late}, 3), ({"parts": late}, 3), ({"uploads": AccessDeniedError("403")}, 1)],
    ids=["at once", "uploads late", "parts late", "denied"],
)
async def test_what_can_be_found_is_promised(
    answers: dict[str, Any], times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where the listing is a little late, or is for others to see."""
    store = Listing(**answers)
    sink = MultipartSink(store, "a", SMALL)
    for number in range(1, 4):
        await sink.write(DATA)
        assert await sink.commit() is StoredState.STORED
        assert sink.num_bytes_stored == number * len(DATA)
    assert store.asked["parts"] == times, "it is asked before the first promise alone"
    assert "nothing is stored" not in caplog.text
    await sink.abort()


async def test_credentials_that_may_not_list_parts(caplog: pytest.LogCaptureFixture) -> None:
    """The parts are there, and others may list them: this is told, once."""
    sink = MultipartSink(Listing(parts=AccessDeniedError("403")), "a", SMALL)
    for _ in range(2):
        await sink.write(DATA)
        assert await sink.commit() is StoredState.STORED
    assert caplog.text.count("resuming it needs the right to list parts") == 1
    await sink.abort()


async def test_an_upload_that_is_gone_before_the_first_promise() -> None:
    store = Listing()

    def gone(_: int, __: Any) -> Any:
        raise NotFoundError("no such upload")

    sink = MultipartSink(store, "a", SMALL)
    store._parts, store._uploads_answer = gone, nothing
    await sink.write(DATA)
    with pytest.raises(WriterFencedError, match="completed or aborted by somebody else"):
        await sink.commit()
    await sink.keep()


async def test_a_part_that_the_store_acknowledged_and_does_not_list() -> None:
    """It is sent again before anything is promised."""

    def without_the_first(number: int, found: list[Part]) -> list[Part]:
        return [part for part in found if number > 1 or part.number > 1]

    store = Listing(parts=without_the_first)
    sink = MultipartSink(store, "a", SMALL)
    await sink.write(DATA)
    assert await sink.commit() is StoredState.STORED
    assert store.asked["parts"] == 2
    await sink.abort()


async def test_a_store_that_does_not_answer_makes_no_promise() -> None:
    with pytest.raises(TransientError):
        await findable_parts(*await open_upload(Listing(uploads=TransientError("reset"))))
    with pytest.raises(TransientError):
        await findable_parts(*await open_upload(Listing(parts=TransientError("reset"))))


async def open_upload(store: Listing) -> tuple[Listing, str, str]:
    return store, "a", await store.create_upload("a")


# -- on a server ---------------------------------------------------------------------------------


def answering(status: int, code: str) -> dict[str, Any]:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>so it says</Message></Error>"
    return {"status": status, "body": body.encode()}


EMPTY = b'<?xml version="1.0"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated></ListBucketResult>'
Answer = dict[str, Any]


@pytest.mark.parametrize("match", ["uploads", "uploadId"])
@pytest.mark.parametrize(
    "answer",
    [answering(501, "NotImplemented"), answering(404, "NoSuchKey"), {"status": 200, "body": EMPTY}],
    ids=["501", "no such key", "something else"],
)
async def test_servers_that_know_no_listings(moto_proxy: Any, match: str, answer: Answer) -> None:
    """An object server that somebody has taught multipart uploads, but for what only a recovery needs."""
    s3, proxy = moto_proxy
    retry = RetryPolicy(attempts=3, base_delay=0.001)
    async with S3Store(s3.storage_options, retry=retry) as store:
        proxy.on("GET", match=match, times=1000, **answer)
        sink = await store.create(f"{s3.bucket}/unlisted")
        await sink.write(bytes(6 * MiB), b"1")
        assert await sink.commit() is StoredState.ACCEPTED
        await sink.abort()


async def test_a_server_that_lists(s3: Any) -> None:
    async with S3Store(s3.storage_options) as store:
        sink = await store.create(s3.url("listed").removeprefix("s3://"))
        await sink.write(bytes(6 * MiB), b"1")
        assert await sink.commit() is StoredState.STORED
        await sink.abort()
