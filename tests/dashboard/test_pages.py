"""Each page shows the figures of a real broker."""

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

import sprocket
from dashboard.asking import links
from dashboard.settings import DashboardSettings
from replicate.cluster import Cluster
from replicate.protocol.copies import SourceQueue
from replicate.protocol.position import Checkpoint
from replicate.protocol.steps import Pair, Phase
from replicate.records import Link, Record, link_key, pair_key, queue_key
from replicate.report import LinkReport
from sprocket import ClientError, ConsumeFrom, Consumer, Message, Producer, SimpleConsumer
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.trace.recorder import TraceSettings
from sprocket.common.clock import SystemClock
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.message.topic_names import dlq_topic
from sprocket.testing import Broker
from tests.dashboard.rig import kill_messages, running


async def send(broker: Broker, topic: str, count: int, **fields: object) -> list[str]:
    async with Producer("p", broker.namesrv, trace=TraceSettings()) as producer:
        sent = [await producer.send(Message(topic, b"body %d" % n, **fields)) for n in range(count)]  # type: ignore[arg-type]
    return [one.message_id for one in sent]


async def test_cluster_map(broker: Broker) -> None:
    broker.create_topic("Map", 2)
    await send(broker, "Map", 3)
    async with running(broker.namesrv) as (_, visitor):
        page = await visitor.get("/")
    assert page.status == 200
    assert "Sends are confirmed by 1 of 1 broker groups. No other problem found" in page.text
    assert f"answers {broker.address}" in page.text
    assert "master" in page.text and "V5_5_1" in page.text and f"answers {broker.namesrv}" in page.text


async def test_topics_and_one_topic(broker: Broker) -> None:
    broker.create_topic("Shown", 3)
    await send(broker, "Shown", 7)
    async with running(broker.namesrv) as (_, visitor):
        page = await visitor.get("/topics", name="shown")
        assert "1 topics of applications" in page.text
        assert "Shown 7 " in page.text
        one = await visitor.get("/topic", topic="Shown")
        system = await visitor.get("/topics", kind="system")
        missing = await visitor.get("/topic", topic="Nowhere")
        wrong = await visitor.get("/topics", kind="other")
    assert "Messages 7" in one.text and "Queues 3" in one.text and "read and write" in one.text
    assert "RMQ_SYS_TRACE_TOPIC" in system.text
    assert missing.status == 404 and "Nowhere" in missing.text
    assert wrong.status == 400 and "allowed are user" in wrong.text


async def test_a_topic_shows_its_type_and_its_lite_topics(broker: Broker) -> None:
    async with AdminClient([broker.namesrv]) as admin:
        await admin.create_session_topic("Chats", "chatters", expires=3600)
        await admin.create_topic(broker.address, TopicConfig("Alarms", 2, 2, attributes={"+message.type": "PRIORITY"}))
    for name in ("a", "b"):
        await send(broker, "Chats", 2, lite_topic=name)
    async with running(broker.namesrv) as (_, visitor):
        page = await visitor.get("/topic", topic="Chats")
        assert "Message type LITE Lite topics 2 Lite topics expire after 60 min" in page.text, page.text
        assert "chatters" in page.text
        page = await visitor.get("/topic", topic="Alarms")
        assert "Message type PRIORITY" in page.text and "Lite topics" not in page.text


async def test_a_topic_of_type_priority_shows_what_waits_by_priority(broker: Broker) -> None:
    async with AdminClient([broker.namesrv]) as admin:
        await admin.create_topic(broker.address, TopicConfig("Urgent", 3, 3, attributes={"+message.type": "PRIORITY"}))
        await send(broker, "Urgent", 2, priority=0)
        await send(broker, "Urgent", 5, priority=7)
        from_first = ConsumeFrom.FIRST
        async with SimpleConsumer("medics", {"Urgent": "*"}, broker.namesrv, consume_from=from_first) as consumer:
            [first] = await consumer.receive(1)
            assert first.priority == 7
            async with running(broker.namesrv) as (_, visitor):
                page = await visitor.get("/topic", topic="Urgent")
    assert "Priority Messages Waiting for medics 2 5 4 1 0 0 0 2 2" in page.text, page.text


