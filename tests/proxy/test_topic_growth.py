"""Messages of a group wait at the proxy while their topic grows, and then choose from the new queues."""

import asyncio
from collections.abc import Mapping

from sprocket.client.admin.admin_client import AdminClient
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.topic import TopicConfig
from tests.proxy.rig import Rig


async def test_a_message_group_waits_until_its_topic_has_grown(rig: Rig, topic: str) -> None:
    client = rig.client()
    async with AdminClient(rig.broker.namesrv) as admin:

        async def change(queues: int, attributes: Mapping[str, str]) -> None:
            config = TopicConfig(topic, queues, queues, attributes=dict(attributes))
            await admin.create_topic(rig.broker.address, config)

        await change(2, {"+message.type": "FIFO", "+sharding.queues": "2"})
        first = await client.send(topic, "1", message_group="g", message_type=wire.FIFO)
        assert first.status.code == wire.OK, first.status
        await change(2, {"+sharding.queues": "0"})
        waiting = asyncio.create_task(client.send(topic, "2", message_group="g", message_type=wire.FIFO))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        await change(16, {"+sharding.queues": "16"})
        assert (await waiting).status.code == wire.OK
        # It says so if the topic does not grow in time.
        await change(16, {"+sharding.queues": "0"})
        refused = await client.send(topic, "3", message_group="g", message_type=wire.FIFO)
        assert refused.status.code != wire.OK and "it grows, try again" in refused.status.message
