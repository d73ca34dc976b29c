"""Messages that arrive in queues that their topic no longer has, or never had: consumers can read them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.server import Broker
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
)
from sprocket.remoting.message.topic_names import retry_topic
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker, stored
from tests.broker.topic.test_topics import table
from tests.waiting import until

LAST = 3
Pair = tuple[Broker, TestClient]


async def delayed(pair: Pair) -> None:
    await pair[1].send(queue_id=LAST, DELAY="1")


async def timed(pair: Pair) -> None:
    broker, client = pair
    await client.send(queue_id=LAST, TIMER_DELIVER_MS=str(broker.clock.wall_ms() + 1_500))


async def half(pair: Pair) -> Callable[[], Awaitable[object]]:
    broker, client = pair
    sent = await client.send(queue_id=LAST, TRAN_MSG="true", PGROUP="PG")
    header = EndTransactionRequestHeader(
        topic=TOPIC, producer_group="PG", tran_state_table_offset=sent.queue_offset,
        commit_log_offset=stored(broker, "RMQ_SYS_TRANS_HALF_TOPIC", 0, sent.queue_offset).physical_offset,
        commit_or_rollback=8, from_transaction_check=False, msg_id=sent.msg_id,
    )  # fmt: skip
    return lambda: client.ask_well(RequestCode.END_TRANSACTION, header)


@pytest.mark.parametrize("send", [delayed, timed, half])
async def test_what_waits_for_a_queue_that_was_removed_is_read(
    tmp_path: Path, send: Callable[[Pair], Awaitable[Callable[[], Awaitable[object]] | None]]
) -> None:
    store = {"message_delay_level": "1s", "timer_precision_ms": 100}
    async with running_broker(tmp_path, store=store) as (broker, client):
        await client.ask_well(
            RequestCode.UPDATE_AND_CREATE_TOPIC, create(read_queue_nums=LAST + 1, write_queue_nums=LAST + 1)
        )
        finish = await send((broker, client))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(read_queue_nums=1, write_queue_nums=1))
        if finish is not None:
            await finish()
        await until(lambda: broker.store.max_offset(TOPIC, LAST) == 1)
        await until(lambda: not broker.topics.unsaved)
        config = broker.topics.by_name[TOPIC]
        assert (config.read_queue_nums, config.write_queue_nums) == (LAST + 1, 1)
        assert bytes((await client.pull(queue_id=LAST)).body)
    assert table(tmp_path / "store/config").by_name[TOPIC].read_queue_nums == LAST + 1


async def test_retries_of_a_group_with_more_retry_queues_than_its_topic_are_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"message_delay_level": "0s"}) as (broker, client):
        await client.send()
        physical_offset = stored(broker, TOPIC, 0, 0).physical_offset
        header = ConsumerSendMsgBackRequestHeader(offset=physical_offset, group=GROUP, delay_level=1)
        await client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        retries = retry_topic(GROUP)
        assert broker.topics.by_name[retries].read_queue_nums == 1
        group = dumps(SubscriptionGroupConfig(GROUP, retry_queue_nums=2))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
        for _ in range(40):
            await client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, header)

        def readable() -> int:
            queues = range(broker.topics.by_name[retries].read_queue_nums)
            return sum(broker.store.max_offset(retries, queue_id) for queue_id in queues)

        await until(lambda: readable() == 41)


def test_queues_are_added_for_reading_only_where_nobody_decided_otherwise(tmp_path: Path) -> None:
    topics = table(tmp_path)
    topics.update([TopicConfig("Kept", 1, 8), TopicConfig("Small", 1, 1)])
    for topic, queue_id in (("Kept", 7), ("Small", 1 << 20), ("Gone", 0), ("SCHEDULE_TOPIC_XXXX", 30)):
        topics.let_read([(SimpleNamespace(topic=topic, queue_id=queue_id), 0, 1)])
    numbers = {name: topics.by_name[name].read_queue_nums for name in ("Kept", "Small", "SCHEDULE_TOPIC_XXXX")}
    assert numbers == {"Kept": 1, "Small": 1, "SCHEDULE_TOPIC_XXXX": 18}
    assert "Gone" not in topics
