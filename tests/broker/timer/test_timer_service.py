"""Messages for a time of their own through a whole broker."""

import asyncio
from pathlib import Path

import pytest

from broker.server import Broker
from broker.timer import timer_service
from broker.timer.recall_handle import RecallHandle
from sprocket.remoting.bodies.stats import KVTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from sprocket.remoting.message.properties import parse
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.timer.timer_enqueue import ENTRY_MESSAGES
from store.timer.timer_message_store import TimerMessageStore
from store.timer.timer_progress import TimerCheckpoint
from tests.broker.rig import TOPIC, TestClient, create, running_broker, stored
from tests.store.timer.wheel_run import timed
from tests.waiting import until

FAST = {"timer_precision_ms": 100, "timer_flush_interval_ms": 20, "flush_commit_log_least_pages": 0}


def came(broker: Broker, queue_id: int = 0) -> list[bytes]:
    return [
        bytes(stored(broker, TOPIC, queue_id, offset).body)
        for offset in range(broker.store.max_offset(TOPIC, queue_id))
    ]


def key(number: int) -> str:
    return f"0A0000010000000000000000{number:08d}"


async def recall(client: TestClient, handle: str, topic: str = TOPIC) -> ReceivedResponse:
    header = RecallMessageRequestHeader(producer_group="PG", topic=topic, recall_handle=handle)
    return await client.ask(RequestCode.RECALL_MESSAGE, header)


