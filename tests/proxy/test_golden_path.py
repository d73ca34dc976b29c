"""Routes, sends, receives and acknowledgements of a plain gRPC client."""

import pytest

from proxy.config import GRPCIO
from sprocket.grpc_wire import messaging_pb2 as wire
from tests.proxy.rig import ENDPOINTS, AnyBroker, Rig, create_group, create_topic, handle_of, message


@pytest.fixture(params=["cluster", GRPCIO, "local"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_route_has_every_queue_and_the_proxys_address(rig: Rig, topic: str) -> None:
    asked = wire.QueryRouteRequest(topic=wire.Resource(name=topic), endpoints=ENDPOINTS)
    answer = await rig.client().call("QueryRoute", asked)
    assert answer.status.code == wire.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1]
    for queue in answer.message_queues:
        assert queue.permission == wire.READ_WRITE and list(queue.accept_message_types) == [wire.NORMAL]
        (address,) = queue.broker.endpoints.addresses
        assert (address.host, address.port) == ("127.0.0.1", rig.port)


async def test_assignment_is_per_broker_and_per_queue_for_an_ordered_group(rig: Rig, topic: str) -> None:
    client = rig.client()
    for is_ordered, ids in ((False, [-1]), (True, [0, 1])):
        group = await create_group(rig.broker, consume_message_orderly=is_ordered)
        asked = wire.QueryAssignmentRequest(
            topic=wire.Resource(name=topic), group=wire.Resource(name=group), endpoints=ENDPOINTS
        )
        answer = await client.call("QueryAssignment", asked)
        assert [one.message_queue.id for one in answer.assignments] == ids


async def test_message_arrives_as_it_was_sent_and_once(rig: Rig, topic: str) -> None:
    client, group = rig.client(), "group-once"
    await client.receive(topic, group, wait_s=0)
    sent = message(topic, "hello", tag="red", keys=["k1", "k2"], trace_context="trace")
    sent.user_properties["colour"] = "blue"
    answer = await client.call("SendMessage", wire.SendMessageRequest(messages=[sent]))
    assert answer.status.code == wire.OK and answer.entries[0].message_id == sent.system_properties.message_id
    (received,) = await client.messages(topic, group, 1)
    system = received.system_properties
    assert received.body == b"hello" and received.user_properties["colour"] == "blue"
    assert "PGROUP" not in received.user_properties and "UNIQ_KEY" not in received.user_properties
    assert (system.tag, list(system.keys), system.trace_context) == ("red", ["k1", "k2"], "trace")
    assert (system.message_type, system.delivery_attempt, system.body_encoding) == (wire.NORMAL, 1, wire.IDENTITY)
    acked = await client.ack(topic, group, handle_of(received))
    assert acked.status.code == wire.OK and acked.entries[0].status.code == wire.OK
    assert (await client.receive(topic, group, wait_s=0))[0].status.code == wire.MESSAGE_NOT_FOUND


async def test_batch_has_an_entry_for_each_message(rig: Rig, topic: str) -> None:
    client = rig.client()
    await client.receive(topic, "group-batch", wait_s=0)
    answer = await client.send(topic, "a", "b", "c")
    assert [entry.offset for entry in answer.entries] == [0, 1, 2]
    assert len({entry.message_id for entry in answer.entries}) == 3
    received = await client.messages(topic, "group-batch", 3)
    assert sorted(one.body for one in received) == [b"a", b"b", b"c"]
    acked = await client.ack(topic, "group-batch", *map(handle_of, received))
    assert acked.status.code == wire.OK and len(acked.entries) == 3
    assert not await client.messages(topic, "group-batch", 1, wait_s=0)


async def test_unacknowledged_message_comes_again(rig: Rig, topic: str) -> None:
    client = rig.client()
    await client.receive(topic, "group-again", wait_s=0)
    await client.send(topic, "again")
    (first,) = await client.messages(topic, "group-again", 1, invisible_s=2)
    (second,) = await client.messages(topic, "group-again", 1)
    assert second.body == first.body and second.system_properties.delivery_attempt == 2


async def test_changed_invisible_time_gives_a_new_handle(rig: Rig, topic: str) -> None:
    client, group = rig.client(), "group-change"
    await client.receive(topic, group, wait_s=0)
    await client.send(topic, "later")
    (received,) = await client.messages(topic, group, 1)
    message_id, handle = handle_of(received)
    request = wire.ChangeInvisibleDurationRequest(
        group=wire.Resource(name=group), topic=wire.Resource(name=topic), receipt_handle=handle, message_id=message_id
    )
    request.invisible_duration.seconds = 60
    changed = await client.call("ChangeInvisibleDuration", request)
    assert changed.status.code == wire.OK and changed.receipt_handle != handle
    acked = await client.ack(topic, group, (message_id, changed.receipt_handle))
    assert acked.status.code == wire.OK


async def test_messages_of_one_group_are_received_in_order(broker: AnyBroker, rig: Rig) -> None:
    topic = await create_topic(broker, "FIFO", queues=4)
    group = await create_group(broker, consume_message_orderly=True)
    client = rig.client()
    await client.receive(topic, group, wait_s=0)
    for number in range(12):
        answer = await client.send(topic, str(number), message_group="one")
        assert answer.status.code == wire.OK and answer.entries[0].offset == number
    received = []
    for _ in range(12):
        batch = [part.message for part in await client.receive(topic, group, batch_size=5) if part.HasField("message")]
        received += [one.body.decode() for one in batch]
        # Until these are acknowledged, no other ones of the group are delivered.
        assert not await client.messages(topic, group, 1, wait_s=0) or not batch
        if batch:
            await client.ack(topic, group, *map(handle_of, batch))
        if len(received) >= 12:
            break
    assert received == [str(number) for number in range(12)]


@pytest.mark.parametrize(("tags", "wanted"), [("red", ["red"]), ("red || blue", ["blue", "red"]), ("*", None)])
async def test_tags_select(rig: Rig, topic: str, tags: str, wanted: list[str] | None) -> None:
    client, group = rig.client(), f"group-tags-{len(tags)}"
    expression = wire.FilterExpression(type=wire.TAG, expression=tags)
    await client.receive(topic, group, wait_s=0, filter_expression=expression)
    for tag in ("red", "green", "blue"):
        await client.send(topic, tag, tag=tag)
    expected = wanted or ["blue", "green", "red"]
    received = await client.messages(topic, group, len(expected), filter_expression=expression)
    assert sorted(one.body.decode() for one in received) == expected


async def test_sql_selects(rig: Rig, topic: str) -> None:
    client = rig.client()
    expression = wire.FilterExpression(type=wire.SQL, expression="price > 10")
    await client.receive(topic, "group-sql", wait_s=0, filter_expression=expression)
    for price in ("5", "15"):
        sent = message(topic, price)
        sent.user_properties["price"] = price
        await client.call("SendMessage", wire.SendMessageRequest(messages=[sent]))
    received = await client.messages(topic, "group-sql", 1, filter_expression=expression)
    assert [one.body for one in received] == [b"15"]


@pytest.mark.parametrize(("suspend", "attempt"), [(True, 1), (False, 2)])
async def test_suspended_message_comes_again_without_being_counted(
    rig: Rig, topic: str, suspend: bool, attempt: int
) -> None:
    client, group = rig.client(), f"group-suspend-{attempt}"
    await client.receive(topic, group, wait_s=0)
    await client.send(topic, "later")
    (received,) = await client.messages(topic, group, 1)
    message_id, handle = handle_of(received)
    request = wire.ChangeInvisibleDurationRequest(
        group=wire.Resource(name=group), topic=wire.Resource(name=topic), receipt_handle=handle,
        message_id=message_id, suspend=suspend,
    )  # fmt: skip
    request.invisible_duration.seconds = 2
    assert (await client.call("ChangeInvisibleDuration", request)).status.code == wire.OK
    (again,) = await client.messages(topic, group, 1)
    assert (again.body, again.system_properties.delivery_attempt) == (b"later", attempt)


async def test_priorities_go_both_ways(rig: Rig) -> None:
    topic = await create_topic(rig.broker, "PRIORITY", 4)
    client, group = rig.client(), "group-priority"
    asked = wire.QueryRouteRequest(topic=wire.Resource(name=topic), endpoints=ENDPOINTS)
    answer = await client.call("QueryRoute", asked)
    assert {tuple(queue.accept_message_types) for queue in answer.message_queues} == {(wire.PRIORITY,)}
    await client.receive(topic, group, wait_s=0)
    messages = [message(topic, str(one), message_type=wire.PRIORITY, priority=one) for one in (1, 0, 9, 2)]
    answer = await client.call("SendMessage", wire.SendMessageRequest(messages=messages))
    assert [entry.status.code for entry in answer.entries] == [wire.OK] * 4
    received = await client.messages(topic, group, 4)
    assert [one.body for one in received] == [b"9", b"2", b"1", b"0"]
    assert [one.system_properties.priority for one in received] == [9, 2, 1, 0]
    assert {one.system_properties.message_type for one in received} == {wire.PRIORITY}
    assert not any(one.user_properties for one in received)
    for system, code in (
        ({"priority": -1}, wire.BAD_REQUEST),
        ({}, wire.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"priority": 1, "message_group": "g"}, wire.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ):
        answer = await client.send(topic, "x", **system)
        assert answer.status.code == code
