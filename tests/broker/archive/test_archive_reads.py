"""Consumers of a broker whose local log has lost its beginning read on from the object store, by the usual requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.archive.archive_reads import ArchiveReads
from broker.archive.archive_service import ArchiveService
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.admin import ViewMessageRequestHeader
from sprocket.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from store.record.record import Record
from store.tier.object_store import Unavailable
from store.tier.reads import tiered_reads
from store.tier.remote_store import RemoteStore
from tests.broker.archive.test_archive_service import manifest_of, served
from tests.broker.insides import service_of
from tests.broker.pop.rig import ack, messages_of, pop
from tests.broker.processor.test_query import bodies, query
from tests.broker.rig import GROUP, TOPIC
from tests.broker.topic.test_topic_retention import SEGMENT_BYTES, Served
from tests.store.reading import records_of
from tests.waiting import until

COUNT = 120


def body(number: int) -> bytes:
    return b"body %d " % number * 60


@asynccontextmanager
async def tiered(root: Path, **fields: Any) -> AsyncIterator[Served]:
    """A broker with `COUNT` messages in two queues; the first third is in the object store alone."""
    async with served(root, message_index_enable=True, **fields) as one:
        for number in range(COUNT):
            one.clock.advance(1.0)
            await one.client.send(body(number), queue_id=number % 2, KEYS=f"k{number}", TAGS=f"t{number % 3}")
        store = one.broker.store
        whole = store.wrote_offset - store.wrote_offset % SEGMENT_BYTES
        figures = service_of(one.broker, ArchiveService).figures_now
        await until(lambda: (figures.uploaded_end or 0) >= whole)
        one.disk.log_used = 0.86
        await one.after(1.0, lambda: store.min_offset(TOPIC, 0) >= COUNT // 6)
        one.disk.log_used = 0.5
        yield one


def records(response: ReceivedResponse) -> list[Record]:
    return records_of([memoryview(response.body)]) if response.body else []


async def pulled(one: Served, queue_id: int, **fields: Any) -> list[Record]:
    """Read a queue as a consumer does that begins at its start."""
    offset, found = 0, []
    while offset < COUNT // 2:
        response = await one.client.pull(queue_id=queue_id, offset=offset, **fields)
        assert response.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), response.remark
        header = response.header(PullMessageResponseHeader)
        assert header.next_begin_offset > offset
        assert header.min_offset in (0, one.broker.store.min_offset(TOPIC, queue_id))
        found += records(response)
        offset = header.next_begin_offset
    return found


async def test_a_group_reads_all_messages_from_the_first_on(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        for queue_id in (0, 1):
            found = await pulled(one, queue_id)
            assert [bytes(record.body) for record in found] == [body(n) for n in range(queue_id, COUNT, 2)]
        low = await one.client.ask_well(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0))
        assert low.header(GetMinOffsetResponseHeader).offset == 0


@pytest.mark.parametrize("level", ["NOT_IN_MEM", "FORCE"])
async def test_every_level_gives_the_same_messages(tmp_path: Path, level: str) -> None:
    async with tiered(tmp_path) as one:
        await one.update(f"tieredStorageLevel={level}")
        assert [bytes(record.body) for record in await pulled(one, 1)] == [body(n) for n in range(1, COUNT, 2)]


async def test_without_the_level_only_the_disk_is_read(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        await one.update("tieredStorageLevel=DISABLE")
        response = await one.client.pull(offset=0)
        assert response.code == ResponseCode.PULL_OFFSET_MOVED
        assert response.header(PullMessageResponseHeader).next_begin_offset == one.broker.store.min_offset(TOPIC, 0)


async def test_messages_are_found_by_key_by_id_and_by_time(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        first = (await pulled(one, 0))[3]
        response = await one.client.ask_well(RequestCode.QUERY_MESSAGE, query("k6"))
        assert bodies(response.body) == [body(6)]
        header = ViewMessageRequestHeader(offset=first.physical_offset)
        response = await one.client.ask_well(RequestCode.VIEW_MESSAGE_BY_ID, header)
        assert bodies(response.body) == [body(6)]
        search = SearchOffsetRequestHeader(topic=TOPIC, queue_id=0, timestamp=first.store_timestamp)
        response = await one.client.ask_well(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        assert response.header(SearchOffsetResponseHeader).offset == 3
        earliest = GetEarliestMsgStoretimeRequestHeader(topic=TOPIC, queue_id=0)
        response = await one.client.ask_well(RequestCode.GET_EARLIEST_MSG_STORETIME, earliest)
        time = response.header(GetEarliestMsgStoretimeResponseHeader).timestamp
        assert time == first.store_timestamp - 6_000


async def test_a_group_that_is_reset_to_the_beginning_pops_all_messages(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        await one.client.heartbeat("client", TOPIC)
        reset = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=0, is_force=True, queue_id=-1)
        await one.client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert [one.broker.offsets.query(GROUP, TOPIC, queue_id) for queue_id in (0, 1)] == [0, 0]
        got: list[bytes] = []
        while len(got) < COUNT:
            response = await pop(one.client, poll_time=20_000)
            assert response.code == ResponseCode.SUCCESS, response.remark
            for message in messages_of(response):
                got.append(message.body)
                assert (await ack(one.client, message)).code == ResponseCode.SUCCESS
        assert sorted(got) == sorted(body(n) for n in range(COUNT))


async def test_a_reset_to_an_offset_needs_no_answer_of_the_object_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: RemoteStore, key: str, start: int, end: int) -> bytes:
        raise Unavailable(f"{key}: 503 Slow Down")

    async with tiered(tmp_path) as one:
        monkeypatch.setattr(RemoteStore, "get_range", fail)
        reset = ResetOffsetRequestHeader(group=GROUP, topic=TOPIC, timestamp=0, is_force=True, queue_id=0, offset=7)
        await one.client.heartbeat("client", TOPIC)
        await one.client.ask_well(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert one.broker.offsets.query(GROUP, TOPIC, 0) == 7


async def test_an_archived_message_that_is_not_acknowledged_comes_again(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        response = await pop(one.client, poll_time=20_000, max_msg_nums=1, queue_id=0, invisible_time=10_000)
        assert [message.body for message in messages_of(response)] == [body(0)]
        retry = f"%RETRY%{GROUP}_{TOPIC}"
        await one.after(1.0, lambda: one.broker.store.max_offset(retry, 0) == 1)


async def test_an_archived_message_is_sent_back(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        await one.client.heartbeat("client", TOPIC)
        first = (await pulled(one, 0))[0]
        header = ConsumerSendMsgBackRequestHeader(
            offset=first.physical_offset, group=GROUP, delay_level=1, origin_topic=TOPIC
        )
        await one.client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        await one.after(1.0, lambda: one.broker.store.max_offset(f"%RETRY%{GROUP}", 0) == 1)


async def test_while_the_store_fails_a_group_is_told_to_try_again_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiered_reads, "_PAUSE_S", 0.01)

    async def fail(self: RemoteStore, key: str, start: int, end: int) -> bytes:
        raise Unavailable(f"{key}: 503 Slow Down")

    async with tiered(tmp_path) as one:
        with monkeypatch.context() as patch:
            patch.setattr(RemoteStore, "get_range", fail)
            response = await one.client.pull(offset=3)
            assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert response.header(PullMessageResponseHeader).next_begin_offset == 3
            near = await one.client.pull(offset=COUNT // 2 - 1)
            assert near.code == ResponseCode.SUCCESS
        assert (await one.client.pull(offset=3)).code == ResponseCode.SUCCESS


async def test_after_a_restart_archived_messages_are_read_again(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        expected = [bytes(record.body) for record in await pulled(one, 0)]
    async with served(tmp_path) as one:
        # At once: until the manifest is read, a pull is told to try again, and is not moved.
        while (response := await one.client.pull(offset=0)).code != ResponseCode.SUCCESS:
            assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert response.header(PullMessageResponseHeader).next_begin_offset == 0
        assert [bytes(record.body) for record in await pulled(one, 0)] == expected


async def test_the_figures_are_those_of_the_archive_and_its_requests(tmp_path: Path) -> None:
    async with tiered(tmp_path) as one:
        await pulled(one, 0)
        broker = one.broker
        found = {
            metric.name: dict(metric.read())
            for service in (service_of(broker, ArchiveService), service_of(broker, ArchiveReads))
            for metric in service.exported_metrics()
        }
        manifest = await manifest_of(tmp_path)
        assert manifest is not None
        own, theirs = "sprocket_tiered_store_", "rocketmq_tiered_store_"
        assert found[f"{own}stored"][()] == sum(entry.size_bytes for entry in manifest.segments)
        assert found[f"{own}upload_lag"][()] == broker.store.wrote_offset - manifest.uploaded_end
        requests = {labels[0]: count for labels, count in found[f"{own}requests_total"].items()}
        # Each object: begin, part and end of an upload; and the manifest after it.
        assert requests["write"] >= 4 * len(manifest.segments)
        assert found[f"{own}request_cost"][()] == pytest.approx(requests["write"] * 5e-6 + requests["read"] * 4e-7)
        assert found[f"{theirs}messages_dispatch_total"][()] == sum(entry.records for entry in manifest.segments)
        assert found[f"{theirs}messages_out_total"][()] >= broker.store.min_offset(TOPIC, 0)
        looks, hits = (found[f"{theirs}read_ahead_cache_{name}_total"][()] for name in ("access", "hit"))
        assert 0 < hits < looks
        assert found[f"{own}failed_reads_total"][()] == 0
