"""`sprocket broker drain` and `join` against two brokers in this process."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket_cli.main import main
from tests.broker.static_topics.rig import A, B, Site, site


def run(namesrv: str, *arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(main, [*arguments, "-n", namesrv])
    return done.exit_code, done.output.splitlines()


def tool(two: Site) -> Callable[..., "asyncio.Future[tuple[int, list[str]]]"]:
    return partial(asyncio.to_thread, run, two.name_server)  # type: ignore[return-value]


async def make_static(admin: AdminClient, topic: str, count: int, *targets: str) -> None:
    topics = StaticTopics(admin, wall_ms=lambda: 1, random=lambda: 0)
    await topics.create(topic, await topics.creation(topic, count, targets, {}))


async def read(two: Site, group: str, topic: str, count: int) -> list[bytes]:
    async with Consumer(group, [topic], two.name_server, consume_from=ConsumeFrom.FIRST) as consumer:
        bodies: list[bytes] = []
        async with asyncio.timeout(60):
            while len(bodies) < count:
                message = await anext(consumer)
                bodies.append(message.body)
                await consumer.ack(message)
    return bodies


async def test_a_drained_broker_may_be_stopped_when_groups_have_read_it(tmp_path: Path) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two, AdminClient(two.name_server) as admin:
        await make_static(admin, "Logical", 4, A, B)
        for name in (A, B):
            await admin.create_topic(f"127.0.0.1:{two.brokers[name].port}", TopicConfig("Plain", 1, 1))
        async with Producer("PG", two.name_server) as producer:
            for topic in ("Plain", "Logical"):
                for number in range(8):
                    await producer.send(Message(topic, b"%d" % number))
        assert len(await read(two, "readers", "Plain", 3)) == 3
        call = tool(two)
        status, lines = await call("broker", "drain", B, "--settle", "0", "--timeout", "0")
        assert status == 1 and "must not be stopped yet" in lines[-1] and "to read in Plain" in lines[-1]
        assert "Logical: step 5 of 5" in lines and f"[1/1] Logical: 2 queues moved from {B}" in lines
        # It is not written any more, and still read.
        route = await admin.topic_route("Plain")
        assert {data.broker_name: data.perm for data in route.queue_datas} == {A: 6, B: 4}
        await read(two, "readers", "Plain", 5)
        # A group that has begun to read the static topic must read what the drained broker has of it.
        await read(two, "others", "Logical", 1)
        status, lines = await call("broker", "drain", B, "--settle", "0", "--timeout", "0")
        assert status == 1 and "group others has" in lines[-1] and "to read in Logical" in lines[-1]
        status, lines = await call("broker", "drain", B, "--settle", "0", "--skip-group", "others")
        assert status == 0 and "before that, repeat the command with --forget" in lines[-1]
        await read(two, "others", "Logical", 7)
        status, lines = await call("broker", "drain", B, "--settle", "0", "--forget")
        assert status == 0 and lines[-1] == f"Broker {B} is drained and may be stopped."
        # The group goes on where it was, although its offset on the drained broker is not asked for any more.
        async with Producer("PG", two.name_server) as producer:
            for number in range(4):
                await producer.send(Message("Logical", b"new %d" % number))
        assert sorted(await read(two, "others", "Logical", 4)) == [b"new %d" % number for number in range(4)]
        status, lines = await call("broker", "join", B)
        assert status == 0 and lines[-1] == f"Broker {B} has its share: 2 queues moved to it."
        route = await admin.topic_route("Plain")
        assert {data.broker_name: data.perm for data in route.queue_datas} == {A: 6, B: 6}


async def test_what_cannot_be_drained_or_joined_is_an_error(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        call = tool(two)
        status, lines = await call("broker", "drain", "broker-x")
        assert status == 1 and lines[-1].endswith(f"known brokers are: {A}, {B}")
        status, lines = await call("broker", "join", B, "-t", "Nothing")
        assert status == 1 and "topic Nothing is no static topic of cluster" in lines[-1]


@pytest.mark.parametrize("arguments", [["broker", "-p"], ["broker", "--help"]])
def test_without_a_subcommand_it_is_the_server(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0
    assert ("brokerName" in done.output) == (arguments[-1] == "-p")
    assert ("sprocket broker drain --help" in done.output) == (arguments[-1] == "--help")
