"""Headless Chromium, driven over the DevTools protocol."""

# ruff: noqa: ASYNC240 - a test waits for a small file of another process

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--hide-scrollbars", "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip
_LIMIT_S = 60.0


class Tab:
    """One tab.  `complaints` are errors, warnings and breaches of the content security policy."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                continue
            told: dict[str, Any] = message.json()
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
                continue
            method, values = told["method"], told.get("params", {})
            if method == "Page.loadEventFired":
                self._loaded.set()
            elif method == "Runtime.exceptionThrown":
                self.complaints.append(str(values["exceptionDetails"]))
            elif method == "Log.entryAdded":
                self.complaints.append(str(values["entry"]["text"]))
            elif method == "Network.requestWillBeSent":
                self.requested.append(values["request"]["url"])

    async def ask(self, method: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": values})
        told = await asyncio.wait_for(answer, _LIMIT_S)
        assert "error" not in told, (method, told)
        result: dict[str, Any] = told["result"]
        return result

    async def start(self) -> None:
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.ask(f"{domain}.enable")

    async def look(self, *, width: int, is_dark: bool) -> None:
        is_phone = width < 600
        await self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.ask("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, url: str) -> None:
        self._loaded.clear()
        await self.ask("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), _LIMIT_S)

    async def value(self, expression: str) -> Any:
        told = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def click(self, selector: str) -> None:
        """Click an element that opens a page, and wait for the page."""
        self._loaded.clear()
        await self.value(f"document.querySelector({selector!r}).click()")
        await asyncio.wait_for(self._loaded.wait(), _LIMIT_S)

    async def picture(self, path: Path, *, height: int) -> None:
        told = await self.ask(
            "Page.captureScreenshot", format="webp", quality=70, captureBeyondViewport=True,
            clip={"x": 0, "y": 0, "width": await self.value("innerWidth"), "height": height, "scale": 1},
        )  # fmt: skip
        path.write_bytes(base64.b64decode(told["data"]))

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        await self._socket.close()


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Tab]:
    """Run Chromium with a new profile in `folder`."""
    assert CHROMIUM
    profile = folder / "profile"
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        port = await _port(profile / "DevToolsActivePort", process)
        async with ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
            socket = await http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=1 << 26)
            tab = Tab(socket)
            await tab.start()
            try:
                yield tab
            finally:
                await tab.close()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _port(file: Path, process: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(_LIMIT_S):
        while not (file.exists() and file.read_text().strip()):
            assert process.returncode is None, "Chromium has ended"
            await asyncio.sleep(0.05)
    return int(file.read_text().split()[0])
