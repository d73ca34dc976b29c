"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME: their records and their refusals."""

import asyncio
from pathlib import Path

import pytest

from broker.pop.records import AckMsg, BatchAckMsg, PopCheckPoint
from sprocket.common.clock import SystemClock
from sprocket.common.errors import DiskFull
from sprocket.remoting.bodies.pop import BatchAck
from sprocket.remoting.bodies.stats import BrokerStatsData
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from sprocket.remoting.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeResponseHeader
from sprocket.remoting.message.properties import parse
from tests.broker.pop.rig import ack, ack_batch, change, changed, pop, popped, written
from tests.broker.rig import GROUP, TOPIC, running_broker

CODE = ResponseCode


@pytest.mark.code(RequestCode.ACK_MESSAGE)
async def test_an_acknowledgement_goes_through_the_wheel_to_its_checkpoints_queue(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        messages = await popped(client)
        assert (await ack(client, messages[2])).code == CODE.SUCCESS
        checkpoint, record = written(broker)
        handle, properties = messages[2].handle, parse(bytes(record.properties).decode())
        assert loads(bytes(record.body), AckMsg) == AckMsg(2, 0, GROUP, TOPIC, 0, handle.pop_time_ms, "broker-a")
        due = handle.pop_time_ms + handle.invisible_ms
        assert properties["TAGS"] == "ack"
        assert properties["UNIQ_KEY"] == f"{TOPIC}@0@2@{GROUP}@{handle.pop_time_ms}@broker-a@ack"
        assert properties["TIMER_DELIVER_MS"] == str(due)
        assert properties["REAL_QID"] == parse(bytes(checkpoint.properties).decode())["REAL_QID"]


async def test_acknowledgements_of_one_read_are_one_append(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(20):
            await client.send(b"%d" % number)
        messages = await popped(client)
        sizes = []
        store = broker.store
        append, append_encoded = store.append, store.append_encoded
        store.append = lambda batch: (sizes.append(len(batch)), append(batch))[1]  # type: ignore[method-assign, func-returns-value, assignment]
        store.append_encoded = lambda acks: (sizes.append(len(acks)), append_encoded(acks))[1]  # type: ignore[method-assign, func-returns-value, assignment]
        responses = await asyncio.gather(*(ack(client, message) for message in messages))
        assert [response.code for response in responses] == [CODE.SUCCESS] * 20
        assert sum(sizes) == 20
        assert max(sizes) > 10


@pytest.mark.code(RequestCode.BATCH_ACK_MESSAGE)
async def test_several_acknowledgements_in_one_request_are_one_record(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(5):
            await client.send(b"%d" % number)
        handle = (await popped(client))[0].handle
        batch = BatchAck(
            GROUP, TOPIC, "0", handle.first_offset, 0, handle.revive_queue_id, handle.pop_time_ms,
            handle.invisible_ms, bytes([0b10110]),
        )  # fmt: skip
        assert (await ack_batch(client, batch)).code == CODE.SUCCESS
        _, record = written(broker)
        body = loads(bytes(record.body), BatchAckMsg)
        assert (body.aol, body.ao, body.so, body.bn) == ([1, 2, 4], -1, 0, "broker-a")
        assert parse(bytes(record.properties).decode())["TAGS"] == "bAck"


async def test_offsets_that_are_not_there_are_left_out_of_a_batch(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        (message,) = await popped(client)
        pop_time = message.handle.pop_time_ms
        far = BatchAck(GROUP, TOPIC, "0", 100, 0, 0, pop_time, 60_000, b"\x01")
        other_queue = BatchAck(GROUP, TOPIC, "0", 0, 77, 0, pop_time, 60_000, b"\x01")
        other_topic = BatchAck(GROUP, "None", "1", 0, 0, 0, pop_time, 60_000, b"\x01")
        assert (await ack_batch(client, far, other_queue, other_topic)).code == CODE.SUCCESS
        assert len(written(broker)) == 1
        assert (await ack_batch(client)).code == CODE.NO_MESSAGE
        too_many = BatchAck(GROUP, TOPIC, "0", 0, 0, 0, pop_time, 60_000, b"\xff" * (1 << 17))
        assert (await ack_batch(client, too_many)).code == CODE.MESSAGE_ILLEGAL


async def test_a_batch_of_900_unknown_queues_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        caplog.clear()
        unknown = [BatchAck(GROUP, TOPIC, "0", 0, 100 + number, 0, 1, 60_000, b"\x01") for number in range(900)]
        assert (await ack_batch(client, *unknown)).code == CODE.SUCCESS
    (line,) = [text for text in caplog.messages if "unknown_queue" in text]
    assert line == f"event=batch_ack_unknown_queue queues=900 topic={TOPIC} group={GROUP} queue=100"


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "None"}, CODE.TOPIC_NOT_EXIST, "topic[None] not exist"),
        ({"queue_id": 4}, CODE.MESSAGE_ILLEGAL, "queueId[4] is illegal"),
        ({"queue_id": -1}, CODE.MESSAGE_ILLEGAL, "queueId[-1] is illegal"),
        ({"offset": 9}, CODE.NO_MESSAGE, "offset is illegal, key:Orders@0, commit:9, store:0~1"),
        ({"extra_info": "1 2 3"}, CODE.SYSTEM_ERROR, "has 3 parts"),
        ({"extra_info": "0 1 60000 8 0 broker-a 0 0"}, CODE.MESSAGE_ILLEGAL, "revive queue 8 of a handle is none of 8"),
        (
            {"extra_info": "0 1 60000 3 0 b\x02REAL_TOPIC\x01Orders\x02 0 0"},
            CODE.MESSAGE_ILLEGAL,
            "name of a popped message is invalid",
        ),
        ({"consumer_group": "g\x02REAL_TOPIC\x01Orders"}, CODE.MESSAGE_ILLEGAL, "name of a popped message is invalid"),
        ({"extra_info": "0 1 60000 -1 0 broker-a 0 0"}, CODE.MESSAGE_ILLEGAL, "revive queue -1"),
    ],
)
async def test_a_bad_acknowledgement_or_change_is_refused(
    tmp_path: Path, changes: dict[str, object], code: int, remark: str
) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        (message,) = await popped(client)
        for response in (await ack(client, message, **changes), await change(client, message, 1000, **changes)):
            assert response.code == code
            assert remark in (response.remark or "")
        assert len(written(broker)) == 1


