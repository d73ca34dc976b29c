"""Dead letters go back once, with what they were, whatever was filtered or cut off before."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.message_lookup import MessageLookup
from sprocket.client.admin.redrive import REDRIVEN_FROM, DeadLetterFilter, Redrive, RedriveFailed
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message, MessageQueue, ReceivedMessage
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send_result import SendResult
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from sprocket.testing import Broker


class Site:
    """A broker with one group's dead letters on it."""

    def __init__(self, admin: AdminClient, broker: Broker, topic: str) -> None:
        self.admin = admin
        self.broker = broker
        self.topic = topic
        self.group = f"G{topic}"
        self.lookup = MessageLookup(admin)

    async def die(self, *messages: Message) -> list[SendResult]:
        """Send messages, and have the group give them up at once."""
        body = dumps(SubscriptionGroupConfig(self.group))
        address = await self.address()
        await self.admin.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        sent = []
        async with Producer("PG", self.broker.namesrv) as producer:
            for message in messages:
                result = await producer.send(message)
                sent.append(result)
                offset = int(result.offset_message_id[-16:], 16)
                header = ConsumerSendMsgBackRequestHeader(
                    offset=offset, group=self.group, delay_level=-1, origin_msg_id=result.message_id,
                    origin_topic=self.topic, max_reconsume_times=16,
                )  # fmt: skip
                await self.admin.ask(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        # The first one made the topic, of which the name server learns a moment later.
        async with asyncio.timeout(60):
            while not await self.is_routed(f"%DLQ%{self.group}"):
                await asyncio.sleep(0.01)
        return sent

    async def is_routed(self, topic: str) -> bool:
        try:
            return bool(await self.lookup.queues(topic))
        except AdminError:
            return False

    async def address(self) -> str:
        return (await self.lookup.queues(self.topic))[0][1]

    async def messages(self, topic: str) -> list[ReceivedMessage]:
        found = []
        for queue, address in await self.lookup.queues(topic):
            low, high = await self.lookup.bounds(queue, address)
            found += [message async for page in self.lookup.pages(queue, address, low, high) for message in page]
        return found

    async def came_back(self, topic: str | None = None) -> list[ReceivedMessage]:
        return [each for each in await self.messages(topic or self.topic) if REDRIVEN_FROM in each.properties]

    async def bodies_back(self) -> Counter[bytes]:
        return Counter(each.body for each in await self.came_back())

    def redrive(self, *, to_retry: bool = False, owner: str = "me") -> Redrive:
        return Redrive(self.admin, self.group, to_retry=to_retry, owner=owner)


@pytest.fixture
async def site(shared_broker: Broker, topic: str) -> AsyncIterator[Site]:
    async with AdminClient([shared_broker.namesrv]) as admin:
        yield Site(admin, shared_broker, topic)


def numbered(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%d" % number, tags=f"T{number % 2}", keys=f"k{number}") for number in range(count)]


async def test_they_keep_what_they_were(site: Site) -> None:
    body = b"x" * 5000
    (sent,) = await site.die(Message(site.topic, body, tags="A", keys=["k1", "k2"], properties={"colour": "red"}))
    (dead,) = await site.messages(f"%DLQ%{site.group}")
    report = await site.redrive().run()
    assert (report.matched, report.sent, report.targets) == (1, 1, {site.topic: 1})
    (back,) = await site.came_back()
    assert (back.message_id, back.body, back.born_timestamp_ms) == (
        sent.message_id,
        b"x" * 5000,
        dead.born_timestamp_ms,
    )
    assert (back.tags, back.keys, back.properties["colour"]) == ("A", ["k1", "k2"], "red")
    assert (back.reconsume_times, back.properties["ORIGIN_MESSAGE_ID"]) == (0, dead.properties["ORIGIN_MESSAGE_ID"])
    assert back.properties[REDRIVEN_FROM] == dead.offset_message_id
    assert not {"DELAY", "RETRY_TOPIC"} & back.properties.keys()
    assert len(await site.messages(f"%DLQ%{site.group}")) == 1, "the dead-letter topic keeps its copy"


async def test_messages_of_a_batch_keep_their_own_ids_as_dead_letters_and_back(site: Site) -> None:
    keys = ["plain", 'quote"back\\slash', "é|%{}"]
    async with Producer("PG", site.broker.namesrv) as producer:
        batch = await producer.send_batch([Message(site.topic, b"x", keys=key) for key in keys])
    ids = dict(zip(keys, batch.message_id.split(","), strict=True))
    consumer = Consumer(site.group, [site.topic], site.broker.namesrv, consume_from=ConsumeFrom.FIRST)
    async with consumer:
        for _ in keys:
            await (await anext(consumer)).dead_letter("no reason")
    async with asyncio.timeout(60):
        while not await site.is_routed(f"%DLQ%{site.group}"):
            await asyncio.sleep(0.01)
    dead = await site.messages(f"%DLQ%{site.group}")
    assert {each.keys[0]: each.message_id for each in dead} == ids
    assert {each.properties["ORIGIN_MESSAGE_ID"] for each in dead} == set(ids.values())
    assert (await site.redrive().run()).sent == len(keys)
    assert {each.keys[0]: each.message_id for each in await site.came_back()} == ids
    assert {each.properties["UNIQ_KEY"] for each in await site.came_back()} == set(ids.values())


async def test_a_second_run_sends_only_what_died_since(site: Site) -> None:
    await site.die(*numbered(site.topic, 40))
    assert (await site.redrive().run(dry_run=True)).sent == 40
    assert not await site.came_back(), "a dry run sends nothing"
    assert (await site.redrive().run()).sent == 40
    again = await site.redrive().run()
    assert (again.matched, again.sent) == (0, 0), "what is done is not even read"
    await site.die(Message(site.topic, b"new"))
    assert (await site.redrive().run()).sent == 1
    assert set((await site.bodies_back()).values()) == {1}


async def test_runs_with_filters_do_not_send_twice(site: Site) -> None:
    await site.die(*numbered(site.topic, 10))
    odd = await site.redrive().run(DeadLetterFilter(tags=frozenset({"T1"})))
    assert (odd.matched, odd.sent) == (5, 5)
    one = await site.redrive().run(DeadLetterFilter(keys=frozenset({"k0", "k1"})), dry_run=True)
    assert (one.matched, one.sent, one.sent_before) == (2, 1, 1)
    all_ = await site.redrive().run()
    assert (all_.matched, all_.sent, all_.sent_before) == (10, 5, 5)
    assert await site.bodies_back() == Counter({b"%d" % number: 1 for number in range(10)})
    assert (await site.redrive().run()).matched == 0


async def test_by_an_expression(site: Site) -> None:
    """The broker evaluates it, if it may."""
    address = await site.address()
    await site.die(*(Message(site.topic, b"%d" % n, properties={"n": str(n)}) for n in range(6)))
    wanted = DeadLetterFilter(sql="n > 3")
    with pytest.raises(AdminError, match="does not support consumer to filter message by SQL92"):
        await site.redrive().run(wanted)
    await site.admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, b"enablePropertyFilter=true")
    try:
        assert (await site.redrive().run(wanted)).sent == 2
    finally:
        await site.admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, b"enablePropertyFilter=false")
    assert await site.bodies_back() == Counter([b"4", b"5"])
    rest = await site.redrive().run()
    assert (rest.sent, rest.sent_before) == (4, 2)


