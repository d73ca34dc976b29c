"""Topics and groups that are made by their first use: in the file before the answer, and in nobody's way."""

import asyncio
import json
import struct
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from broker.upkeep.table_saving import TableSaving
from sprocket.common.errors import ClientError, DiskFull
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.group import SubscriptionGroupTable
from sprocket.remoting.bodies.topic import TopicConfig, TopicConfigTable
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codec.pretty_json import pretty
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, INNER_MULTI_DISPATCH, PRIORITY, encode
from store.config.store_config import FlushDiskType
from tests.broker.insides import core_of, end_each_turn_early, work_now
from tests.broker.rig import TOPIC, create, running_broker
from tests.send_headers import client_batch, send_frame, send_header
from tests.waiting import until


class HeldFile:
    """Writes of one file, which wait while `may_write` is not set."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = name
        self.contents: list[bytes] = []
        self.error: DiskFull | None = None
        self.may_write = threading.Event()
        self.may_write.set()
        self.waiting = threading.Event()
        real = ConfigFile.write

        def write(file: ConfigFile, content: bytes) -> None:
            if file.path.name == self.name:
                self.contents.append(content)
                self.waiting.set()
                assert self.may_write.wait(10)
                if self.error is not None:
                    raise self.error
            real(file, content)

        monkeypatch.setattr(ConfigFile, "write", write)

    def hold(self) -> None:
        self.contents.clear()
        self.waiting.clear()
        self.may_write.clear()


def in_file(root: Path) -> dict[str, TopicConfig]:
    content = (root / "store/config/topics.json").read_bytes()
    return loads(content, TopicConfigTable).topic_config_table


def _light(first: int) -> str:
    return encode({INNER_MULTI_DISPATCH: ",".join(f"%LMQ%{number}" for number in range(first, first + 5))})


# The sends of one read, and how many queues one of them begins.
_MANY_QUEUES = {
    "topics": ([send_header(f"New{number}") for number in range(60)], 1),
    "any queue": ([send_header("Wide", queue_id=-1)] * 120, 1),
    "priorities": ([send_header("Wide", properties=encode({PRIORITY: str(number)})) for number in range(60)], 1),
    "light queues": ([send_header("Wide", properties=_light(number * 5)) for number in range(12)], 5),
    "batches": ([send_header("Wide", queue_id=number, batch=True) for number in range(60)], 1),
    "ids": ([send_header("Wide", queue_id=at, properties=encode({IDEMPOTENCE_ID: str(at)})) for at in range(60)], 1),
}


@pytest.mark.parametrize(("headers", "most"), _MANY_QUEUES.values(), ids=_MANY_QUEUES)
async def test_sends_that_begin_many_queues_share_the_loop(
    tmp_path: Path, headers: list[SendMessageRequestHeaderV2], most: int
) -> None:
    """One turn creates the files of few queues.  One read may bring hundreds of them."""
    # With light queues the handler would serve all.
    store = {"enable_lmq": True, "enable_multi_dispatch": True} if most > 1 else {}
    async with running_broker(tmp_path, store=store) as (broker, client):
        wide = create("Wide", read_queue_nums=60, write_queue_nums=60)
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, wide)
        await client.send(b"first", "Wide", **{IDEMPOTENCE_ID: "the window is complete"})
        loop, turn, ends = asyncio.get_running_loop(), 0, dict[int, int]()
        end_each_turn_early(broker)

        def next_turn() -> None:
            nonlocal turn, ticking
            ends[turn] = len(broker.store.queues())
            turn += 1
            ticking = loop.call_soon(next_turn)

        ticking = loop.call_soon(next_turn)
        body = client_batch((0, b"x", b""))
        frames = [send_frame(at, header, body if header.batch else b"x") for at, header in enumerate(headers, 1)]
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        before = len(broker.store.queues())
        writer.write(b"".join(frames))
        answers = [await asyncio.wait_for(_answer(reader), 60) for _ in headers]
        writer.close()
        ticking.cancel()
        assert sorted(one["opaque"] for one in answers) == list(range(1, len(headers) + 1))
        assert {one["code"] for one in answers} == {ResponseCode.SUCCESS}
        grown = [after - before for before, after in pairwise([*ends.values(), len(broker.store.queues())])]
        assert max(grown) <= 8 + most - 1
        assert len(broker.store.queues()) - before >= 40


async def _answer(reader: asyncio.StreamReader) -> dict[str, int]:
    head_bytes = struct.unpack(">iI", await reader.readexactly(8))
    content = await reader.readexactly(head_bytes[0] - 4)
    answer: dict[str, int] = json.loads(content[: head_bytes[1] & 0xFFFFFF])
    return answer


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
@pytest.mark.parametrize("properties", [{}, {"DELAY": "3"}], ids=["at once", "delayed"])
async def test_a_first_send_is_answered_once_its_topic_is_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType, properties: dict[str, str]
) -> None:
    file = HeldFile("topics.json", monkeypatch)
    async with running_broker(tmp_path, store={"flush_disk_type": flush}) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        file.hold()
        first = asyncio.ensure_future(client.send(b"first", "New", **properties))
        await until(file.waiting.is_set)
        await client.send(b"others are served")
        assert not first.done(), "a crash now would lose the topic of an acknowledged message"
        assert "New" not in in_file(tmp_path)
        second = asyncio.ensure_future(client.send(b"second", "New"))
        await asyncio.sleep(0.1)  # in a read of its own: what one read brings is answered together
        await client.send(b"and others again")
        assert not second.done(), "nor is the second one answered before"
        file.may_write.set()
        await first
        await second
        assert in_file(tmp_path)["New"].write_queue_nums == 4
        assert pretty(broker.topics.snapshot()) == (tmp_path / "store/config/topics.json").read_bytes()


async def test_topics_of_many_first_sends_share_a_few_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = HeldFile("topics.json", monkeypatch)
    async with running_broker(tmp_path) as (broker, client):
        told: list[list[TopicConfig]] = []
        broker.topics.on_change.append(told.append)
        file.hold()
        sends = [asyncio.ensure_future(client.send(b"x", f"T{number}")) for number in range(200)]
        await until(lambda: "T199" in broker.topics)
        file.may_write.set()
        await asyncio.gather(*sends)
        assert len(file.contents) <= 3
        assert len(told) <= 3, "name servers are told once for each write"
        assert {topic.topic_name for topics in told for topic in topics} == {f"T{number}" for number in range(200)}
        assert {f"T{number}" for number in range(200)} <= in_file(tmp_path).keys()


async def test_a_topic_that_cannot_be_written_is_not_there_and_its_send_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeldFile("topics.json", monkeypatch)
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        file.error = DiskFull("no space")
        with pytest.raises(AssertionError, match="no space"):
            await client.send(b"x", "New")
        assert "New" not in broker.topics
        response = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Asked"))
        assert (response.code, "no space" in response.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        assert "Asked" not in broker.topics
        response = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert TOPIC in broker.topics
        file.error = None
        await client.send(b"x", "New")
        assert {"New", TOPIC} <= in_file(tmp_path).keys()


async def test_what_an_operator_asks_for_is_in_the_file_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeldFile("topics.json", monkeypatch)
    async with running_broker(tmp_path) as (_, client):
        file.hold()
        asked = asyncio.ensure_future(client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create()))
        await until(file.waiting.is_set)
        await asyncio.sleep(0.05)
        assert not asked.done()
        file.may_write.set()
        await asked
        assert TOPIC in in_file(tmp_path)


async def test_a_topic_is_not_made_again_while_it_is_deleted_also_if_the_operator_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeldFile("topics.json", monkeypatch)
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"to be deleted")
        file.hold()
        operator = type(client)(client.address)
        asked = asyncio.ensure_future(
            operator.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=TOPIC))
        )
        await until(file.waiting.is_set)
        with pytest.raises(AssertionError, match="is being deleted"):
            await client.send(b"too early")
        await operator.close()
        with pytest.raises(ClientError):
            await asked
        file.may_write.set()
        await until(lambda: (TOPIC, 0) not in broker.store.queues())
        sent = await client.send(b"new topic")
        assert sent.queue_offset == 0


async def test_a_group_is_made_without_waiting_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = HeldFile("subscriptionGroup.json", monkeypatch)
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await client.send(b"x")
        file.hold()
        assert (await client.pull(group="NewGroup")).code == ResponseCode.SUCCESS
        await until(file.waiting.is_set)
        for number in range(20):
            assert (await client.pull(group=f"More{number}")).code == ResponseCode.SUCCESS
        assert "NewGroup" in broker.groups
        file.may_write.set()
        await broker.groups.save()
        assert len(file.contents) == 2
        path = tmp_path / "store/config/subscriptionGroup.json"
        assert {"NewGroup", "More19"} <= loads(
            path.read_bytes(), SubscriptionGroupTable
        ).subscription_group_table.keys()
        assert pretty(broker.groups.snapshot()) == path.read_bytes()


async def test_offsets_are_not_in_their_file_before_the_topic_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HeldFile("topics.json", monkeypatch)
    async with running_broker(tmp_path) as (broker, client):
        file.hold()
        first = asyncio.ensure_future(client.send(b"x", "New"))
        await until(file.waiting.is_set)
        broker.offsets.commit("G", "New", 0, 1)
        table_saving = TableSaving(core_of(broker), broker.schedule.offsets)
        saving = asyncio.ensure_future(work_now("consumer_offsets", table_saving.periodic()))
        await asyncio.sleep(0.05)
        path = tmp_path / "store/config/consumerOffset.json"
        assert not path.exists() or b"New@G" not in path.read_bytes()
        file.may_write.set()
        await first
        broker.store.flush()
        await saving
        assert b"New@G" in path.read_bytes()