async def test_a_bad_acknowledgement_does_not_hurt_the_others_of_its_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        first, second, third = await popped(client)
        responses = await asyncio.gather(ack(client, first), ack(client, second, queue_id=9), ack(client, third))
        assert [response.code for response in responses] == [CODE.SUCCESS, CODE.MESSAGE_ILLEGAL, CODE.SUCCESS]
        assert len(written(broker)) == 3


@pytest.mark.code(RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
async def test_an_invisible_time_is_changed_by_a_new_checkpoint_and_an_acknowledgement_of_the_old(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(2):
            await client.send(b"%d" % number)
        _, message = await popped(client)
        response = await change(client, message, 90_000)
        assert response.code == CODE.SUCCESS
        header = response.header(ChangeInvisibleTimeResponseHeader)
        assert (header.invisible_time, header.revive_qid) == (90_000, message.handle.revive_queue_id)
        _, new, old = written(broker)
        checkpoint, acknowledged = loads(bytes(new.body), PopCheckPoint), loads(bytes(old.body), AckMsg)
        assert (checkpoint.so, checkpoint.n, checkpoint.d) == (1, 1, [0])
        assert (checkpoint.pt, checkpoint.it) == (header.pop_time, 90_000)
        assert (acknowledged.ao, acknowledged.so, acknowledged.pt) == (1, 0, message.handle.pop_time_ms)
        assert (await ack(client, message, extra_info=changed(message, response).encode())).code == CODE.SUCCESS
        last = loads(bytes(written(broker)[-1].body), AckMsg)
        assert (last.ao, last.so, last.pt) == (1, 1, header.pop_time)


async def test_a_change_of_what_was_not_sent_yet_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send()
        (message,) = await popped(client)
        assert (await change(client, message, 1000, offset=1)).code == CODE.NO_MESSAGE


# In order


async def test_a_queue_that_is_popped_in_order_waits_for_its_acknowledgements(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(4):
            await client.send(b"%d" % number)
        first, second = await popped(client, order=True, max_msg_nums=2)
        assert first.handle.is_ordered
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 0
        assert (await pop(client, order=True)).code == CODE.POLLING_TIMEOUT
        await ack(client, first)
        assert (await pop(client, order=True)).code == CODE.POLLING_TIMEOUT
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 1
        await ack(client, second)
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 2
        assert [one.body for one in await popped(client, order=True)] == [b"2", b"3"]
        assert written(broker) == []


async def test_an_attempt_that_is_repeated_gets_its_messages_again(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for number in range(2):
            await client.send(b"%d" % number)
        first = await popped(client, order=True, attempt_id="a")
        assert (await pop(client, order=True, attempt_id="b")).code == CODE.POLLING_TIMEOUT
        again = await popped(client, order=True, attempt_id="a")
        assert [one.body for one in again] == [one.body for one in first]


async def test_ordered_messages_are_redelivered_with_their_count_when_their_time_is_changed_to_now(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.send(b"0")
        (message,) = await popped(client, order=True)
        response = await change(client, message, 0)
        assert response.code == CODE.SUCCESS
        header = response.header(ChangeInvisibleTimeResponseHeader)
        assert (header.pop_time, header.revive_qid) == (message.handle.pop_time_ms, 999)
        await asyncio.sleep(0.005)
        again = await pop(client, order=True)
        assert again.code == CODE.SUCCESS
        assert again.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 0 1"


async def test_an_ordered_acknowledgement_of_what_was_not_delivered_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for number in range(3):
            await client.send(b"%d" % number)
        (message,) = await popped(client, order=True, max_msg_nums=1)
        response = await ack(client, message, offset=2)
        assert response.code == CODE.MESSAGE_ILLEGAL
        assert "offset is illegal, key:Orders@CG@0, old:0, commit:2, next:-1" in (response.remark or "")


async def test_a_queue_in_order_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for number in range(2):
            await client.send(b"%d" % number)
        (message,) = await popped(client, order=True, max_msg_nums=1)
    async with running_broker(tmp_path) as (_, client):
        assert (await pop(client, order=True)).code == CODE.POLLING_TIMEOUT
        assert (await ack(client, message)).code == CODE.SUCCESS
        assert [one.body for one in await popped(client, order=True)] == [b"1"]


# Held


async def test_a_held_pop_gets_what_comes(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send(b"0")
        await popped(client)
        waiting = asyncio.ensure_future(popped(client, poll_time=10_000))
        while not len(broker.pop.held):
            await asyncio.sleep(0.002)
        await client.send(b"1")
        assert [one.body for one in await waiting] == [b"1"]


async def test_a_held_pop_in_order_gets_what_an_acknowledgement_frees(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(2):
            await client.send(b"%d" % number)
        (message,) = await popped(client, order=True, max_msg_nums=1)
        waiting = asyncio.ensure_future(popped(client, order=True, poll_time=10_000))
        while not len(broker.pop.held):
            await asyncio.sleep(0.002)
        await ack(client, message)
        assert [one.body for one in await waiting] == [b"1"]


async def test_a_pop_is_told_when_too_many_are_held(tmp_path: Path) -> None:
    async with running_broker(tmp_path, max_pop_polling_size=1) as (broker, client):
        await client.send(b"0")
        await popped(client)
        waiting = asyncio.ensure_future(pop(client, poll_time=10_000))
        while not len(broker.pop.held):
            await asyncio.sleep(0.002)
        response = await pop(client, poll_time=10_000)
        assert (response.code, response.remark) == (CODE.POLLING_FULL, "NO_MESSAGE_IN_QUEUE")
        await client.send(b"1")
        assert (await waiting).code == CODE.SUCCESS


async def test_a_filter_that_takes_several_reads_to_find_something_is_not_left_waiting(tmp_path: Path) -> None:
    store = {"max_filter_message_size": 400}  # 20 entries of a queue in one read
    async with running_broker(tmp_path, store=store) as (_, client):
        for _ in range(100):
            await client.send(b"x", TAGS="A")
        await client.send(b"wanted", TAGS="B")
        assert [one.body for one in await popped(client, exp="B", poll_time=10_000)] == [b"wanted"]


async def test_a_pop_that_a_full_disk_keeps_from_being_written_is_undone(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for number in range(3):
            await client.send(b"%d" % number)
        append = broker.store.append

        def full(batch: object) -> object:
            raise DiskFull("no space")

        broker.store.append = full  # type: ignore[method-assign, assignment]
        response = await pop(client)
        assert response.code == CODE.SERVICE_NOT_AVAILABLE
        assert broker.offsets.queues(GROUP, TOPIC)[0] == 0
        broker.store.append = append  # type: ignore[method-assign]
        assert [one.body for one in await popped(client)] == [b"0", b"1", b"2"]


async def test_a_oneway_acknowledgement_is_written(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        (message,) = await popped(client)
        header = AckMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=0, extra_info=message.handle.encode(), offset=0
        )
        await client.remoting.notify(client.address, RequestCode.ACK_MESSAGE, header)
        assert (await ack(client, message)).code == CODE.SUCCESS
        assert len(written(broker)) == 3


async def test_two_changes_in_one_millisecond_are_told_apart(tmp_path: Path) -> None:
    """Else the acknowledgement of the first handle would be one of the second, too."""
    async with running_broker(tmp_path, clock=StoppedClock()) as (broker, client):
        await client.send()
        (message,) = await popped(client)
        first = changed(message, await change(client, message, 1000))
        second = changed(message, await change(client, message, 60_000, extra_info=first.encode()))
        assert len({one.pop_time_ms for one in (message.handle, first, second)}) == 3
        keys = [parse(bytes(record.properties).decode())["UNIQ_KEY"] for record in written(broker)]
        assert len(set(keys)) == len(keys) == 5


class StoppedClock(SystemClock):
    """Wall time does not pass."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000


async def test_operators_see_how_much_is_popped_and_acknowledged(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        broker.traffic.sample()
        for number in range(4):
            await client.send(b"%d" % number)
        first, second, *_ = await popped(client)
        await ack(client, first)
        await change(client, second, 1000)
        broker.traffic.sample()
        growth = {}
        names = {"GROUP_ACK_NUMS": f"{TOPIC}@{GROUP}", "GROUP_CK_NUMS": f"{TOPIC}@{GROUP}"}
        names |= {"BROKER_ACK_NUMS": "DefaultCluster", "BROKER_CK_NUMS": "DefaultCluster"}
        for name, key in names.items():
            header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
            response = await client.ask_well(RequestCode.VIEW_BROKER_STATS_DATA, header)
            growth[name] = loads(response.body, BrokerStatsData).stats_minute.sum
        assert growth == dict.fromkeys(names, 2)
