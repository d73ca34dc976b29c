"""No request holds the event loop of a broker or a name server for long, whatever it carries.

The test tries the codes whose bodies are read; the command tries every code, also with the longest headers.
`python -m tests.fuzz.test_loop_stalls [MILLISECONDS [CODE ...]]` lists the requests that hold it for longer.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.routes import Route, RouteTable
from tests.broker.rig import create, running_broker
from tests.fuzz.largest_requests import SPECIAL, bodies_of, compressed_flag, fields_of, long_fields
from tests.fuzz.loop_watch import slowness, watched
from tests.namesrv.site import site_at

LIMIT_S = 0.050
# A busy machine has cold caches and a slower clock than the calibration saw.
_SLACK = 3.0
_MAX_UNANSWERED = 1


class Stall(NamedTuple):
    """A request that held the loop, for how many seconds, and what it was answered."""

    seconds: float
    code: RequestCode
    name: str
    answer: str

    def __str__(self) -> str:
        return f"{self.seconds * 1000:9.1f} ms {self.code.name:40} {self.name:24} {self.answer[:90]}"


@contextmanager
def logged_to(path: Path) -> Iterator[None]:
    """Write INFO lines to a file, as a server does."""
    handler, root = logging.FileHandler(path), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


async def stalls(port: int, routes: Collection[Route], *, fields: bool = False) -> list[Stall]:
    """Every request that was tried, with how long it held the loop."""
    found = []
    async with watched(port) as ask:
        for route in sorted(routes, key=lambda route: int(route.code)):
            unanswered = 0
            for name, header, make in _requests(route, fields=fields):
                seconds, answer, remark = await ask(int(route.code), header, make)
                found.append(Stall(seconds, route.code, name, f"{answer} {remark}"))
                unanswered += "timed out" in remark
                if unanswered == _MAX_UNANSWERED:
                    break  # it is answered later, or never: nothing is learnt from more
    return found


def _requests(route: Route, *, fields: bool) -> Iterator[tuple[str, dict[str, str], Callable[[], bytes]]]:
    if fields:
        for name, header in long_fields(route):
            yield name, header, bytes
        return
    code, usual = int(route.code), fields_of(route)
    for name, make in bodies_of(code):
        yield name, usual | compressed_flag(code, name), make


@asynccontextmanager
async def known_broker(folder: Path) -> AsyncIterator[tuple[int, RouteTable]]:
    """A broker with a topic and a group; port and routes."""
    async with running_broker(folder, enable_property_filter=True) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.heartbeat("known", "Orders")
        yield broker.port, broker.routes


@asynccontextmanager
async def known_name_server(folder: Path) -> AsyncIterator[tuple[int, RouteTable]]:
    """A name server with a broker; port and routes."""
    async with site_at(folder) as site:
        await site.register()
        yield site.server.port, site.server.routes


SERVERS = {"broker": known_broker, "name server": known_name_server}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", SERVERS)
async def test_no_request_holds_the_loop(tmp_path: Path, server: str) -> None:
    with logged_to(tmp_path / "server.log"):
        async with SERVERS[server](tmp_path) as (port, routes):
            found = await stalls(port, [route for route in routes.routes if route.code in SPECIAL])
    limit_s = LIMIT_S * slowness() * _SLACK
    assert found
    too_long = sorted((one for one in found if one.seconds > limit_s), reverse=True)
    assert not too_long, f"longer than {limit_s * 1000:.0f} ms:\n" + "\n".join(map(str, too_long))


async def _main(limit_ms: float, codes: Collection[int]) -> None:
    for name, server in SERVERS.items():
        for fields in (False, True):
            with tempfile.TemporaryDirectory() as folder, logged_to(Path(folder) / "server.log"):
                async with server(Path(folder)) as (port, routes):
                    wanted = [route for route in routes.routes if not codes or int(route.code) in codes]
                    found = await stalls(port, wanted, fields=fields)
                log_bytes = (Path(folder) / "server.log").stat().st_size
            print(f"{name}: {len(found)} requests, {log_bytes} bytes of log, slowness {slowness():.2f}")
            for one in sorted(found, reverse=True):
                if one.seconds * 1000 >= limit_ms:
                    print(one, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(float(sys.argv[1]) if len(sys.argv) > 1 else 50.0, {int(code) for code in sys.argv[2:]}))
