"""Idempotent messages at a broker's port: each id is stored once within the window."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from broker.idempotence import known_ids
from broker.server import Broker
from sprocket.client.send.send_request import batched
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageResponseHeader
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, encode
from store.config.store_config import FlushDiskType
from tests.broker.fake_slave import fake_slave
from tests.broker.group_rig import cluster as group_cluster
from tests.broker.rig import TOPIC, TestClient, create, running_broker, stored
from tests.clock import ManualClock
from tests.running_copy import copy_of_running
from tests.send_headers import send_header
from tests.waiting import until

# Physical offset, queue, queue offset, unique key: what a producer learns of a message's place.
Place = tuple[int, int, int, str | None]


async def ask(
    client: TestClient, id_: str, queue_id: int = 0, *, key: str = "K1", topic: str = TOPIC, **more: str
) -> ReceivedResponse:
    """Send a message with an id; return whatever is answered."""
    text = encode({"UNIQ_KEY": key, IDEMPOTENCE_ID: id_} | more)
    return await client.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id=queue_id, properties=text), b"x")


def place_of(response: ReceivedResponse) -> Place:
    header = response.header(SendMessageResponseHeader)
    # The rest of the id is the broker's address, which changes with a test's restart.
    return int(header.msg_id[-16:], 16), header.queue_id, header.queue_offset, header.transaction_id


async def send(client: TestClient, id_: str, queue_id: int = 0, **more: Any) -> tuple[Place, int]:
    """Send a message with an id; return its place, and how many duplicates the broker counted."""
    response = await ask(client, id_, queue_id, **more)
    assert response.code == ResponseCode.SUCCESS, response.remark
    return place_of(response), int(response.ext_fields["duplicates"])


def lengths(broker: Broker, topic: str = TOPIC) -> list[int]:
    """Messages in the first two queues."""
    return [broker.store.max_offset(topic, queue_id) for queue_id in (0, 1)]


async def test_a_duplicate_is_answered_with_the_first_message_and_not_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        first, duplicates = await send(client, "order-17", key="K1")
        assert (first[1:], duplicates) == ((0, 1, "K1"), 0)
        # From another connection, with another key and to another queue: the first message counts.
        other = TestClient(client.address)
        assert await send(other, "order-17", 1, key="K2") == (first, 1)
        await other.close()
        other_place, duplicates = await send(client, "order-18", key="K3")
        assert (other_place[1:], duplicates) == ((0, 2, "K3"), 0)
        assert lengths(broker) == [3, 0]
        assert f"{IDEMPOTENCE_ID}\x01order-17\x02".encode() in bytes(stored(broker, TOPIC, 0, 1).properties)


async def test_ordinary_messages_with_one_unique_key_are_all_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for _ in range(3):
            answer = await client.send(note=IDEMPOTENCE_ID)
        assert answer.queue_offset == 2
        assert lengths(broker) == [3, 0]


async def test_an_id_counts_in_one_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await send(client, "a")
        await send(client, "a", topic="Trades")
        assert (lengths(broker), lengths(broker, "Trades")) == ([1, 0], [1, 0])


async def test_sends_of_one_read_are_compared_with_each_other(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        results = await asyncio.gather(*(send(client, f"id-{number % 3}", number % 2) for number in range(30)))
        assert len({place for place, _ in results}) == 3
        assert sum(duplicates for _, duplicates in results) == 27
        assert sum(lengths(broker)) == 4


async def test_the_window_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock, idempotence_window_ms=60_000) as (broker, client):
        first, _ = await send(client, "a")
        clock.advance(59.999)
        assert await send(client, "a") == (first, 1)
        clock.advance(0.001)
        again, duplicates = await send(client, "a")
        assert (again[2], duplicates) == (1, 0)
        assert await send(client, "a") == (again, 1)
        assert lengths(broker) == [2, 0]


async def test_too_many_ids_push_out_the_oldest(tmp_path: Path) -> None:
    async with running_broker(tmp_path, idempotence_max_ids=3) as (broker, client):
        for number in range(5):
            await send(client, str(number))
        assert [(await send(client, str(number)))[1] for number in (2, 3, 4)] == [1, 1, 1]
        assert (await send(client, "1"))[1] == 0
        assert lengths(broker) == [6, 0]


async def restarted(tmp_path: Path, between: Callable[[Path], Path], **changes: Any) -> None:
    """Send, end the broker as `between` says, and send the same again to the broker of the folder it returns."""
    clock = ManualClock()
    changes = {"clock": clock, "idempotence_window_ms": 60_000, **changes}
    places = {}
    async with running_broker(tmp_path / "one", **changes) as (_, client):
        await send(client, "expired")
        clock.advance(30)
        for number in range(300):
            id_ = f"id-{number}"
            places[id_], _ = await send(client, id_, number % 2, key=f"K{number}")
            await client.send(b"y" * 5000)
        folder = between(tmp_path / "one")
    clock.advance(30)
    async with running_broker(folder, **changes) as (broker, client):
        before = lengths(broker)
        assert before[0] > 0
        # The first ones wait for the log to be read.
        answers = await asyncio.gather(*(send(client, id_) for id_ in places))
        assert answers == [(place, 1) for place in places.values()]
        assert lengths(broker) == before
        assert (await send(client, "expired"))[1] == 0
        assert (await send(client, "new"))[1] == 0
        assert await send(client, "id-299") == (places["id-299"], 1)
        clock.advance(30)
        assert (await send(client, "id-0"))[1] == 0


async def test_the_window_is_read_from_the_log_after_a_restart(tmp_path: Path) -> None:
    await restarted(tmp_path, lambda folder: folder)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_the_window_is_read_from_the_log_after_a_crash(tmp_path: Path, flush: FlushDiskType) -> None:
    def crash(folder: Path) -> Path:
        copy_of_running(folder, tmp_path / "copy")
        return tmp_path / "copy"

    await restarted(tmp_path, crash, store={"flush_disk_type": flush})


async def test_the_newest_ids_are_kept_after_a_restart_too(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        places = [(await send(client, str(number)))[0] for number in range(5)]
    async with running_broker(tmp_path, idempotence_max_ids=3) as (_, client):
        assert await send(client, "2") == (places[2], 1)
        assert (await send(client, "1"))[1] == 0


async def test_a_slave_that_becomes_the_master_has_the_window(tmp_path: Path) -> None:
    async with group_cluster(tmp_path) as cluster:
        master = await cluster.start("broker-a")
        client = cluster.client(master)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        slave = await cluster.start("broker-a", 1)
        places = {id_: (await send(client, id_, key=f"K{id_}"))[0] for id_ in ("a", "b")}
        await until(lambda: slave.store.max_offset(TOPIC, 0) == 2)
        await until(lambda: slave.topics.get(TOPIC) is not None)
        await cluster.stop("broker-a", 1)
        await cluster.stop("broker-a")
    changes = {"broker_name": "broker-a", "broker_role": BrokerRole.ASYNC_MASTER}
    async with running_broker(tmp_path / "broker-a-1", **changes) as (broker, client):
        for id_, place in places.items():
            assert await send(client, id_, key="another") == (place, 1)
        assert lengths(broker) == [2, 0]


# While the first message is not safe yet


async def waiting(*sends: "asyncio.Task[ReceivedResponse]") -> None:
    """Let the loop run; none of `sends` may end."""
    for _ in range(20):
        await asyncio.sleep(0.005)
    assert not any(send.done() for send in sends)


async def test_a_duplicate_waits_for_the_flush_of_the_first(tmp_path: Path) -> None:
    sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout": 3_600_000}
    async with running_broker(tmp_path, store=sync) as (broker, client):
        await send(client, "before")
        confirmation, held = broker.store.confirmation, []
        real = confirmation.when_stored
        confirmation.when_stored = lambda *wait: held.append(wait)  # type: ignore[method-assign]
        first = asyncio.create_task(ask(client, "a"))
        await until(lambda: len(held) == 1)
        second = asyncio.create_task(ask(client, "a"))
        await until(lambda: len(held) == 2)
        await waiting(first, second)
        assert held[0][0] == held[1][0] == broker.store.wrote_offset
        for wait in held:
            real(*wait)
        one, two = await asyncio.gather(first, second)
        assert (one.code, two.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
        assert place_of(one) == place_of(two)
        assert (one.ext_fields["duplicates"], two.ext_fields["duplicates"]) == ("0", "1")
        assert lengths(broker) == [2, 0]


async def test_a_duplicate_waits_for_the_slave_of_the_first(tmp_path: Path) -> None:
    sync = {"slave_timeout": 3_600_000, "in_sync_replicas": 2}
    async with running_broker(tmp_path, store=sync, broker_role=BrokerRole.SYNC_MASTER) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        async with fake_slave(broker.config.broker.ha_listen_port) as slave:
            slave.is_eager = True
            await until(lambda: slave.received_offset == broker.store.wrote_offset)
            slave.is_eager = False
            first = asyncio.create_task(ask(client, "a"))
            second = asyncio.create_task(ask(client, "a"))
            await until(lambda: broker.store.wrote_offset == slave.received_offset > 0)
            await waiting(first, second)
            slave.report()
            one, two = await asyncio.gather(first, second)
            assert (one.code, two.code) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
            assert place_of(one) == place_of(two)
            assert lengths(broker) == [1, 0]


async def test_a_duplicate_of_what_is_not_safe_says_so_too(tmp_path: Path) -> None:
    sync = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout": 50}
    async with running_broker(tmp_path, store=sync) as (broker, client):
        broker.store.confirmation.when_stored = lambda *wait: None  # type: ignore[method-assign]
        first, second = await ask(client, "a"), await ask(client, "a")
        assert first.code == second.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert place_of(first) == place_of(second)


async def test_a_refused_message_is_not_remembered(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        broker.store.refuse("a test")
        assert (await ask(client, "a")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.store.refuse("")
        assert (await send(client, "a"))[1] == 0


# Batches


async def batch(client: TestClient, *ids: str) -> ReceivedResponse:
    """Send one batch; an empty id stands for an ordinary message."""
    members = [
        batched(b"body", encode({"UNIQ_KEY": f"K{id_}"} | ({IDEMPOTENCE_ID: id_} if id_ else {})), 0) for id_ in ids
    ]
    header = send_header(TOPIC, batch=True, properties=encode({"UNIQ_KEY": "BATCH"}))
    return await client.ask_well(RequestCode.SEND_BATCH_MESSAGE, header, b"".join(members))


async def test_a_batch_stores_its_new_messages_only(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        alone, _ = await send(client, "b", 1)
        first = await batch(client, "a", "b", "", "c", "a")
        ids = first.header(SendMessageResponseHeader).msg_id.split(",")
        assert (len(ids), int(ids[1][-16:], 16), ids[4]) == (5, alone[0], ids[0])
        assert first.ext_fields["duplicates"] == "2"
        assert lengths(broker) == [3, 1]
        again = await batch(client, "a", "b", "c")
        assert again.header(SendMessageResponseHeader).msg_id.split(",") == [ids[0], ids[1], ids[3]]
        assert again.header(SendMessageResponseHeader).queue_offset == 0
        assert again.ext_fields["duplicates"] == "3"
        assert lengths(broker) == [3, 1]
        ordinary = await batch(client, "", "")
        assert "duplicates" not in ordinary.ext_fields
        assert lengths(broker) == [5, 1]


async def test_an_id_of_a_whole_batch_is_refused(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        header = send_header(TOPIC, batch=True, properties=encode({"UNIQ_KEY": "B", IDEMPOTENCE_ID: "a"}))
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, batched(b"x", "", 0))
        assert (answer.code, IDEMPOTENCE_ID in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)


# What has no window


@pytest.mark.parametrize(
    "more",
    [
        {"TRAN_MSG": "true", "PGROUP": "PG"},
        {"key": "K" * 129},
        {"id_": "i" * 129},
    ],
)
async def test_what_cannot_be_idempotent_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    async with running_broker(tmp_path) as (broker, client):
        answer = await ask(client, **({"id_": "a"} | more))
        assert (answer.code, IDEMPOTENCE_ID in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
        assert broker.store.wrote_offset == 0


async def test_a_retry_is_no_duplicate_of_its_original(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        await client.heartbeat("c1", TOPIC)
        for number in range(2):
            answer = await ask(client, "a", topic="%RETRY%CG")
            assert answer.code == ResponseCode.SUCCESS
            assert answer.header(SendMessageResponseHeader).queue_offset == number
        assert (await send(client, "a"))[1] == 0


async def test_a_dead_letter_counts_if_it_was_sent_with_an_id_and_not_as_a_copy(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await client.heartbeat("c1", TOPIC)
        (physical_offset, *_), _ = await send(client, "a")
        header = ConsumerSendMsgBackRequestHeader(offset=physical_offset, group="CG", delay_level=-1)
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == ResponseCode.SUCCESS
        answer = await ask(client, "a", topic="%RETRY%CG")
        assert answer.code == ResponseCode.SUCCESS
        assert lengths(broker, "%DLQ%CG") == [1, 0]
        place, duplicates = await send(client, "a", topic="%DLQ%CG")
        assert (place[2], duplicates) == (1, 0)
        assert await send(client, "a", topic="%DLQ%CG") == (place, 1)
    async with running_broker(tmp_path) as (broker, client):
        assert await send(client, "a", topic="%DLQ%CG") == (place, 1)
        assert lengths(broker, "%DLQ%CG") == [2, 0]


async def test_a_broker_without_a_window_stores_every_message(tmp_path: Path) -> None:
    async with running_broker(tmp_path, idempotence_window_ms=0) as (broker, client):
        for _ in range(2):
            answer = await ask(client, "a")
            assert (answer.code, "duplicates" in answer.ext_fields) == (ResponseCode.SUCCESS, False)
        assert lengths(broker) == [2, 0]
        # Turned on: of two in the log, the first one counts.
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"idempotenceWindowMs=60000")
        place, duplicates = await send(client, "a")
        assert (place[2], duplicates) == (0, 1)


async def test_an_id_goes_with_its_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        await send(client, "a")
        await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send()
        assert (await send(client, "a"))[1] == 0
        assert lengths(broker) == [2, 0]


async def test_sends_wait_for_the_log_up_to_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_ids, "MAX_HELD", 3)
    async with running_broker(tmp_path) as (broker, client):
        await client.send()
        answers = await asyncio.gather(*(ask(client, str(number)) for number in range(10)))
        codes = [answer.code for answer in answers]
        assert codes.count(ResponseCode.SUCCESS) == lengths(broker)[0] - 1 >= 3
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
