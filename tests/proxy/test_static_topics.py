"""Static topics behind the proxy, over gRPC: two brokers, and a logical queue that moves between them."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from tests.broker.rig import TOPIC
from tests.broker.static_topics.rig import A, B, Site, site
from tests.proxy.rig import ENDPOINTS, Rig, handle_of, running
from tests.sprocket_cli.mqadmin.conftest import runner

KEYS = ("k1", "k2", "k3")


@pytest.fixture(name="two")
async def two_brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        await tool(two, "updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{A},{B}")
        yield two


@pytest.fixture
async def rig(two: Site) -> AsyncIterator[Rig]:
    broker: Any = SimpleNamespace(namesrv=two.name_server)
    async with running(broker, enable_topic_message_type_check=False) as made:
        yield made


async def tool(two: Site, *arguments: str) -> None:
    await asyncio.to_thread(partial(runner(two.name_server), *arguments))


async def group_of(two: Site, name: str, *, ordered: bool) -> str:
    body = dumps(SubscriptionGroupConfig(name, consume_message_orderly=ordered))
    for client in two.clients.values():
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
    return name


async def send(rig: Rig, first: int, last: int) -> None:
    client = rig.client()
    for number in range(first, last + 1):
        for key in KEYS:
            answer = await client.send(TOPIC, f"{key}-{number}", message_group=key)
            assert answer.status.code == wire.OK, answer.status


async def take(rig: Rig, group: str, count: int) -> list[str]:
    """Receive and acknowledge until there are `count` messages."""
    client, taken = rig.client(), []
    async with asyncio.timeout(60):
        while len(taken) < count:
            for part in await client.receive(TOPIC, group, wait_s=1):
                if part.HasField("message"):
                    answer = await client.ack(TOPIC, group, handle_of(part.message))
                    assert answer.status.code == wire.OK, answer.status
                    taken.append(part.message.body.decode())
    return taken


async def begin(rig: Rig, group: str) -> None:
    """Let a group begin at the end of all queues."""
    for _ in range(2):
        assert len(await rig.client().receive(TOPIC, group, wait_s=0)) == 2  # a status and a time


@pytest.mark.parametrize("ordered", [False, True])
async def test_each_message_is_received_once_and_in_the_order_of_its_key_over_moves(
    two: Site, rig: Rig, ordered: bool
) -> None:
    group = await group_of(two, "g", ordered=ordered)
    await begin(rig, group)
    await send(rig, 0, 4)
    await tool(two, "remappingStaticTopic", "-t", TOPIC, "-b", B)
    await send(rig, 5, 9)
    taken = await take(rig, group, 10)
    await tool(two, "remappingStaticTopic", "-t", TOPIC, "-b", A)
    await send(rig, 10, 14)
    taken += await take(rig, group, 45 - len(taken))
    for key in KEYS:
        of_key = [int(text.partition("-")[2]) for text in taken if text.startswith(key)]
        assert (of_key if ordered else sorted(of_key)) == list(range(15))


async def test_clients_are_told_of_all_brokers_that_have_messages(two: Site, rig: Rig) -> None:
    await tool(two, "remappingStaticTopic", "-t", TOPIC, "-b", B)
    group = await group_of(two, "g", ordered=False)
    topic = wire.Resource(name=TOPIC)
    asked = wire.QueryAssignmentRequest(topic=topic, group=wire.Resource(name=group), endpoints=ENDPOINTS)
    answer = await rig.client().call("QueryAssignment", asked)
    found = {one.message_queue.broker.name: one.message_queue.permission for one in answer.assignments}
    assert found == {A: wire.READ, B: wire.READ_WRITE}
    route = await rig.client().call("QueryRoute", wire.QueryRouteRequest(topic=topic, endpoints=ENDPOINTS))
    assert {queue.broker.name for queue in route.message_queues} == {A, B}


async def test_offsets_of_physical_queues_are_refused(two: Site, rig: Rig) -> None:
    queue = wire.MessageQueue(topic=wire.Resource(name=TOPIC), broker=wire.Broker(name=A), id=0)
    asked = wire.GetOffsetRequest(message_queue=queue, group=wire.Resource(name="g"))
    answer = await rig.client().call("GetOffset", asked)
    assert (answer.status.code, "is static" in answer.status.message) == (wire.UNSUPPORTED, True)
