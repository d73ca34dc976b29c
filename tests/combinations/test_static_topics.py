"""A static topic whose queue moves between two guarded brokers: what one of them asks the other is signed and sealed.

Those are pulls, commits and queries of offsets, ends of queues, resets, locks, and messages that are committed or due
after the move.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from sprocket import (
    ClientSettings,
    ConsumeFrom,
    Consumer,
    Message,
    OrderlyConsumer,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from tests.combinations.profiles import GUARDS, Guard
from tests.combinations.site import Site, site_at
from tests.combinations.traffic import WAIT_S

pytestmark = pytest.mark.timeout(240)
TOPIC: Final = "Moving"
_GROUPS: Final = ("readers", "again", "orderly", "poppers")


@asynccontextmanager
async def operator(client: ClientSettings) -> AsyncIterator[AdminClient]:
    async with AdminClient(client.namesrv, credentials=client.credentials, tls=client.tls) as admin:
        yield admin


async def make(admin: AdminClient, topics: StaticTopics, names: list[str]) -> None:
    """The topic has one logical queue, at the first broker; groups are on both."""
    await admin.wait_for_broker("DefaultCluster", len(names), within_s=WAIT_S)
    addresses = (await admin.cluster_info()).masters()
    for group in _GROUPS:
        for name in names:
            config = SubscriptionGroupConfig(group, consume_message_orderly=group == "orderly")
            await admin.create_group(addresses[name], config)
    await topics.create(TOPIC, await topics.creation(TOPIC, 1, names[:1], {}))


async def move(topics: StaticTopics, target: str) -> None:
    plan = await topics.remapping(TOPIC, [target], await topics.configs(TOPIC))
    await topics.remap(TOPIC, plan)


async def take(client: ClientSettings, group: str, wanted: set[bytes]) -> None:
    """Consume as a group that begins at the first message, until everything has come."""
    missing = set(wanted)
    async with Consumer(group, [TOPIC], client=client, consume_from=ConsumeFrom.FIRST) as consumer:
        while missing:
            message = await anext(consumer)
            missing.discard(bytes(message.body))
            await consumer.ack(message)


async def take_in_order(client: ClientSettings, wanted: set[bytes]) -> None:
    missing, done = set(wanted), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        missing.discard(bytes(message.body))
        if not missing:
            done.set()

    async with OrderlyConsumer("orderly", [TOPIC], client=client, consume_from=ConsumeFrom.FIRST) as consumer:
        work = asyncio.create_task(consumer.run(handle))
        await done.wait()
        await consumer.close()
        await work


async def pop(client: ClientSettings, wanted: set[bytes]) -> None:
    missing = set(wanted)
    async with SimpleConsumer("poppers", [TOPIC], client=client, consume_from=ConsumeFrom.FIRST) as consumer:
        while missing:
            for message in await consumer.receive(8, invisible=30, wait_s=1.0):
                missing.discard(bytes(message.body))
                await consumer.ack(message)


async def unknown(_: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
async def test_a_queue_moves_between_guarded_brokers(tmp_path: Path, guard: Guard) -> None:
    async with site_at(tmp_path, "2m-noslave", guard) as site, asyncio.timeout(200):
        await _moves(site)


async def _moves(site: Site) -> None:
    client, names = site.written.client, site.written.groups
    sent = {b"old-%d" % number for number in range(3)}
    async with operator(client) as admin:
        topics = StaticTopics.of(admin)
        await make(admin, topics, names)

        async def to_second(_message: Message, _id: str) -> TransactionState:
            await move(topics, names[1])
            return TransactionState.COMMIT

        async with Producer("writers", client=client) as producer:
            for body in sorted(sent):
                await producer.send(Message(TOPIC, body))
            await take(client, "readers", {b"old-0"})
            await producer.send(Message(TOPIC, b"due", delay=2.0))
            async with TransactionProducer("payers", client=client, checker=unknown) as payer:
                await payer.send_in_transaction(Message(TOPIC, b"committed"), to_second)
            await producer.send(Message(TOPIC, b"new"))
        everything = sent | {b"due", b"committed", b"new"}
        await take(client, "readers", everything - {b"old-0", b"old-1", b"old-2"})
        await take(client, "again", everything)
        await take_in_order(client, everything)
        await pop(client, everything)
        offsets = await GroupAdmin(admin).reset_to_time(TOPIC, "again", 0)
        assert list(offsets.values()) == [0]
        await take(client, "again", everything)
