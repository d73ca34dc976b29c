"""A gRPC server in a process of its own, for attacks:  python -m tests.proxy.server.attacked SERVER [OPEN_FILES]

It prints its port, and ends with its standard input.  `/Test/Echo` answers a request, `/Test/Large` answers with 1 MiB,
and `/Test/Stream` writes 64 KiB until it is ended.  Answers that wait may have `ANSWERS_BYTES`.
"""

import asyncio
import resource
import sys

import uvloop

from proxy.config import ProxyConfig
from proxy.server.byte_budget import ByteBudget
from proxy.server.choice import make_server
from proxy.server.protocol import Exchange, Handler

LARGE_BYTES = 1 << 20
ANSWERS_BYTES = 8 << 20


async def _echo(exchange: Exchange) -> bytes:
    raw = await exchange.read()
    return raw if type(raw) is bytes else b"nothing"


async def _large(exchange: Exchange) -> bytes:
    await exchange.read()
    return bytes(LARGE_BYTES)


async def _stream(exchange: Exchange) -> None:
    while True:
        await exchange.write(bytes(64 * 1024))


async def _serve(kind: str) -> None:
    handlers = {"Echo": Handler(_echo, True), "Large": Handler(_large, True), "Stream": Handler(_stream, False)}
    # Calls that are not read end soon.
    config = ProxyConfig(grpc_server=kind, grpc_write_timeout_millis=1000)
    paths = {f"/Test/{name}": one for name, one in handlers.items()}
    server = make_server(paths, config, ByteBudget(ANSWERS_BYTES), is_shared=False)
    port = server.listen("127.0.0.1", 0)
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
    uvloop.run(_serve(sys.argv[1]))