async def test_group_without_consumers_and_with_one(broker: Broker) -> None:
    broker.create_topic("Work", 2)
    await send(broker, "Work", 4)
    async with running(broker.namesrv) as (_, visitor):
        async with Consumer("workers", ["Work"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
            for _ in range(4):
                assert (await anext(consumer)).body
            page = await visitor.get("/group", group="workers")
            assert "Consumers 1" in page.text, page.text
            assert "Work: *" in page.text
        await send(broker, "Work", 5)
        page = await visitor.get("/group", group="workers")
        assert "No consumer is connected" in page.text
        listed = await visitor.get("/groups", name="WORKERS")
        assert "workers" in listed.text
        unknown = await visitor.get("/group", group="nobody")
        assert "No broker that answers knows this group" in unknown.text


async def test_message_by_id_and_key_with_its_trace(broker: Broker) -> None:
    broker.create_topic("Traced", 1)
    message_id, *_ = await send(broker, "Traced", 2, keys=["order-1"], tags="blue")
    async with running(broker.namesrv) as (_, visitor):
        page = await visitor.get("/messages", topic="Traced", id=message_id)
        for _ in range(100):
            if "sent by the producer" in page.text:
                break
            await asyncio.sleep(0.05)
            page = await visitor.get("/messages", topic="Traced", id=message_id)
        assert "sent by the producer" in page.text and "stored by the broker" in page.text
        assert "body 0" in page.text and "order-1" in page.text and "blue" in page.text
        by_key = await visitor.get("/messages", topic="Traced", key="order-1")
        assert "2 messages of Traced" in by_key.text and message_id in by_key.text
        newest = await visitor.get("/messages", topic="Traced", newest="1")
        assert "1 message of Traced" in newest.text and "body 1" in newest.text
        nothing = await visitor.get("/messages", topic="Traced", key="order-2")
        assert "Nothing was found" in nothing.text


async def test_send_and_find_it(broker: Broker) -> None:
    broker.create_topic("FromForm", 1)
    async with running(broker.namesrv) as (_, visitor):
        sent = await visitor.post("/send/now", topic="FromForm", body="hello\r\nworld", keys="k1 k2", tag="t")
        assert "SEND_OK" in sent.text
        found = await visitor.get("/messages", topic="FromForm", key="k2")
        assert "hello world" in found.text
        refused = await visitor.post("/send/now", topic="From Form", body="x")
    assert refused.status == 400 and "From Form" in refused.text


async def test_dead_letters_preview_and_redrive(broker: Broker) -> None:
    broker.create_topic("Origin", 1)
    broker.create_topic(dlq_topic("sick"), 1)
    await kill_messages(broker, "sick", "Origin", 3)
    async with running(broker.namesrv) as (_, visitor):
        listed = await visitor.get("/dead-letters")
        assert "sick 3" in listed.text
        shown = await visitor.get("/dead-letters", group="sick", tag="a", preview="1")
        assert "dead 2" in shown.text and "would send 2 of 2" in shown.text
        before = await visitor.get("/messages", topic="Origin", newest="5")
        assert "Nothing was found" in before.text
        done = await visitor.post("/dead-letters/redrive", group="sick", tag="a", count="10")
        assert "Sent 2 of 2" in done.text and "2 to Origin" in done.text
        after = await visitor.get("/messages", topic="Origin", newest="5")
        assert "2 messages of Origin" in after.text


@pytest.mark.parametrize(("target", "offset"), [("start", 0), ("end", 6), ("time", 6)])
async def test_reset_with_preview(broker: Broker, target: str, offset: int) -> None:
    topic, group = f"Reset_{target}", f"reset_{target}"
    broker.create_topic(topic, 1)
    await send(broker, topic, 6)
    async with AdminClient([broker.namesrv]) as admin:
        await admin.create_group(broker.address, SubscriptionGroupConfig(group))
        await GroupAdmin(admin).commit(broker.address, group, topic, 0, 2)
        fields = {"group": group, "topic": topic, "to": target}
        if target == "time":
            fields["time"] = datetime.now(UTC).replace(year=datetime.now(UTC).year + 1, tzinfo=None).isoformat()
        async with running(broker.namesrv) as (_, visitor):
            preview = await visitor.get("/offsets", **fields)
            assert f"0 0 6 2 {offset} " in preview.text, preview.text
            done = await visitor.post("/offsets/reset", **fields)
            assert done.status == 200 and f"queue 0: {offset}" in done.text
            stats = await admin.consume_stats(group, topic, topic)
    assert [one.consumer_offset for one in stats.offset_table.values()] == [offset]


async def test_schedules_are_shown_and_changed(broker: Broker) -> None:
    broker.create_topic("Planned", 1)
    async with sprocket.connect(broker.namesrv) as mq, running(broker.namesrv) as (_, visitor):
        await mq.schedule("<nightly>", topic="Planned", body=b"go", cron="0 5 * * *", tz="Europe/Berlin")
        page = await visitor.get("/schedules", part="planned")
        assert "&lt;nightly&gt;" in page.html and "0 5 * * * Europe/Berlin" in page.text and "active" in page.text
        one = {"name": "<nightly>", "topic": "Planned"}
        paused = await visitor.post("/schedules/pause", **one)
        assert "is paused" in paused.text and (await mq.schedules.get(**one)).is_paused
        assert "goes on" in (await visitor.post("/schedules/resume", **one)).text
        assert "has sent its message" in (await visitor.post("/schedules/trigger", **one)).text
        assert "1 message of Planned" in (await visitor.get("/messages", topic="Planned", newest="1")).text
        assert "is deleted" in (await visitor.post("/schedules/delete", **one)).text
        gone = await visitor.post("/schedules/delete", **one)
        assert "has no schedule" in gone.text and "There is none" in gone.text


async def test_quotas_are_shown_set_and_deleted(broker: Broker) -> None:
    broker.create_topic("Limited", 1)
    async with running(broker.namesrv) as (_, visitor):
        assert "There is no quota" in (await visitor.get("/quotas", part="limited")).text
        done = await visitor.post("/quotas/set", name="topic:Limited", messages_in="1", is_soft="on", burst_millis="1")
        assert "Quota topic:Limited is set on " in done.text and "messagesIn=1 burstMillis=1" in done.text
        await send(broker, "Limited", 5)
        page = await visitor.get("/quotas", part="limited")
        assert "messages_in: " in page.text and " of 1 topic Limited" in page.text and " soft " in page.text
        edited = await visitor.get("/quotas", edit="topic:Limited")
        assert 'name="name" value="topic:Limited"' in edited.html and 'name="messages_in" value="1"' in edited.html
        assert 'name="is_soft" value="on" checked' in edited.html
        wrong = await visitor.post("/quotas/set", name="team:<a>", messages_in="1")
        assert "dimension:pattern" in wrong.text and "team:<a>" in wrong.text and "<a>" not in wrong.html
        refused = await visitor.post("/quotas/set", name="topic:Limited", messages_in="many")
        assert refused.status == 400 and "messages_in is" in refused.text
        assert "is deleted on" in (await visitor.post("/quotas/delete", name="topic:Limited")).text
        assert "There is no quota" in (await visitor.get("/quotas", part="limited")).text


async def test_links_from_other_clusters_are_shown_with_what_is_missing(broker: Broker) -> None:
    queue, now_ms = SourceQueue("<east>", "Shipped", "broker-a", 0), SystemClock().wall_ms()
    late = Checkpoint("broker-a", 0, 0, 70, source_end=100, copied_ms=now_ms - 90_000, blocked="the target is <full>")
    settings = ClientSettings(namesrv=broker.namesrv)
    async with running(broker.namesrv) as (_, visitor), Cluster("west", settings, SystemClock()) as west:
        assert "No link leads into this cluster" in (await visitor.get("/replication")).text
        await west.open_table(create=True)
        await west.put(link_key("<east>"), Record(link=Link("<east>", False, "west", now_ms, "<one>", 3)))
        await west.put(link_key("old"), Record(link=Link("old", False, "west")))
        await west.put(queue_key(queue), Record(queue=late))
        page = await visitor.get("/replication", part="ship")
        pair = Pair("<east>", "west", Phase.FAILED_OVER)
        await west.put(pair_key("<east>", "west"), Record(pair=pair))
        assert "west is active (failed-over)" in (await visitor.get("/replication")).text
    assert "<one>" in page.text and "not known" in page.text and "3 groups without an offset" in page.text
    assert "&lt;east&gt;" in page.html and "Shipped" in page.text and "1 stand still" in page.text
    assert " 30 1 min 3" in page.text and "the target is <full>" in page.text


async def test_visits_of_replication_in_an_outage_share_one_look_and_stop_no_other_page(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Cluster] = []
    is_over = asyncio.Event()

    async def silent(target: Cluster, clock: SystemClock) -> list[LinkReport]:
        looks.append(target)
        await is_over.wait()
        return []

    monkeypatch.setattr(links, "reports_of_target", silent)
    async with running(broker.namesrv) as (_, visitor):
        visits = [asyncio.create_task(visitor.get("/replication")) for _ in range(40)]
        while not looks:
            await asyncio.sleep(0.01)
        assert (await visitor.get("/topics")).status == 200
        assert len(looks) == 1
        is_over.set()
        assert {page.status for page in await asyncio.gather(*visits)} == {200}
    look = links.LinkLook(DashboardSettings(name_servers=(broker.namesrv,)), None, SystemClock())
    look.stop()
    with pytest.raises(ClientError, match="open the page again"):
        await look.outcomes()
    assert len(looks) == 1


async def test_namespaces_are_shown_and_limited(broker: Broker) -> None:
    broker.create_topic("shop|orders%Paid", 1)
    async with running(broker.namesrv) as (_, visitor), AdminClient([broker.namesrv]) as admin:
        assert "shop|orders" in (await visitor.get("/namespaces")).text
        form = {"name": "shop|orders", "max_topics": "1", "max_queues": "4", "message_types": "normal fifo"}
        done = await visitor.post("/namespaces/set", None, **form)
        assert "The limits of namespace shop|orders are set on " in done.text and "1 of 1" in done.text
        policy = (await admin.namespaces(broker.address))["shop|orders"].policy
        assert policy is not None and (policy.max_queues, policy.message_types) == (4, ("NORMAL", "FIFO"))
        # What the form does not show stays.
        await admin.set_namespace(broker.address, replace(policy, topic_attributes={"message.type": "FIFO"}))
        await visitor.post("/namespaces/set", None, **form | {"max_topics": "2"})
        policy = (await admin.namespaces(broker.address))["shop|orders"].policy
        assert policy is not None and policy.max_topics == 2 and policy.topic_attributes == {"message.type": "FIFO"}
        edited = await visitor.get("/namespaces", edit="shop|orders")
        assert 'name="max_topics" value="2"' in edited.html and 'value="NORMAL FIFO"' in edited.html
        refused = await visitor.post("/namespaces/set", None, **form | {"message_types": "odd"})
        assert refused.status == 400 and "allowed are" in refused.text
        assert "are deleted on" in (await visitor.post("/namespaces/delete", name="shop|orders")).text
        assert (await admin.namespaces(broker.address))["shop|orders"].policy is None


async def test_charts_of_real_rates(broker: Broker) -> None:
    broker.create_topic("Charted", 1)
    async with running(broker.namesrv, sample_interval_s=1.0) as (_, visitor):
        for _ in range(200):
            await send(broker, "Charted", 5)
            page = await visitor.get("/charts")
            if "polyline" in page.html:
                break
            await asyncio.sleep(0.1)
    assert "Messages in" in page.text and "polyline" in page.html and "Time of a write" in page.text


async def test_a_mistyped_name_keeps_the_form_and_suggests_the_right_one(broker: Broker) -> None:
    broker.create_topic("Parcels", 1)
    async with AdminClient([broker.namesrv]) as admin:
        await admin.create_group(broker.address, SubscriptionGroupConfig("couriers"))
    async with running(broker.namesrv) as (_, visitor):
        for path, fields in (
            ("/messages", {"topic": "Parcles", "key": "kept"}),
            ("/offsets", {"topic": "Parcles", "group": "kept", "to": "end"}),
            ("/topic", {"topic": "Parcles"}),
        ):
            page = await visitor.get(path, **fields)
            assert page.status == 404, (path, page.text)
            assert "There is no topic Parcles. Did you mean Parcels ?" in page.text
            assert f'href="{path}?topic=Parcels' in page.html
            assert path == "/topic" or ('value="kept"' in page.html and 'option value="Parcels"' in page.html)
        page = await visitor.post("/send/now", topic="Parcles", body="a long text", keys="kept")
        assert (page.status, "Did you mean Parcels" in page.text) == (404, True)
        assert "a long text" in page.text and 'value="kept"' in page.html
        async with AdminClient([broker.namesrv]) as admin:
            assert "Parcles" not in await admin.topic_list()
        page = await visitor.post("/send/now", topic="Parcels", body="a long text", delay="x")
        assert (page.status, "a long text" in page.text, "delay is" in page.text) == (400, True, True)
        for path in ("/group", "/dead-letters"):
            page = await visitor.get(path, group="courriers")
            assert page.status == 200 and "Did you mean couriers" in page.text, page.text
        page = await visitor.get("/offsets", group="courriers", topic="Parcels", to="end")
        assert "Did you mean couriers" in page.text and "Preview" in page.text
        assert "Did you mean" not in (await visitor.get("/offsets", group="couriers", topic="Parcels", to="end")).text
        page = await visitor.get("/dead-letters", group="couriers", preview="1")
        assert page.status == 200 and "The group has no dead letters" in page.text and "Did you mean" not in page.text


async def test_an_original_names_its_dead_letter(broker: Broker) -> None:
    broker.create_topic("Broken", 1)
    async with (
        Producer("p", broker.namesrv) as producer,
        Consumer("menders", ["Broken"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        sent = await producer.send(Message("Broken", b"x"))
        await consumer.dead_letter(await anext(consumer), "no such part")
    async with running(broker.namesrv) as (_, visitor):
        # The first dead letter makes the topic, which the name server is told a moment later.
        async with asyncio.timeout(20):
            while "no such part" not in (await visitor.get("/dead-letters", group="menders")).text:
                await asyncio.sleep(0.05)
        page = await visitor.get("/dead-letters", group="menders", tag="kept", count="many", preview="1")
        assert page.status == 400 and "count is 'many'" in page.text
        assert 'value="kept"' in page.html and 'value="many"' in page.html
        page = await visitor.get("/messages", topic="Broken", id=sent.message_id)
        assert "gave it up, it is a dead letter: no such part" in page.text
        assert "became a dead letter of menders" in page.text
        page = await visitor.get("/messages", topic=dlq_topic("menders"), id=sent.message_id)
        assert "Dead letter of menders" in page.text and page.text.count("became a dead letter") == 1


async def test_users_are_created_only_where_brokers_keep_users(broker: Broker) -> None:
    async with running(broker.namesrv) as (_, visitor):
        assert "New user" not in (await visitor.get("/accounts")).text
