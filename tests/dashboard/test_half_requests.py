"""Visitors of the dashboard that begin a request and never end it."""

import asyncio
import resource
from collections.abc import Iterator

import pytest

from sprocket.testing import Broker
from tests.dashboard.rig import running

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Never-Ends: "
# More than it has places for.
STRANGERS = 600


@pytest.fixture(autouse=True)
def descriptors_of_both_ends() -> Iterator[None]:
    """The process of the test has both ends of each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(soft, 2 * STRANGERS + 400)
    if hard < needed:
        pytest.skip(f"this machine allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_half_requests_leave_the_dashboard_to_others(broker: Broker) -> None:
    async with running(broker.namesrv) as (dashboard, visitor):
        writers = []
        for _ in range(STRANGERS):
            _, writer = await asyncio.open_connection("127.0.0.1", dashboard.port)
            writer.write(HALF)
            writers.append(writer)
        assert (await visitor.get("/")).status == 200
        for writer in writers:
            writer.close()
