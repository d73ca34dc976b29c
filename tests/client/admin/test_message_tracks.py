"""Which groups have consumed a message, asked of a real broker."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sprocket import AdminClient, ConsumeFrom, Consumer, Message, MessageQueue, Producer, SubscriptionGroupConfig
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.admin.message_tracks import MessageTrack, TrackType, message_tracks
from sprocket.client.message import ReceivedMessage
from sprocket.remoting.message.topic_names import retry_topic
from sprocket.testing import Broker

ONLINE, FILTERING, OFFLINE = "GOnline", "GFiltering", "GOffline"


async def reaches(admin: AdminClient, message: ReceivedMessage, wanted: list[TrackType]) -> list[MessageTrack]:
    """Return the tracks once their types are `wanted`; consumers commit from time to time."""
    async with asyncio.timeout(60):
        while True:
            tracks = await message_tracks(admin, message)
            if [track.type for track in tracks] == wanted:
                return tracks
            await asyncio.sleep(0.05)


async def test_what_each_group_did(sprocket_shared_broker: Broker, sprocket_topic: str) -> None:
    namesrv, topic = sprocket_shared_broker.namesrv, sprocket_topic
    async with AdminClient(namesrv) as admin, Producer("g", namesrv) as producer, AsyncExitStack() as stack:
        sent = await producer.send(Message(topic, b"1", tags="A"))
        message = await MessageLookup(admin).by_id(topic, sent.offset_message_id)
        assert message is not None
        assert await message_tracks(admin, message) == []
        address = sprocket_shared_broker.address
        await admin.create_group(address, SubscriptionGroupConfig(OFFLINE))
        sprocket_shared_broker.create_topic(retry_topic(OFFLINE), 1)
        await GroupAdmin(admin).commit(address, OFFLINE, topic, 0, 1)
        (offline,) = await reaches(admin, message, [TrackType.NOT_ONLINE])
        assert offline.group == OFFLINE and offline.reason is not None
        assert offline.reason.startswith("CODE:206 DESC:") and "not online" in offline.reason
        online = Consumer(ONLINE, {topic: "*"}, namesrv, consume_from=ConsumeFrom.FIRST)
        await stack.enter_async_context(online)
        await stack.enter_async_context(Consumer(FILTERING, {topic: "B"}, namesrv, consume_from=ConsumeFrom.FIRST))
        await online.ack(await anext(online))
        wanted = [TrackType.CONSUMED_BUT_FILTERED, TrackType.NOT_ONLINE, TrackType.CONSUMED]
        tracks = await reaches(admin, message, wanted)
        assert [track.group for track in tracks] == [FILTERING, OFFLINE, ONLINE]
        await GroupAdmin(admin).commit(address, OFFLINE, topic, 0, 0)
        later = await producer.send(Message(topic, b"2", tags="A"))
        unread = await MessageLookup(admin).by_id(topic, later.offset_message_id)
        assert unread is not None
        await reaches(admin, unread, [TrackType.CONSUMED_BUT_FILTERED, TrackType.NOT_ONLINE, TrackType.NOT_CONSUME_YET])


async def test_broker_that_is_registered_by_a_host_name(tmp_path: Path) -> None:
    """The message names the address that stored it, which is a number, and the route names the host."""
    with Broker(tmp_path, properties={"brokerIP1": "localhost"}) as broker:
        broker.create_topic("T", 1)
        async with AdminClient(broker.namesrv) as admin, Producer("g", broker.namesrv) as producer:
            data = (await admin.topic_route("T")).broker_datas
            assert [address.partition(":")[0] for address in data[0].broker_addrs.values()] == ["localhost"]
            sent = await producer.send(Message("T", b"1"))
            message = await MessageLookup(admin).by_id("T", sent.offset_message_id)
            assert message is not None
            async with Consumer(ONLINE, "T", broker.namesrv, consume_from=ConsumeFrom.FIRST) as online:
                await online.ack(await anext(online))
                await reaches(admin, message, [TrackType.CONSUMED])


async def test_broker_that_nobody_knows(sprocket_shared_broker: Broker, sprocket_topic: str) -> None:
    namesrv, topic = sprocket_shared_broker.namesrv, sprocket_topic
    async with (
        AdminClient(namesrv) as admin,
        Producer("g", namesrv) as producer,
        Consumer(ONLINE, topic, namesrv, consume_from=ConsumeFrom.FIRST) as online,
    ):
        await producer.send(Message(topic, b"1"))
        message = await anext(online)
        await online.ack(message)
        await reaches(admin, message, [TrackType.CONSUMED])
        queue = MessageQueue(topic, "", message.queue.queue_id)
        moved: Any = SimpleNamespace(topic=topic, queue=queue, queue_offset=0, store_host=("10.0.0.7", 10911))
        (track,) = await reaches(admin, moved, [TrackType.UNKNOWN])
    assert track.reason == "no registered broker has the address 10.0.0.7:10911, which stored the message"
