"""A proxy for HTTP before a real object store: it refuses, delays, repeats, cuts, loses answers, lies about sizes.

Also, if a test wants it always: it hangs, or forbids writes.
"""

import asyncio
import random
from collections import Counter

from aiohttp import ClientSession, ClientTimeout, web

_FAULTS = ("refuse", "delay", "repeat", "lose the answer", "cut", "lie")
# Headers that belong to one connection.
_OWN = {"connection", "transfer-encoding", "content-length", "content-encoding", "keep-alive"}


class HttpFaultProxy:
    """A proxy before `target`; of each request, the share `faults` goes wrong.  Start it in the test's loop.

    `always` is a fault that every request meets, until it is empty again.
    """

    def __init__(self, target: str, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self.faults = 0.0
        self.always = ""
        self.met: Counter[str] = Counter()
        self.served: Counter[str] = Counter()  # by method; LIST is a GET that lists, DELETE also a POST that deletes
        self.address = ""

    async def __aenter__(self) -> "HttpFaultProxy":
        self._session = ClientSession(timeout=ClientTimeout(total=20), auto_decompress=False)
        loop = asyncio.get_running_loop()
        server = web.Server(
            self._serve, request_factory=lambda *parts: web.BaseRequest(*parts, loop, client_max_size=1 << 30)
        )
        self._runner = web.ServerRunner(server)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.address = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.always = ""
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        asked = str(request.rel_url)
        self.served["LIST" if "list-type" in asked else "DELETE" if asked.endswith("?delete") else request.method] += 1
        fault = self.always or (self._random.choice(_FAULTS) if self._random.random() < self.faults else "")
        self.met[fault] += 1
        while fault == "hang" and self.always:
            await asyncio.sleep(0.02)
        if fault == "forbid" and request.method not in ("GET", "HEAD"):
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        if fault == "refuse":
            return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
        if fault == "delay":
            await asyncio.sleep(self._random.random() / 20)
        if fault == "repeat":
            await self._forward(request, body)
        status, headers, content = await self._forward(request, body)
        if fault == "lose the answer":
            return self._cut_off(request)
        if request.method == "HEAD":
            return web.Response(status=status, headers=headers)
        headers.pop("Content-Length", None)
        if fault in ("cut", "lie") and content:
            # It promises all of it, or more than there is, and ends early.
            more = 7 if fault == "lie" else 0
            response = web.StreamResponse(status=status, headers=headers)
            response.content_length = len(content) + more
            await response.prepare(request)
            await response.write(content if more else content[: len(content) // 2])
            return self._cut_off(request)
        return web.Response(status=status, headers=headers, body=content)

    async def _forward(self, request: web.BaseRequest, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
        async with self._session.request(
            request.method, self._target + str(request.rel_url),
            headers=headers, data=body,
        ) as answer:  # fmt: skip
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
            if request.method == "HEAD" and "Content-Length" in answer.headers:
                kept["Content-Length"] = answer.headers["Content-Length"]
            return answer.status, kept, await answer.read()

    def _cut_off(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
