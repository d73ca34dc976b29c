"""Every code of broker, name server and controller with hostile fields and bodies: answers, no undeclared error.

An exception that nobody declared is logged as ``handler_failed`` and told to the peer by its class; here it fails.
`python -m tests.fuzz.test_every_code COUNT SEED` sends so many of each code.
"""

import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from sprocket.common.errors import ClientError
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.routes import RouteTable
from tests.broker.rig import create, running_broker
from tests.controller.site import group_of
from tests.controller.site import site_at as controller_at
from tests.fuzz.hostile_requests import HostileRequest, hostile_requests
from tests.namesrv.site import site_at

# They are waited for by nobody: a pull that is held, a pop, a notification, a question to a client that is not there.
WAIT_S = 0.2


class Undeclared(logging.Handler):
    """Collects what was logged of exceptions that nobody declared."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


async def ask_everything(address: str, table: RouteTable, count: int, seed: int) -> Counter[int]:
    """Send `count` hostile requests of each code over connections that may be closed for it; answers by code."""
    answers: Counter[int] = Counter()
    client = RemotingClient()
    for route in sorted(table.routes, key=lambda route: int(route.code)):
        dice = random.Random(seed * 100_000 + int(route.code))
        requests = list(hostile_requests(route, count, dice))
        channel = await client.channel(address)
        pending = [ask(channel, one) for one in requests]
        done, _ = await asyncio.wait([asyncio.ensure_future(one) for one in pending], timeout=10)
        for one in done:
            try:
                answers[one.result().code] += 1
            except ClientError:
                answers[-1] += 1
    await client.close()
    return answers


async def ask(channel: RemotingChannel, one: HostileRequest) -> ReceivedResponse:
    fields: Mapping[str, str] = one.fields
    return await channel.request(one.code, fields, one.body, timeout_s=WAIT_S, serialization=one.serialization)


async def attack_broker(folder: Path, count: int, seed: int) -> tuple[Counter[int], list[str]]:
    """What a broker answered, and what it did not expect."""
    undeclared = Undeclared()
    logging.getLogger().addHandler(undeclared)
    try:
        async with running_broker(folder, enable_property_filter=True) as (broker, client):
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
            for number in range(3):
                await client.send(b"body%d" % number)
            answers = await ask_everything(broker.address, broker.routes, count, seed)
            # It still serves who means well.
            await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Healthy"))
            await client.send(b"after", "Healthy")
            assert (await client.pull("Healthy")).code == ResponseCode.SUCCESS
        # Nor is anything written down that the next start refuses.
        async with running_broker(folder) as (_, client):
            assert (await client.pull("Healthy")).code == ResponseCode.SUCCESS
    finally:
        logging.getLogger().removeHandler(undeclared)
    return answers, undeclared.found


async def attack_name_server(folder: Path, count: int, seed: int) -> tuple[Counter[int], list[str]]:
    """What a name server answered, and what it did not expect."""
    undeclared = Undeclared()
    logging.getLogger().addHandler(undeclared)
    try:
        async with site_at(folder) as site:
            await site.register()
            answers = await ask_everything(site.address, site.server.routes, count, seed)
            await site.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    finally:
        logging.getLogger().removeHandler(undeclared)
    return answers, undeclared.found


async def attack_controller(folder: Path, count: int, seed: int) -> tuple[Counter[int], list[str]]:
    """What a controller answered, and what it did not expect."""
    undeclared = Undeclared()
    logging.getLogger().addHandler(undeclared)
    try:
        async with controller_at(folder) as site, group_of(site, 2) as (master, _):
            answers = await ask_everything(site.address, site.server.routes, count, seed)
            assert not site.failures
            # The state is one that a controller can start from.
            site.server.machine.restore(site.server.machine.snapshot())
            await master.beat()
            await site.ask(RequestCode.CONTROLLER_GET_METADATA_INFO)
    finally:
        logging.getLogger().removeHandler(undeclared)
    return answers, undeclared.found


@pytest.mark.timeout(240)
async def test_broker(tmp_path: Path) -> None:
    answers, undeclared = await attack_broker(tmp_path, 20, 1)
    assert not undeclared, "\n".join(undeclared[:5])
    assert answers[ResponseCode.SUCCESS] > 0


async def test_name_server(tmp_path: Path) -> None:
    answers, undeclared = await attack_name_server(tmp_path, 60, 1)
    assert not undeclared, "\n".join(undeclared[:5])
    assert answers[ResponseCode.SUCCESS] > 0


async def test_controller(tmp_path: Path) -> None:
    answers, undeclared = await attack_controller(tmp_path, 60, 1)
    assert not undeclared, "\n".join(undeclared[:5])
    assert answers[ResponseCode.SUCCESS] > 0


async def _main(count: int, seed: int) -> None:
    for attack in (attack_name_server, attack_controller, attack_broker):
        with tempfile.TemporaryDirectory() as folder:
            answers, undeclared = await attack(Path(folder), count, seed)
        print(f"{attack.__name__}: {sum(answers.values())} requests, answers {dict(answers.most_common())}")
        print(f"undeclared: {len(undeclared)}", flush=True)
        for text, times in Counter(undeclared).most_common(40):
            print(f"--- {times} times\n{text}")


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
