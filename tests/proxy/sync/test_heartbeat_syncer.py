"""Several proxies before one broker know the same members of a group."""

import asyncio

from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.testing import Broker
from tests.proxy.remoting.test_remoting_port import Caller
from tests.proxy.rig import Rig, consumer_settings, running
from tests.waiting import until


def _ids(rig: Rig, group: str) -> list[str]:
    found = rig.proxy.consumers.group(group)
    return [] if found is None else found.client_ids


async def test_members_are_the_same_at_every_proxy(broker: Broker, topic: str) -> None:
    async with running(broker) as one, running(broker) as two:
        first, second = Caller(one), Caller(two)
        await first.heartbeat("remoting", "synced", topic)
        client = two.client("grpc")
        stream, _ = await client.report(consumer_settings(topic, "synced"))
        for rig, caller in ((one, first), (two, second)):
            await until(lambda: _ids(rig, "synced") == ["grpc", "remoting"])  # noqa: B023
            assert await caller.members("synced") == ["grpc", "remoting"]
        found = one.proxy.consumers.group("synced")
        assert found is not None and topic in found.subscriptions
        # A proxy that starts later knows them at once.
        async with running(broker) as three:
            await until(lambda: _ids(three, "synced") == ["grpc", "remoting"], 5)
        # Who leaves one proxy leaves all.
        await first.client.close()
        two.proxy.clients.remove("grpc")
        await until(lambda: not _ids(one, "synced") and not _ids(two, "synced"))
        stream.cancel()
        await second.client.close()


async def test_proxy_that_stops_takes_its_members_with_it(broker: Broker, topic: str) -> None:
    async with running(broker) as one:
        async with running(broker) as two:
            await two.client("leaver").report(consumer_settings(topic, "stopping"))
            await until(lambda: _ids(one, "stopping") == ["leaver"])
        await until(lambda: not _ids(one, "stopping"))


async def test_consumers_at_two_proxies_divide_the_queues(broker: Broker, topic: str) -> None:
    taken: dict[int, set[int]] = {0: set(), 1: set()}

    async def consume(number: int, rig: Rig) -> None:
        address = f"127.0.0.1:{rig.proxy.remoting.listeners[0].port}"
        async with Consumer("divided", [topic], address, consume_from=ConsumeFrom.FIRST) as consumer:
            async for message in consumer:
                taken[number].add(message.queue.queue_id)
                await consumer.ack(message)

    async with running(broker) as one, running(broker) as two:
        tasks = [asyncio.ensure_future(consume(number, rig)) for number, rig in enumerate((one, two))]
        await until(lambda: len(_ids(one, "divided")) == 2 == len(_ids(two, "divided")))
        async with Producer("senders", broker.namesrv) as producer:
            async with asyncio.timeout(60):
                while not all(taken.values()):
                    await producer.send(Message(topic, b"x"))
                    await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_garbage_in_the_topic_is_ignored(broker: Broker, topic: str) -> None:
    async with running(broker) as one, running(broker) as two:
        async with Producer("strangers", broker.namesrv) as producer:
            await until(lambda: one.proxy.syncer is not None)
            for body in (b"garbage", b"{}", b"[]"):
                await producer.send(Message("DefaultHeartBeatSyncerTopic", body))
        caller = Caller(one)
        await caller.heartbeat("member", "after-garbage", topic)
        await until(lambda: _ids(two, "after-garbage") == ["member"])
        await caller.client.close()


async def test_proxies_may_be_told_not_to(broker: Broker) -> None:
    async with running(broker, heartbeat_syncer_topic_name="") as rig:
        assert rig.proxy.syncer is None