async def test_message_comes_when_it_is_due_and_as_it_was_sent(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        sent_ms = broker.clock.wall_ms()
        await client.send(b"late", queue_id=1, TAGS="A", colour="red", TIMER_DELAY_MS="300")
        assert broker.store.max_offset(TIMER_TOPIC, 0) == 1
        await until(lambda: came(broker, 1))
        record = stored(broker, TOPIC, 1, 0)
        assert record.store_timestamp >= sent_ms + 300
        assert (record.flag, record.born_timestamp) == (7, 1_700_000_000_000)
        properties = parse(str(record.properties, "utf-8"))
        assert (properties["TAGS"], properties["colour"], properties["TIMER_DELAY_MS"]) == ("A", "red", "300")
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (TOPIC, "1")
        assert int(properties["TIMER_OUT_MS"]) % 100 == 0
        assert int(properties["TIMER_ENQUEUE_MS"]) <= int(properties["TIMER_DEQUEUE_MS"]) <= record.store_timestamp
        assert (await client.pull(queue_id=1)).code == ResponseCode.SUCCESS


async def test_what_waits_outlives_a_restart_and_comes_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        await client.send(b"first", TIMER_DELAY_MS="150")
        await client.send(b"second", TIMER_DELAY_MS="1500")
        await until(lambda: came(broker) == [b"first"])
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        await until(lambda: len(came(broker)) > 1)
        assert came(broker) == [b"first", b"second"]
        assert broker.timer.timer.waiting == 0


@pytest.mark.code(RequestCode.RECALL_MESSAGE)
async def test_recalled_message_does_not_come(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST, recall_message_enable=True) as (broker, client):
        handles = []
        for number in range(3):
            header = await client.send(b"%d" % number, UNIQ_KEY=key(number), TIMER_DELAY_MS="600")
            assert header.recall_handle is not None
            assert header.transaction_id == key(number)
            handles.append(header.recall_handle)
        response = await recall(client, handles[1])
        assert response.code == ResponseCode.SUCCESS, response.remark
        assert response.header(RecallMessageResponseHeader).msg_id == key(1)
        assert response.ext_fields["MSG_REGION"] == "DefaultRegion"
        await until(lambda: len(came(broker)) == 2)
        assert came(broker) == [b"0", b"2"]
        await until(lambda: broker.timer.metrics.by_topic[TOPIC].count == 0)


async def test_a_second_recall_succeeds_as_the_first_does(tmp_path: Path) -> None:
    """RocketMQ stores each recall until the message is due, without looking whether the message still waits."""
    async with running_broker(tmp_path, store=FAST, recall_message_enable=True) as (broker, client):
        sent = [await client.send(b"%d" % n, UNIQ_KEY=key(n), TIMER_DELAY_MS="600") for n in range(3)]
        unknown = RecallHandle.decode(sent[1].recall_handle or "")._replace(unique_key=key(9)).encode()
        for handle, unique_key in ((sent[1].recall_handle, key(1)), (sent[1].recall_handle, key(1)), (unknown, key(9))):
            response = await recall(client, handle or "")
            assert response.code == ResponseCode.SUCCESS, response.remark
            assert response.header(RecallMessageResponseHeader).msg_id == unique_key
        assert broker.store.max_offset(TIMER_TOPIC, 0) == 6
        await until(lambda: len(came(broker)) == 2)
        await until(lambda: broker.timer.timer.waiting == 0)
        assert came(broker) == [b"0", b"2"]


async def test_recall_is_refused_as_the_reference_refuses_it(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST, recall_message_enable=True) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        now_ms = broker.clock.wall_ms()
        good = RecallHandle(TOPIC, "broker-a", now_ms + 60_000, key(1))
        past = good._replace(deliver_ms=now_ms - 1)
        far = good._replace(deliver_ms=now_ms + 3 * 86_400_000 + 60_000)
        no_number = good._replace(deliver_ms=-1)
        code = ResponseCode
        for handle, topic, expected, remark in (
            (good.encode(), "Unknown", code.TOPIC_NOT_EXIST, "recall failed, the topic[Unknown] not exist"),
            ("", TOPIC, code.ILLEGAL_OPERATION, "recall handle is invalid"),
            ("not base64!", TOPIC, code.ILLEGAL_OPERATION, "recall handle is invalid"),
            ("djIgYSBi", TOPIC, code.ILLEGAL_OPERATION, "recall handle is invalid"),
            (good._replace(topic="Pays").encode(), TOPIC, code.ILLEGAL_OPERATION, "recall failed, topic not match"),
            (
                good._replace(broker_name="broker-b").encode(), TOPIC, code.ILLEGAL_OPERATION,
                "recall failed, broker service not available",
            ),
            (past.encode(), TOPIC, code.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
            (far.encode(), TOPIC, code.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
            (no_number.encode(), TOPIC, code.ILLEGAL_OPERATION, "recall failed, timestamp invalid"),
        ):  # fmt: skip
            response = await recall(client, handle, topic)
            assert (response.code, response.remark) == (expected, remark), handle
        assert broker.store.max_offset(TIMER_TOPIC, 0) == 0
        broker.config.update(b"recallMessageEnable=false")
        response = await recall(client, good.encode())
        assert (response.code, response.remark) == (code.NO_PERMISSION, "recall failed, operation is forbidden")


async def test_too_long_a_delay_and_no_number_are_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        for value in (str(3 * 86_400 + 1), "soon"):
            with pytest.raises(AssertionError, match="timer message illegal, the delay time should not be bigger"):
                await client.send(TIMER_DELAY_SEC=value)
        assert broker.store.max_offset(TIMER_TOPIC, 0) == 0


async def test_full_slot_refuses(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={**FAST, "timer_congest_num_each_slot": 3}) as (broker, client):
        at = str(broker.clock.wall_ms() + 60_000)
        for number in range(4):
            await client.send(UNIQ_KEY=key(number), TIMER_DELIVER_MS=at)
        await until(lambda: broker.timer.timer.waiting == 4)
        broker.config.update(b"timerCongestNumEachSlot=2")
        with pytest.raises(AssertionError, match="timer message is under flow control, max num limit is 4 or"):
            await client.send(TIMER_DELIVER_MS=at)
        await client.send(TIMER_DELIVER_MS=str(int(at) + 1000))


@pytest.mark.code(RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS)
async def test_operators_see_what_waits(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        for number in range(3):
            await client.send(UNIQ_KEY=key(number), TIMER_DELAY_SEC="60")
        await until(lambda: broker.timer.timer.waiting == 3)
        response = await client.ask_well(RequestCode.GET_TIMER_METRICS)
        assert b'"timingCount":{"Orders":{"count":3,"timeStamp":' in response.body
        info = loads((await client.ask_well(RequestCode.GET_BROKER_RUNTIME_INFO)).body, KVTable).table
        assert (info["timerCongestNum"], info["timerOffsetBehind"], info["timerReadBehind"]) == ("3", "0", "0")
        assert float(info["timerEnqueueTps"]) >= 0
        await until(lambda: broker.timer.timer.checkpoint.progress.queue_offset == 3)
        response = await client.ask_well(RequestCode.GET_TIMER_CHECK_POINT)
        assert len(response.body) == 56
        progress = TimerCheckpoint.decode(response.body).progress
        assert (progress.queue_offset, progress.log_position) == (3, 3 * 52)
        assert abs(progress.read_ms - broker.clock.wall_ms()) < 10_000


async def test_without_wheel_there_is_nothing_to_see(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"timer_wheel_enable": False}) as (broker, client):
        assert (await client.ask(RequestCode.GET_TIMER_CHECK_POINT)).remark == "The checkpoint is null"
        assert (await client.ask(RequestCode.GET_TIMER_METRICS)).remark == "The timer message store is null"
        assert TIMER_TOPIC not in broker.topics


async def test_stopped_wheel_goes_on_when_it_is_told(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={**FAST, "timer_stop_enqueue": True}) as (broker, client):
        await client.send(b"held", TIMER_DELAY_MS="100")
        await asyncio.sleep(0.3)
        assert broker.timer.timer.enqueue_behind == 1
        broker.config.update(b"timerStopEnqueue=false")
        await until(lambda: came(broker) == [b"held"])


async def test_messages_enter_together_when_they_are_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # No pause ends, so only a batch lets messages enter.
    monkeypatch.setattr(timer_service, "_ENTRY_SHARE", 1e9)
    monkeypatch.setattr(timer_service, "_MAX_SLEEP_S", 1e9)
    turns: list[int] = []
    turn = TimerMessageStore.turn

    def noted(timer: TimerMessageStore) -> float | None:
        turns.append(timer.enqueue_behind)
        return turn(timer)

    monkeypatch.setattr(TimerMessageStore, "turn", noted)
    async with running_broker(tmp_path) as (broker, _):
        await until(lambda: turns == [0])
        due_ms = (broker.clock.wall_ms() // 1000 + 3600) * 1000
        for number in range(ENTRY_MESSAGES):
            broker.store.append([timed(number, due_ms)])
            await asyncio.sleep(0)
        await until(lambda: broker.timer.timer.enqueue_behind == 0)
        assert turns[:2] == [0, ENTRY_MESSAGES]


async def test_metrics_are_counted_again_from_the_log(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        for number in range(3):
            await client.send(UNIQ_KEY=key(number), TIMER_DELAY_SEC="60")
        await until(lambda: broker.timer.timer.waiting == 3)
        broker.timer.metrics.by_topic[TOPIC].count = 77
    async with running_broker(tmp_path, store=FAST) as (broker, client):
        assert broker.timer.metrics.by_topic[TOPIC].count == 3
        assert broker.timer.timer.waiting == 3


async def test_progress_is_logged_when_there_is_any(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def lines() -> list[str]:
        return [text for text in caplog.messages if text.startswith("event=timer_progress ")]

    async with running_broker(tmp_path, store=FAST | {"timer_progress_log_interval_ms": 3_600_000}) as (broker, client):
        now_s = broker.clock.monotonic() + 10_000
        for hours in range(5):
            broker.timer._log_progress(now_s + 3600 * hours)
        assert lines() == []
        await client.send(b"later", TIMER_DELAY_MS="600000")
        await until(lambda: broker.timer.timer.waiting == 1)
        for hours in range(5, 10):
            broker.timer._log_progress(now_s + 3600 * hours)
        # The service may have logged the message before it entered the wheel.
        [line] = [text for text in lines() if "waiting=0 enqueue_behind=1" not in text]
        assert line.startswith("event=timer_progress waiting=1 enqueue_behind=0 ")
