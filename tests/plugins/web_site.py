"""A web server with one file, which keeps to the standard or breaks it as it is told to."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class Site:
    """One file on a web server, and how the server behaves."""

    data: bytes = bytes(range(256)) * 400
    etag: str | None = '"v1"'
    last_modified: str | None = None
    ranges: bool = True  # Ranges are heeded; else the whole file is sent
    # What a suffix is answered with: the end of the file, its beginning, all of it, or 416
    suffixes: Literal["end", "begin", "whole", "none"] = "end"
    long_suffixes: bool = True  # A suffix longer than the file is the file; else it is refused
    conditions: bool = True  # If-Match and If-Unmodified-Since are heeded
    part_status: int = 206  # Of an answer that is a part
    # What it is said to be, with the offsets and the size put in; an empty one is not sent
    content_range: str = "bytes {begin}-{last}/{size}"
    etag_of_parts: bool = True  # An answer that is a part names its ETag
    length: bool = True  # Answers announce their length
    whole_bodies: bool = False  # An answer that is a part, and says so, has the whole file in it
    encoding: str | None = None
    statuses: list[int] = field(default_factory=list)  # Of the next answers, 200 for one as usual
    cut_to: list[int] = field(default_factory=list)  # Bytes of the next answers, before the connection breaks
    # Bytes that the next answers lack, which end as if they were whole
    short_by: list[int] = field(default_factory=list)
    earlier: int = 0  # Bytes before those asked for that an answer begins with, and says so
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # Method and headers of every request
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, dict(request.headers)))
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return web.Response(status=status, headers={"Retry-After": "0"})
        if self.conditions and request.headers.get("If-Match", self.etag) != self.etag:
            return web.Response(status=412)
        if self.conditions and request.headers.get("If-Unmodified-Since", self.last_modified) != self.last_modified:
            return web.Response(status=412)
        begin, end, status = self.range_of(request.headers.get("Range"))
        if status == 416:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(self.data)}"})
        begin = max(0, begin - self.earlier)
        is_part, status = status == 206, self.part_status if status == 206 else status
        etag = self.etag if self.etag_of_parts or not is_part else None
        names = {"ETag": etag, "Last-Modified": self.last_modified, "Content-Encoding": self.encoding}
        response = web.StreamResponse(
            status=status, headers={name: value for name, value in names.items() if value is not None}
        )
        if is_part and self.content_range:
            told = self.content_range.format(begin=begin, last=end - 1, size=len(self.data))
            response.headers["Content-Range"] = told
        body = self.data if self.whole_bodies else self.data[begin:end]
        short_by = self.short_by.pop(0) if self.short_by and request.method == "GET" else 0
        body = body[: len(body) - short_by]
        if self.length and not short_by:
            response.content_length = len(body)
        else:
            response.enable_chunked_encoding()
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        if self.cut_to:
            await response.write(body[: self.cut_to.pop(0)])
            assert request.transport is not None
            request.transport.close()
            return response
        await response.write(body)
        return response

    def range_of(self, header: str | None) -> tuple[int, int, int]:
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
        if match is None or not self.ranges or (not match[1] and self.suffixes == "whole"):
            return 0, len(self.data), 200
        if not match[1]:
            size = int(match[2])
            if self.suffixes == "none" or (size > len(self.data) and not self.long_suffixes):
                return 0, 0, 416
            begin, end = max(0, len(self.data) - size), len(self.data)
            if self.suffixes == "begin":
                begin, end = 0, min(size + 1, len(self.data))
        else:
            begin, end = int(match[1]), min(int(match[2]) + 1, len(self.data))
        return (begin, end, 206) if begin < end else (0, 0, 416)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    found = Site()
    app = web.Application()
    app.router.add_get("/a.parquet", found.answer)
    async with TestServer(app) as server:
        found.url = str(server.make_url("/a.parquet"))
        yield found
