"""`sprocket broker drain` and `join` against two brokers in this process."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

import sprocket
from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket_cli.main import main
from tests.broker.schedules.test_schedules import fired
from tests.broker.static_topics.rig import A, B, Site, site
from tests.waiting import until


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


async def test_schedules_of_a_drained_broker_go_on_elsewhere_and_miss_and_repeat_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as two, sprocket.connect(two.name_server) as mq:
        for name in (A, B):
            await mq.admin.create_topic(f"127.0.0.1:{two.brokers[name].port}", TopicConfig("Ticks", 1, 1))
        for number in range(8):
            await mq.schedule(f"s{number}", topic="Ticks", body=b"go", every=1, catch_up="all")
        await mq.schedules.pause("s0", "Ticks")
        places = {one.schedule.name: one.broker_name for one in await mq.schedules.list()}
        assert set(places.values()) == {A, B}
        # A run that was stopped half-way: one rests, another one is at both.
        first, second, *_ = [name for name, broker in places.items() if broker == B and name != "s0"]
        address = f"127.0.0.1:{two.brokers[B].port}"
        await asyncio.sleep(1.1)
        for name in (first, second):
            await mq.admin.pause_schedule(address, "Ticks", name, paused=False, moving=True)
        state = await mq.admin.schedule(address, "Ticks", second)
        assert state is not None and state.is_moving
        await mq.admin.set_schedule(f"127.0.0.1:{two.brokers[A].port}", state.schedule, like=state)
        status, lines = await tool(two)("broker", "drain", B, "--settle", "0", "--timeout", "0")
        moved = sum(broker == B for broker in places.values())
        assert status == 0 and f"{moved} schedules moved from {B}" in lines, lines

        def ticks() -> list[tuple[str, int]]:
            return sorted(one for name in (A, B) for one in fired(two.brokers[name], "Ticks") if one[0] != "s0")

        before = len(ticks())
        await until(lambda: len(ticks()) >= before + 7)
        states = await mq.schedules.list()
        assert {one.broker_name for one in states} == {A} and len(states) == 8
        assert [one.schedule.name for one in states if one.is_paused or one.is_moving] == ["s0"]
        found = ticks()
        assert len(found) == len(set(found))
        for (name, at), (following, then) in pairwise(found):
            assert name != following or then == at + 1000, name
