"""Redelivery of unacknowledged messages by a whole broker, also to held pops."""

import asyncio
from pathlib import Path
from typing import Any

from broker.pop.records import PopCheckPoint
from broker.pop.revive.revive_log import encode_checkpoint
from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message.properties import TAGS, TIMER_DELIVER_MS, encode
from sprocket.remoting.message.topic_names import REVIVE_GROUP
from store.config.store_config import FlushDiskType
from store.message_store import PendingMessage
from store.record.record import TagsCodes
from tests.broker.pop.rig import REVIVE_TOPIC, Message, ack, change, messages_of, pop, popped
from tests.broker.rig import GROUP, TOPIC, running_broker
from tests.waiting import until

RETRY = f"%RETRY%{GROUP}_{TOPIC}"
# Another revive queue than the first pops take.
QUEUE = 5


def over(broker: Broker, message: Message) -> None:
    """Write the checkpoint of a message's pop as the timer would, had its time been over for a while."""
    now = broker.clock.wall_ms()
    handle = message.handle
    checkpoint = PopCheckPoint(
        so=message.queue_offset, pt=handle.pop_time_ms, it=now - 5_000 - handle.pop_time_ms, n=1, q=message.queue_id,
        t=message.real_topic, c=GROUP, d=[0], bn=handle.broker_name,
    )  # fmt: skip
    properties = encode({TAGS: "ck", TIMER_DELIVER_MS: str(now - 6_000)}).encode()
    code = TagsCodes("").of_tag(b"ck")
    body = encode_checkpoint(checkpoint)
    broker.store.append([PendingMessage(REVIVE_TOPIC, QUEUE, body, properties, code, 0, 0, 0, broker.store.store_host)])


def quick(**changes: Any) -> dict[str, Any]:
    """Revive without pauses; what is done is flushed at once."""
    return {"revive_interval": 20, "store": {"flush_disk_type": FlushDiskType.SYNC_FLUSH}, **changes}


async def test_a_held_pop_gets_what_was_not_acknowledged(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **quick()) as (broker, client):
        await client.send(b"again")
        (first,) = await popped(client)
        waiting = asyncio.create_task(pop(client, poll_time=2_500, born_time=broker.clock.wall_ms()))
        await until(lambda: len(broker.pop.held))
        assert broker.pop.inflight.count(TOPIC, GROUP, 0) == 1
        over(broker, first)
        (second,) = messages_of(await waiting)
        assert (second.body, second.topic, second.handle.retry) == (b"again", TOPIC, "1")
        assert second.real_topic == RETRY
        assert second.properties["1ST_POP_TIME"] == str(first.handle.pop_time_ms)
        assert broker.pop.inflight.count(TOPIC, GROUP, 0) == 0
        assert (await ack(client, second)).code == ResponseCode.SUCCESS


async def test_it_is_redelivered_from_the_retry_topic_too(tmp_path: Path) -> None:
    v2_alone = {"enable_retry_topic_v2": True, "retrieve_message_from_pop_retry_topic_v1": False}
    async with running_broker(tmp_path, **quick(**v2_alone)) as (broker, client):
        await client.send(b"again")
        (message,) = await popped(client)
        for count in range(1, 4):
            over(broker, message)
            (message,) = messages_of(await pop(client, poll_time=2_500, born_time=broker.clock.wall_ms()))
            assert broker.store.max_offset(f"%RETRY%{GROUP}+{TOPIC}", 0) == count
            assert message.handle.retry == "2"


async def test_through_the_wheel_what_is_acknowledged_stays_away(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **quick()) as (broker, client):
        for number in range(4):
            await client.send(b"%d" % number)
        messages = await popped(client, invisible_time=2_000)
        await ack(client, messages[1])
        # It comes a while after the others: what they got is acknowledged by then.
        assert (await change(client, messages[3], 3_500)).code == ResponseCode.SUCCESS
        bodies = []
        while b"3" not in bodies:
            response = await pop(client, poll_time=1_000, born_time=broker.clock.wall_ms())
            for message in messages_of(response) if response.code == ResponseCode.SUCCESS else ():
                bodies.append(message.body)
                await ack(client, message)
        assert sorted(bodies) == [b"0", b"2", b"3"]
        assert broker.store.max_offset(RETRY, 0) == 3


async def test_what_was_redelivered_before_a_restart_is_not_after_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **quick()) as (broker, client):
        await client.send(b"again")
        (message,) = await popped(client)
        over(broker, message)
        await until(lambda: broker.offsets.query(REVIVE_GROUP, REVIVE_TOPIC, QUEUE) == 0)
        response = await client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)
        info = loads(response.body, KVTable).table
        assert (info[f"popReviveLag_{QUEUE}"], info[f"popReviveLatency_{QUEUE}"]) == ("0", "0")
    async with running_broker(tmp_path, **quick()) as (broker, client):
        assert len(await popped(client)) == 1
        assert broker.store.max_offset(RETRY, 0) == 1


async def test_a_pop_whose_retry_topic_could_not_be_made_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, **quick()) as (broker, client):
        await client.send(b"body")
        longest = 255 - len(f"%RETRY%_{TOPIC}")
        # New groups have shorter names.
        broker.groups.update([SubscriptionGroupConfig("g" * chars) for chars in (longest, longest + 1)])
        refused = await pop(client, consumer_group="g" * (longest + 1))
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "their retry topic would have a name of 256 characters, at most 255" in (refused.remark or "")
        (message,) = await popped(client, consumer_group="g" * longest)
        assert message.body == b"body"
