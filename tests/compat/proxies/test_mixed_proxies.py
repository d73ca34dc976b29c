"""Apache RocketMQ's proxy and ours before one broker agree on the members of a group."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.proxies.apache_proxy import ApacheProxy
from tests.proxy.remoting.test_remoting_port import Caller
from tests.proxy.rig import consumer_settings, create_topic, running

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
_CLIENTS = ["at-apache", "at-ours", "grpc-at-apache", "grpc-at-ours"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as started:
        yield started


@pytest.fixture
def apache(broker: Broker, tmp_path: Path) -> Iterator[ApacheProxy]:
    try:
        proxy = ApacheProxy(broker, tmp_path / "apache")
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    proxy.await_start()
    yield proxy
    proxy.end()


async def test_members_are_the_same_at_both(broker: Broker, apache: ApacheProxy) -> None:
    topic = await create_topic(broker)
    async with running(broker) as rig:
        theirs, ours = Caller(rig, port=apache.remoting_port), Caller(rig)
        client = rig.client("grpc-at-ours")
        await client.report(consumer_settings(topic, "mixed"))
        await rig.client("grpc-at-apache", port=apache.grpc_port).report(consumer_settings(topic, "mixed"))

        async def agree_on(expected: list[str]) -> None:
            async with asyncio.timeout(60):
                while True:
                    found = sorted(await theirs.members("mixed")), sorted(await ours.members("mixed"))
                    if found == (expected, expected):
                        return
                    # RocketMQ's proxy reads what is told after its start; an unchanged member is told every 25 s.
                    await theirs.heartbeat("at-apache", "mixed", topic)
                    await client.call("Heartbeat", wire.HeartbeatRequest(group=wire.Resource(name="mixed")))
                    if "at-ours" in expected:
                        await ours.heartbeat("at-ours", "mixed", topic)
                    await asyncio.sleep(0.5)

        await agree_on(_CLIENTS)
        await ours.client.close()
        ours = Caller(rig)
        await agree_on([one for one in _CLIENTS if one != "at-ours"])
        await theirs.client.close()
        await ours.client.close()
