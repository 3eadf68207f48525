"""Headless Chromium, driven by its own protocol: what a page looks like, says, logs and asks for.

Skips where there is no Chromium; RPQ_REQUIRE_CHROMIUM=1 fails there instead.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Page:
    """A tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.logged: list[str] = []  # What its console said, and its exceptions
        self.requests: list[str] = []  # URLs that it asked for
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
                continue
            match said["method"]:
                case "Network.requestWillBeSent":
                    self.requests.append(said["params"]["request"]["url"])
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                    self.logged.append(str(said["params"]))
                case "Page.loadEventFired":
                    self._loaded.set()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol."""
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        said = await asyncio.wait_for(answer, 60)
        assert "error" not in said, said
        return dict(said["result"])

    async def open(
        self, path: Path, *, fragment: str = "", width: int = 1280, height: int = 900, dark: bool = False,
        media: str = "", scripts: bool = True,
    ) -> None:  # fmt: skip
        """Show a file, and wait until it is loaded and its script has run."""
        phone = width < 700
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        await self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        # A page that differs in its fragment alone would not be loaded again.
        for url in ("about:blank", f"{path.as_uri()}{fragment}"):
            self._loaded.clear()
            await self.call("Page.navigate", url=url)
            await asyncio.wait_for(self._loaded.wait(), 60)
        if scripts:
            await self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, awaited."""
        said = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        x, y = await self.evaluate(
            f"(() => {{ const e = document.querySelector({selector!r}); e.scrollIntoView({{block: 'center'}});"
            " const at = e.getBoundingClientRect(); return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    async def press(self, key: str) -> None:
        """Press a key and let go of it."""
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    async def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """What is to be seen, as PNG."""
        said = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(said["data"]))

    async def close(self) -> None:
        """Close the tab."""
        await self._socket.close()
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


def _chromium() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        why = "there is no Chromium here (Debian's package is called chromium)"
        if os.environ.get("RPQ_REQUIRE_CHROMIUM") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return found


@pytest.fixture(scope="session")
def browser_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Chromium that all tests share."""
    profile = tmp_path_factory.mktemp("chromium")
    command = [
        _chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
        "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    said = profile / "stderr"
    with said.open("wb") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
    try:
        told = profile / "DevToolsActivePort"
        until = time.monotonic() + 60
        while not (told.exists() and told.read_text().count("\n")):
            assert process.poll() is None and time.monotonic() < until, said.read_text(errors="replace")
            time.sleep(0.05)
        yield int(told.read_text().split()[0])
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
async def browser_page(browser_port: int) -> AsyncIterator[Page]:
    """A tab of its own for each test."""
    base = f"http://127.0.0.1:{browser_port}"
    async with aiohttp.ClientSession() as session:
        async with session.put(f"{base}/json/new?about:blank") as answer:
            target = await answer.json(content_type=None)
        socket = await session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=1 << 28)
        page = Page(socket)
        yield page
        await page.close()
        async with session.get(f"{base}/json/close/{target['id']}"):
            pass
