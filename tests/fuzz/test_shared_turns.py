"""No connection holds the event loop by many requests at once, whatever their code and however large the tables.

Time is counted in calls of functions, which are the same on every machine.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from sprocket.common.clock import SystemClock
from sprocket.common.next_turn import SLICE_S
from sprocket.metrics.settings import ExporterType
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.routes import Route, RouteTable
from tests.broker.rig import running_broker
from tests.fuzz.large_tables import Size, fill_broker, fill_name_server, requests_of, routes_of
from tests.fuzz.loop_watch import LoopWatch
from tests.namesrv.site import Site

SIZE: Final = Size(300, 1_500, 20, 20, 150)
# So many calls count as a slice; they take some 5 ms, so that a request or a step of one fits.
SLICE_CALLS: Final = 10_000
REQUESTS: Final = 5
# A turn of the loop may end with one request, or one step of one, that begins before the slice ends.
_MAX_CALLS: Final = 3 * SLICE_CALLS


class CallClock(SystemClock):
    """Clock whose monotonic time counts the calls of functions in the thread of `counting`."""

    def __init__(self) -> None:
        self.calls = 0

    def monotonic(self) -> float:  # type: ignore[override]
        return self.calls * SLICE_S / SLICE_CALLS

    def _count(self, frame: object, event: str, argument: object) -> None:
        self.calls += event in ("call", "c_call")

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(before)


class Turned(NamedTuple):
    """Requests that were sent together: the most calls of one callback of the loop, and those of all callbacks."""

    code: RequestCode
    longest: int
    total: int
    fields: dict[str, str]


@asynccontextmanager
async def broker(folder: Path, clock: CallClock) -> AsyncIterator[tuple[int, RouteTable]]:
    async with running_broker(folder, clock=clock, enable_property_filter=True) as (server, _):
        fill_broker(server, SIZE)
        await server.topics.save()
        await server.groups.save()
        yield server.port, server.routes


@asynccontextmanager
async def name_server(folder: Path, clock: CallClock) -> AsyncIterator[tuple[int, RouteTable]]:
    site = Site(folder, {}, clock=clock)
    await site.server.start()
    try:
        fill_name_server(site.server, SIZE)
        yield site.server.port, site.server.routes
    finally:
        await site.client.close()
        await site.server.stop()


def send(port: int, content: bytes) -> None:
    """Send requests and the end of the stream; the server closes the connection when it has answered."""
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(content)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 20):
            pass


async def turned(port: int, routes: list[Route], clock: CallClock) -> list[Turned]:
    loop, watch, found = asyncio.get_running_loop(), LoopWatch(lambda: clock.calls), []
    with ThreadPoolExecutor(1) as thread, watch.watching(loop), clock.counting():
        for route in routes:
            for fields in requests_of(route):
                content = b"".join(encode_request(route.code, opaque, fields) for opaque in range(1, REQUESTS + 1))
                await asyncio.sleep(0)
                watch.reset()
                before = clock.calls
                await loop.run_in_executor(thread, send, port, content)
                found.append(Turned(route.code, int(watch.longest_s), clock.calls - before, fields))
    return found


SERVERS: Final[dict[str, Any]] = {"broker": broker, "name server": name_server}


async def test_scrapes_do_not_hold_the_loop(tmp_path: Path) -> None:
    clock = CallClock()
    settings = {"metrics_exporter_type": ExporterType.PROM, "metrics_prom_exporter_port": 0}
    async with running_broker(tmp_path, **settings) as (server, _):
        fill_broker(server, SIZE)
        watch = LoopWatch(lambda: clock.calls)
        with watch.watching(asyncio.get_running_loop()), clock.counting():
            pages = await asyncio.gather(*(asyncio.create_task(server.export.page()) for _ in range(5)))
    assert len(set(pages)) == 1
    assert pages[0].count(b"\nsprocket_consumer_queue_lag_messages{") > SIZE.queues
    assert clock.calls > 10 * SLICE_CALLS
    assert watch.longest_s <= _MAX_CALLS


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", SERVERS)
async def test_no_connection_holds_the_loop(tmp_path: Path, server: str) -> None:
    clock = CallClock()
    async with SERVERS[server](tmp_path, clock) as (port, table):
        found = await turned(port, routes_of(table), clock)
    assert max(one.total for one in found) > 10 * SLICE_CALLS  # so much must be shared
    too_long = sorted((one for one in found if one.longest > _MAX_CALLS), key=lambda one: -one.longest)
    assert not too_long, "\n".join(map(str, too_long))
