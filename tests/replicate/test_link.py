"""A pair of real clusters."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NoReturn

import pytest
from msgspec.structs import replace

import sprocket
from replicate.cluster import Cluster
from replicate.protocol.offset_map import NO_ECHOES
from replicate.records import TOPIC, Record, first_key, queue_key
from replicate.service import Replication
from sprocket import Message
from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.admin.admin_requests import AdminDenied
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.message import MessageQueue, ReceivedMessage
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.group import SubscriptionGroupConfig, SubscriptionGroupTable
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import ResponseCode
from sprocket.testing import Broker
from tests.metrics.prometheus_page import scrape_here
from tests.replicate.clusters import LIMIT_S, config_of, replicating, two_brokers
from tests.waiting import until


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Broker, Broker]]:
    yield from two_brokers()


async def _read(namesrv: str, topic: str, count: int, group: str) -> list[ReceivedMessage]:
    """Read `count` messages of a topic; fail if there are more."""
    found: list[ReceivedMessage] = []
    async with sprocket.connect(namesrv) as mq:
        consumer = mq.consumer(group, topic, consume_from=sprocket.ConsumeFrom.FIRST)
        async with asyncio.timeout(LIMIT_S):
            async for message in consumer:
                found.append(message)
                await message.ack()
                if len(found) == count:
                    break
        stats = (await mq.admin.topic_stats(topic)).offset_table.values()
    assert sum(extent.max_offset for extent in stats) == count
    return found


def _copied(replication: Replication, topic: str) -> int:
    copiers = [one for link in replication.links for one in link.copiers.items()]
    return sum(copier.copied for queue, copier in copiers if queue.topic == topic)


async def test_a_copy_has_all_that_the_message_has_and_order_is_kept(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    one.create_topic("Orders", 2)
    async with sprocket.connect(one.namesrv) as mq:
        producer = mq.producer()
        for number in range(200):
            message = Message(
                "Orders", b"x" * 50 * number + b"%d" % number, keys=[f"k{number}"], tags="new", properties={"n": "ü"},
                flag=7,
            )  # fmt: skip
            await producer.send(message, sharding_key=str(number % 5))
        await producer.send(Message("Orders", b"late", keys="late", delay=0.1), sharding_key="0")
    config = replace(config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"]), metrics_port=0)
    async with replicating(config) as replication:
        await until(lambda: _copied(replication, "Orders") == 201)
        assert replication.export.port is not None
        families = await scrape_here(replication.export.port)
    samples = families["sprocket_replication_copied_messages_total"].samples
    assert sum(value for _, labels, value in samples if labels["topic"] == "Orders") == 201
    originals = await _read(one.namesrv, "Orders", 201, "readers")
    copies = await _read(other.namesrv, "Orders", 201, "readers")
    assert {_identity(message) for message in copies} == {_identity(message) for message in originals}
    for queue_id in (0, 1):
        ids = [[m.message_id for m in found if m.queue.queue_id == queue_id] for found in (originals, copies)]
        assert ids[0] == ids[1]


def _identity(message: ReceivedMessage) -> tuple[object, ...]:
    own = message.properties.get("n")
    return (
        message.message_id,
        message.body,
        message.tags,
        tuple(message.keys),
        own,
        message.flag,
        message.queue_offset,
    )


async def test_messages_of_a_pair_in_both_directions_do_not_come_back(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    for broker in pair:
        broker.create_topic("Both", 2)
    async with replicating(
        config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b", "b>a"], "compress = true")
    ) as replication:
        for broker in pair:
            async with sprocket.connect(broker.namesrv) as mq:
                for number in range(50):
                    await mq.producer().send(Message("Both", b"%s %d" % (broker.namesrv.encode(), number)))
        await until(lambda: _copied(replication, "Both") == 100)
        await until(lambda: all(copier.lag == 0 for link in replication.links for copier in link.copiers.values()))
    for broker in pair:
        found = await _read(broker.namesrv, "Both", 100, "readers")
        assert len({message.body for message in found}) == 100


async def test_a_link_back_of_another_replicator_is_known_also_when_it_came_later() -> None:
    async def echo_end(names: dict[str, str], link: str) -> int:
        async with replicating(config_of(names, [link])) as replication:
            await until(lambda: bool(replication.links[0].copiers))
            return next(iter(replication.links[0].copiers.values())).checkpoint.echo_end

    with Broker() as one, Broker() as other:
        one.create_topic("Later", 1)
        names = {"a": one.namesrv, "b": other.namesrv}
        assert await echo_end(names, "a>b") == NO_ECHOES
        assert await echo_end(names, "b>a") == 0
        assert await echo_end(names, "a>b") == 0


async def test_a_group_goes_on_at_the_target_where_it_stopped(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    one.create_topic("Work", 1)
    async with sprocket.connect(one.namesrv) as mq:
        for number in range(100):
            await mq.producer().send(Message("Work", b"%d" % number))
        async for message in mq.consumer("workers", "Work", consume_from=sprocket.ConsumeFrom.FIRST):
            await message.ack()
            if message.body == b"59":
                break
    async with replicating(config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"])) as replication:
        await until(lambda: _copied(replication, "Work") == 100)
        async with sprocket.connect(other.namesrv) as mq, asyncio.timeout(LIMIT_S):
            while not await _committed(mq, "workers"):
                await asyncio.sleep(0.1)
            found = []
            async for message in mq.consumer("workers", "Work"):
                found.append(message.body)
                if message.body == b"99":
                    break
    assert found == [b"%d" % number for number in range(60, 100)]


async def test_an_offset_is_exact_though_the_checkpoint_is_older_than_the_copies(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    one.create_topic("Again", 1)
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b", "b>a"])
    async with sprocket.connect(one.namesrv) as mq:
        for number in range(100):
            await mq.producer().send(Message("Again", b"%d" % number))
        async with replicating(config) as replication:
            await until(lambda: _copied(replication, "Again") == 100)
            queue, copier = next(each for each in replication.links[0].copiers.items() if each[0].topic == "Again")
        old = replace(copier.checkpoint, next_offset=0, target_end=0, has_copies=False, runs=(), echo_end=0)
        async with Cluster("b", ClientSettings(namesrv=other.namesrv), SystemClock()) as target:
            await target.open_table(create=False)
            await target.put(queue_key(queue), Record(queue=old))
        async for message in mq.consumer("again", "Again", consume_from=sprocket.ConsumeFrom.FIRST):
            await message.ack()
            if message.body == b"59":
                break
    async with replicating(config), sprocket.connect(other.namesrv) as mq, asyncio.timeout(LIMIT_S):
        while not await _committed(mq, "again", "Again"):
            await asyncio.sleep(0.1)


async def test_clusters_that_create_no_groups_by_themselves_are_replicated() -> None:
    strict = {"autoCreateSubscriptionGroup": "false"}
    with Broker(properties=strict) as one, Broker(properties=strict) as other:
        one.create_topic("Strict", 1)
        async with sprocket.connect(one.namesrv) as mq:
            await mq.producer().send(Message("Strict", b"x"))
        async with replicating(config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b", "b>a"])) as replication:
            await until(lambda: _copied(replication, "Strict") == 1)


async def test_a_queue_whose_record_is_away_goes_on_where_its_copies_are(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    one.create_topic("Away", 1)
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Away"]\ngroups = []')
    async with sprocket.connect(one.namesrv) as mq:
        for number in range(100):
            await mq.producer().send(Message("Away", b"%d" % number))
        async with replicating(config) as replication:
            await until(lambda: _copied(replication, "Away") == 100)
            (queue,) = replication.links[0].copiers
        async with sprocket.connect(other.namesrv) as target, target.table(TOPIC, Record) as table:
            await table.delete(queue_key(queue))
        await mq.producer().send(Message("Away", b"100"))
        async with replicating(config) as replication:
            await until(lambda: _copied(replication, "Away") == 1)
            place = replication.links[0].copiers[queue].checkpoint
            assert [place.map.translate(offset) for offset in (0, 50, 100)] == [0, 50, 100]
    copies = await _read(other.namesrv, "Away", 101, "of-away")
    assert [copy.body for copy in copies] == [b"%d" % number for number in range(101)]


async def test_no_replicator_goes_on_in_the_epoch_before_the_source_lost_its_end(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Made-again"]\ngroups = []')

    async with sprocket.connect(one.namesrv) as mq:

        async def send(begin: int, end: int) -> None:
            for number in range(begin, end):
                await mq.producer().send(Message("Made-again", b"%d" % number))

        one.create_topic("Made-again", 1)
        await send(0, 60)
        async with replicating(config, "waits") as waiting:
            await until(lambda: _copied(waiting, "Made-again") == 60)
            # Another one takes over, and finds the topic made again.
            await waiting.links[0].lease.release()
            await mq.admin.delete_topic("Made-again", "DefaultCluster")
            one.create_topic("Made-again", 1)
            async with replicating(config, "other") as replication:
                (link,) = replication.links
                await until(lambda: any(copier.position.epoch == 1 for copier in link.copiers.values()))
                await send(60, 80)
                await until(lambda: _copied(replication, "Made-again") == 20)
                (queue,) = replication.links[0].copiers
                (holder,) = await replication.links[0].target.holders()
                async with sprocket.connect(other.namesrv) as target, target.table(TOPIC, Record) as table:
                    await until(lambda: _epoch(table, first_key(queue, holder)) == 1)
                    await until(lambda: _epoch(table, queue_key(queue)) == 1)
            await send(80, 150)
            await waiting.links[0].lease.renew()
            await until(lambda: _copied(waiting, "Made-again") == 130)
        async with sprocket.connect(other.namesrv) as target, target.table(TOPIC, Record) as table:
            await table.delete(queue_key(queue))
        await send(150, 160)
        async with replicating(config) as replication:
            await until(lambda: _copied(replication, "Made-again") == 10)
    copies = await _read(other.namesrv, "Made-again", 160, "of-made-again")
    assert [copy.body for copy in copies] == [b"%d" % number for number in range(160)]


def _epoch(table: Mapping[str, Record], key: str) -> int | None:
    checkpoint = table.get(key, Record()).queue
    return None if checkpoint is None else checkpoint.epoch


async def test_a_broker_that_holds_no_early_checkpoints_keeps_no_queue_back(
    pair: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.create_topic("Unheld", 4)
    post_at, refused = Cluster.post_at, list[str]()

    async def refuse(self: Cluster, queue: MessageQueue, key: str, record: Record) -> None:
        refused.append(key)
        raise sprocket.ClientError("the disk is full")

    monkeypatch.setattr(Cluster, "post_at", refuse)
    async with sprocket.connect(one.namesrv) as mq:
        for number in range(10):
            await mq.producer().send(Message("Unheld", b"%d" % number))
        config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Unheld"]\ngroups = []')
        async with replicating(config) as replication:
            await until(lambda: _copied(replication, "Unheld") == 10)
            assert refused
            monkeypatch.setattr(Cluster, "post_at", post_at)
            (link,) = replication.links
            (holder,) = await link.target.holders()
            keys = {first_key(queue, holder) for queue in link.copiers}
            assert len(keys) == 4
            await until(lambda: keys <= link.target.records.keys())


async def test_an_account_that_may_create_no_groups_copies(
    pair: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = pair

    async def denied(self: AdminClient, broker: str, config: SubscriptionGroupConfig | None = None) -> NoReturn:
        raise AdminDenied(f"{broker}: not for this account", ResponseCode.NO_PERMISSION, None, broker)

    monkeypatch.setattr(AdminClient, "create_group", denied)
    monkeypatch.setattr(AdminClient, "consumer_groups", denied)
    async with sprocket.connect(one.namesrv) as mq:
        config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Denied-*"]\ngroups = []')
        async with replicating(config) as replication:
            for topic in ("Denied-1", "Denied-2"):
                one.create_topic(topic, 1)
                await mq.producer().send(Message(topic, b"x"))
                await until(lambda topic=topic: _copied(replication, topic) == 1)  # type: ignore[misc]
    logged = [record.getMessage() for record in caplog.records]
    assert sum("groups_not_created" in line for line in logged) == 2  # a line for each broker


async def test_a_group_is_created_where_a_broker_did_not_answer_at_first(
    pair: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    ask, create, created, is_silent = AdminClient.consumer_groups, AdminClient.create_group, set[str](), True

    async def consumer_groups(self: AdminClient, broker: str) -> SubscriptionGroupTable:
        found = await ask(self, broker)
        if broker == other.address and "silent" in found.subscription_group_table:
            del found.subscription_group_table["silent"]
            if is_silent:
                raise AdminError("no answer in time")
        return found  # as of a broker that nobody has asked for the group

    async def create_group(self: AdminClient, broker: str, config: SubscriptionGroupConfig) -> None:
        created.add(config.group_name)
        await create(self, broker, config)

    one.create_topic("Silent", 1)
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Silent"]\ngroups = ["silent"]')
    async with sprocket.connect(one.namesrv) as mq, sprocket.connect(other.namesrv) as target:
        await target.admin.create_group(other.address, SubscriptionGroupConfig("silent"))
        for number in range(100):
            await mq.producer().send(Message("Silent", b"%d" % number))
        async with replicating(config) as replication, asyncio.timeout(LIMIT_S):
            await until(lambda: _copied(replication, "Silent") == 100)
            monkeypatch.setattr(AdminClient, "consumer_groups", consumer_groups)
            monkeypatch.setattr(AdminClient, "create_group", create_group)
            async for message in mq.consumer("silent", "Silent", consume_from=sprocket.ConsumeFrom.FIRST):
                await message.ack()
                if message.body == b"59":
                    break
            while not await _committed(target, "silent", "Silent"):
                await asyncio.sleep(0.1)
            with pytest.raises(AdminError, match="no answer in time"):
                await replication.links[0].offsets.write()
            assert not created
            is_silent = False
            await until(lambda: created == {"silent"})


async def test_checkpoints_are_written_at_the_same_time(
    pair: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.create_topic("Wide", 8)
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Wide"]\ngroups = []')
    config = replace(config, links=tuple(replace(link, checkpoint_s=1000.0) for link in config.links))
    posts, all_wait = set[str](), asyncio.Event()

    async def post(key: str, record: Record) -> None:
        posts.add(key)
        if len(posts) == 8:
            all_wait.set()
        await all_wait.wait()

    async with replicating(config) as replication, sprocket.connect(one.namesrv) as mq:
        (link,) = replication.links
        await until(lambda: len(link.copiers) == 8)
        for queue in await mq.producer().queues("Wide"):
            await mq.producer().send(Message("Wide", b"x"), queue=queue)
        await until(lambda: _copied(replication, "Wide") == 8)
        monkeypatch.setattr(link.target, "post", post)
        async with asyncio.timeout(LIMIT_S):
            await link.save()


async def test_topics_and_groups_that_fail_keep_no_others_back(
    pair: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    names = ("Bad-topic", "Good-topic")
    adopt, create = Cluster.adopt_topic, AdminClient.create_group

    async def adopt_topic(self: Cluster, topic: str, wanted: Mapping[str, TopicConfig]) -> dict[str, int]:
        if topic == "Bad-topic":
            raise AdminError("the topic is refused")
        return await adopt(self, topic, wanted)

    async def create_group(self: AdminClient, broker: str, config: SubscriptionGroupConfig) -> None:
        if config.group_name == "bad-group":
            raise AdminError("the group is refused")
        await create(self, broker, config)

    monkeypatch.setattr(Cluster, "adopt_topic", adopt_topic)
    monkeypatch.setattr(AdminClient, "create_group", create_group)
    async with sprocket.connect(one.namesrv) as mq:
        for topic in names:
            one.create_topic(topic, 1)
            for number in range(100):
                await mq.producer().send(Message(topic, b"%d" % number))
        for group in ("bad-group", "good-group"):
            async for message in mq.consumer(group, "Good-topic", consume_from=sprocket.ConsumeFrom.FIRST):
                await message.ack()
                if message.body == b"59":
                    break
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["*-topic"]')
    async with replicating(config), sprocket.connect(other.namesrv) as mq, asyncio.timeout(LIMIT_S):
        while not await _committed(mq, "good-group", "Good-topic"):
            await asyncio.sleep(0.1)
        assert not await _committed(mq, "bad-group", "Good-topic")


async def test_a_group_that_only_commits_offsets_and_has_no_retry_topic_moves_too(pair: tuple[Broker, Broker]) -> None:
    one, other = pair
    one.create_topic("Work", 1)
    async with sprocket.connect(one.namesrv) as mq:
        for number in range(100):
            await mq.producer().send(Message("Work", b"%d" % number))
        await mq.admin.create_group(one.address, SubscriptionGroupConfig("only-pulls"))
        await GroupAdmin(mq.admin).commit(one.address, "only-pulls", "Work", 0, 60)
    config = config_of({"a": one.namesrv, "b": other.namesrv}, ["a>b"], 'topics = ["Work"]')
    async with replicating(config), sprocket.connect(other.namesrv) as mq, asyncio.timeout(LIMIT_S):
        while not await _committed(mq, "only-pulls"):
            await asyncio.sleep(0.1)


async def _committed(mq: sprocket.Connection, group: str, topic: str = "Work") -> bool:
    try:
        stats = await mq.admin.consume_stats(group, topic)
    except sprocket.ClientError:
        return False
    return any(offsets.consumer_offset == 60 for offsets in stats.offset_table.values())
