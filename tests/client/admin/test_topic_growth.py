"""Growth of topics on two brokers in this process: who waits, who is refused, and what remains after a stop."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from sprocket import ConsumeFrom, Consumer, Message, Producer, SendSettings
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.client.admin.topic_growth import GrowthEnded, Limits, TopicGrowth
from sprocket.client.errors import SendFailed
from sprocket.remoting.bodies.topic import SHARDING_QUEUES, TopicConfig
from tests.broker.static_topics.rig import A, B, Site, site
from tests.waiting import until

TOPIC: Final = "Growing"
FAST: Final = Limits(lag_s=0.5, pause_s=0.5, settle_s=0.0)


class Grown:
    """Two brokers with a topic of one queue on each, and what growth says."""

    def __init__(self, two: Site, admin: AdminClient) -> None:
        self.two = two
        self.admin = admin
        self.said: list[str] = []
        self.static = StaticTopics(admin, wall_ms=lambda: 1, random=lambda: 0)
        self.growth = TopicGrowth(admin, self.static, self.said.append)

    async def make(self, *, static: bool = False) -> None:
        if static:
            await self.static.create(TOPIC, await self.static.creation(TOPIC, 2, (A, B), {}))
            return
        for broker in self.two.brokers.values():
            await self.admin.create_topic(f"127.0.0.1:{broker.port}", TopicConfig(TOPIC, 1, 1))

    async def attribute(self, value: str | None) -> None:
        change = {f"+{SHARDING_QUEUES}": value} if value is not None else {f"-{SHARDING_QUEUES}": ""}
        for broker in self.two.brokers.values():
            await self.admin.create_topic(f"127.0.0.1:{broker.port}", TopicConfig(TOPIC, 1, 1, attributes=change))

    async def attributes(self) -> set[str | None]:
        return {config.attributes.get(SHARDING_QUEUES) for config in (await self.static.configs(TOPIC)).values()}


@pytest.mark.parametrize("static", [False, True])
async def test_a_topic_grows_when_its_groups_have_read_everything(tmp_path: Path, *, static: bool) -> None:
    async with site(tmp_path, auto_create_subscription_group=True) as two, AdminClient(two.name_server) as admin:
        here = Grown(two, admin)
        await here.make(static=static)
        async with Producer("PG", two.name_server) as producer:
            await producer.send(Message(TOPIC, b"1"), sharding_key="k")
            async with Consumer("g", [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST) as consumer:
                message = await anext(consumer)
                with pytest.raises(GrowthEnded, match=r"its groups did not read to the end in time.*group g has 1"):
                    await here.growth.grow(TOPIC, 4, FAST)
                assert await here.attributes() == {None}  # producers go on as before
                await producer.send(Message(TOPIC, b"2"), sharding_key="k")
                await consumer.ack(message)
                await consumer.ack(await anext(consumer))
            growing = asyncio.create_task(here.growth.grow(TOPIC, 4, replace(FAST, settle_s=60)))
            await until(lambda: here.said[-1].endswith("old routes are refused"))
            # The producer's route is the old one.
            results = [await producer.send(Message(TOPIC, b"3"), sharding_key=str(key)) for key in range(64)]
            assert len({result.queue for result in results}) == (4 if static else 8)
        growing.cancel()  # the tool is killed
        await asyncio.wait([growing])
        assert await here.attributes() == {"4" if static else "8"}
        await here.growth.grow(TOPIC, 4, FAST)
        assert await here.attributes() == {None}
        await here.growth.grow(TOPIC, 4, FAST)
        assert here.said[-1] == f"{TOPIC}: it has 4 queues"
        with pytest.raises(AdminError, match="topic Growing has 4 queues: it can only grow, not have 3"):
            await here.growth.grow(TOPIC, 3, FAST)


async def test_only_messages_whose_key_chose_the_queue_wait(tmp_path: Path) -> None:
    async with site(tmp_path) as two, AdminClient(two.name_server) as admin:
        here = Grown(two, admin)
        await here.make()
        await here.attribute("0")
        async with Producer("PG", two.name_server) as producer:
            await producer.send(Message(TOPIC, b"any queue"))
            (queue, *_) = await producer.queues(TOPIC)
            await producer.send(Message(TOPIC, b"that queue"), queue=queue)
            with pytest.raises(SendFailed, match="the sharding key chose from 2 queues of topic Growing: it grows"):
                await producer.send(Message(TOPIC, b"no"), sharding_key="k", timeout_s=0.3)
            waiting = asyncio.create_task(producer.send(Message(TOPIC, b"later"), sharding_key="k", timeout_s=30))
            await here.attribute("3")
            with pytest.raises(SendFailed, match="its keys choose from 3"):
                await producer.send(Message(TOPIC, b"no"), sharding_key="k", timeout_s=0.3)
            assert not waiting.done()
            await here.attribute("2")
            await waiting


async def test_keys_of_a_batch_wait_and_choose_anew(tmp_path: Path) -> None:
    keys = [str(number) for number in range(12)]
    together = SendSettings(auto_batch=True, send_msg_timeout_s=30)
    async with site(tmp_path) as two, AdminClient(two.name_server) as admin:
        here = Grown(two, admin)
        await here.make()
        async with (
            Producer("PG", two.name_server, settings=together) as batching,
            Producer("PG2", two.name_server) as single,
        ):
            for sender in (batching, single):
                results = [sender.send(Message(TOPIC, b"1"), sharding_key=key) for key in keys]
                before = [result.queue for result in await asyncio.gather(*results)]
            await here.attribute("0")
            waiting = [
                asyncio.create_task(batching.send(Message(TOPIC, b"2"), sharding_key=key), name=key) for key in keys
            ]
            assert not (await asyncio.wait(waiting, timeout=0.3))[0]
            growing = asyncio.create_task(here.growth.grow(TOPIC, 4, replace(FAST, settle_s=60)))
            after = [(await task).queue for task in waiting]
            alone = [(await single.send(Message(TOPIC, b"3"), sharding_key=key)).queue for key in keys]
        growing.cancel()
        await asyncio.wait([growing])
        assert after == alone != before


async def test_growth_that_stopped_goes_on_or_is_ended_with_the_former_number(tmp_path: Path) -> None:
    async with site(tmp_path) as two, AdminClient(two.name_server) as admin:
        here = Grown(two, admin)
        await here.make()
        await here.attribute("0")  # as if the tool had been killed then
        await here.growth.grow(TOPIC, 1, FAST)
        assert await here.attributes() == {None}
        await here.attribute("0")
        await here.growth.grow(TOPIC, 2, FAST)
        assert await here.attributes() == {None}
        assert {each.write_queue_nums for each in (await here.static.configs(TOPIC)).values()} == {2}


async def test_keys_wait_on_if_a_growth_that_added_some_queues_cannot_end(tmp_path: Path) -> None:
    """To end the pause would let keys choose from the new queues of one broker."""
    async with site(tmp_path, auto_create_subscription_group=True) as two, AdminClient(two.name_server) as admin:
        here = Grown(two, admin)
        await here.make()
        async with Producer("PG", two.name_server) as producer:
            await producer.send(Message(TOPIC, b"1"), sharding_key="k")
        async with Consumer("g", [TOPIC], two.name_server, consume_from=ConsumeFrom.FIRST) as consumer:
            message = await anext(consumer)
            await here.attribute("0")
            config = (await here.static.configs(TOPIC))[A]
            await admin.create_topic(two.clients[A].address, TopicConfig(TOPIC, 4, 4, config.perm))
            with pytest.raises(GrowthEnded):
                await here.growth.grow(TOPIC, 4, FAST)
            assert await here.attributes() == {"0"}
            await consumer.ack(message)
        await here.growth.grow(TOPIC, 4, FAST)
        assert await here.attributes() == {None}


async def test_the_attribute_is_a_number(tmp_path: Path) -> None:
    async with site(tmp_path) as two, AdminClient(two.name_server) as admin:
        here = Grown(two, admin)
        await here.make()
        with pytest.raises(AdminError, match="a number of queues, or 0"):
            await here.attribute("-1")