async def test_at_most_and_since(site: Site) -> None:
    await site.die(*numbered(site.topic, 5))
    assert (await site.redrive().run(max_messages=2)).sent == 2
    dead = await site.messages(f"%DLQ%{site.group}")
    late = DeadLetterFilter(since_ms=dead[-1].store_timestamp_ms + 10_000)
    assert (await site.redrive().run(late)).matched == 0
    early = DeadLetterFilter(until_ms=dead[0].store_timestamp_ms)
    assert (await site.redrive().run(early)).matched == 0
    assert (await site.redrive().run()).sent == 3
    assert set((await site.bodies_back()).values()) == {1}


async def test_to_the_retry_topic_of_the_group_alone(site: Site) -> None:
    await site.die(Message(site.topic, b"x"))
    retry = f"%RETRY%{site.group}"
    async with Consumer(site.group, {site.topic: "*"}, site.broker.namesrv) as consumer:
        site.broker.create_topic(retry, 1)
        report = await site.redrive(to_retry=True).run()
        assert report.targets == {retry: 1}
        async with asyncio.timeout(30):
            # The group is young, so it begins with the message that it has given up by hand.
            got = [await anext(consumer), await anext(consumer)]
        for message in got:
            await consumer.ack(message)
    (back,) = [message for message in got if REDRIVEN_FROM in message.properties]
    assert (back.topic, back.queue.topic, back.reconsume_times) == (site.topic, retry, 0)
    assert not await site.came_back()
    assert (await site.redrive().run()).sent == 0


async def test_one_that_was_cut_off_goes_on_where_it_was(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.die(*numbered(site.topic, 8))
    send, count = Redrive._send, 0

    async def dying(self: Redrive, message: ReceivedMessage, queue: MessageQueue, address: str) -> object:
        nonlocal count
        count += 1
        if count == 6:
            await send(self, message, queue, address)
            raise AdminError("no answer")  # it arrived all the same
        if count > 6:
            raise AdminError("no answer")
        return await send(self, message, queue, address)

    monkeypatch.setattr(Redrive, "_send", dying)
    with pytest.raises(RedriveFailed) as failed:
        await site.redrive().run()
    assert failed.value.done.sent == 5
    monkeypatch.setattr(Redrive, "_send", send)
    report = await site.redrive().run()
    assert (report.matched, report.sent, report.sent_before) == (3, 2, 1)
    assert await site.bodies_back() == Counter({b"%d" % number: 1 for number in range(8)})


async def test_two_at_a_time_are_one_too_many(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await site.die(Message(site.topic, b"x"))
    send, begun, go_on = Redrive._send, asyncio.Event(), asyncio.Event()

    async def slow(self: Redrive, *arguments: object) -> object:
        begun.set()
        await go_on.wait()
        return await send(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Redrive, "_send", slow)
    first = asyncio.ensure_future(site.redrive(owner="first").run())
    await begun.wait()
    with pytest.raises(AdminError, match="another redrive"):
        await site.redrive(owner="second").run()
    go_on.set()
    assert (await first).sent == 1


async def test_a_group_without_dead_letters(site: Site) -> None:
    with pytest.raises(AdminError):
        await site.redrive().run()
