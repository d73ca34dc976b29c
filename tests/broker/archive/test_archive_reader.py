"""A broker that serves the archive of another cluster: it is read by the usual requests, and written by none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.archive import archive_service
from broker.server import Broker
from sprocket.common.errors import ConfigError, StoreError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import ViewMessageRequestHeader
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from sprocket.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from store.record.record import Record
from tests.broker.archive.test_archive_reads import body, records
from tests.broker.archive.test_archive_service import archived_to, served
from tests.broker.pop.rig import ack, messages_of, pop
from tests.broker.processor.test_query import bodies, query
from tests.broker.rig import GROUP, TOPIC, broker_config, send_header, store_config
from tests.broker.topic.test_topic_retention import SEGMENT_BYTES, FilledDisk, Served
from tests.clock import ManualClock
from tests.waiting import until

COUNT = 60


@pytest.fixture(autouse=True)
def follows_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_service, "_FOLLOW_S", 0.02)


async def fill(source: Served, first: int, count: int = COUNT) -> None:
    for number in range(first, first + count):
        source.clock.advance(1.0)
        await source.client.send(
            body(number), queue_id=number % 2, KEYS=f"k{number}", TAGS=f"t{number % 3}", UNIQ_KEY=f"U{number}"
        )


async def closed(root: Path, source: Served) -> int:
    """Wait until the archive has all closed files; return the end of queue 0 in it."""
    end = source.broker.store.wrote_offset
    manifest = await archived_to(root, end - end % SEGMENT_BYTES)
    queues = [queue for segment in manifest.segments for queue in segment.queues or ()]
    return max(queue.end for queue in queues if (queue.topic, queue.queue_id) == (TOPIC, 0))


def url(root: Path) -> str:
    return f"file://{root}/bucket/DefaultCluster/broker-a"


@asynccontextmanager
async def reader(root: Path, **fields: Any) -> AsyncIterator[Served]:
    """A broker of another cluster that reads the archive below `root`."""
    clock = ManualClock()
    config = store_config(root / "reader", message_index_enable=True, **({"read_only_from": url(root)} | fields))
    one = replace(broker_config(), broker_name="reader", broker_cluster_name="Other")
    broker = Broker(one, config, clock=clock, disk=FilledDisk(), on_fatal=pytest.fail)
    await broker.start()
    made = Served(broker, FilledDisk(), clock)
    try:
        yield made
    finally:
        await made.client.close()
        await broker.stop()


async def pulled(one: Served, queue_id: int, offset: int = 0) -> list[Record]:
    """Read a queue as a consumer does, up to the end that the broker tells."""
    found: list[Record] = []
    end = offset + 1
    while offset < end:
        response = await one.client.pull(queue_id=queue_id, offset=offset)
        assert response.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), response.remark
        header = response.header(PullMessageResponseHeader)
        offset, end = header.next_begin_offset, header.max_offset
        found += records(response)
    return found


def ready(one: Served) -> bool:
    return TOPIC in one.broker.topics and one.broker.store.max_offset(TOPIC, 0) > 0


async def test_consumers_read_find_and_follow_what_another_broker_archived(tmp_path: Path) -> None:
    async with served(tmp_path) as source, reader(tmp_path) as one:
        # Before there is an archive the reader runs, and has nothing.
        assert TOPIC not in one.broker.topics
        await fill(source, 0)
        end = await closed(tmp_path, source)
        await until(lambda: ready(one) and one.broker.store.max_offset(TOPIC, 0) == end)
        got = {queue_id: await pulled(one, queue_id) for queue_id in (0, 1)}
        for queue_id, found in got.items():
            sent = [body(n) for n in range(queue_id, COUNT, 2)]
            assert [bytes(record.body) for record in found] == sent[: len(found)]
            assert [record.queue_offset for record in found] == list(range(len(found)))
        low = await one.client.ask_well(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic=TOPIC, queue_id=0))
        high = await one.client.ask_well(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0))
        assert low.header(GetMinOffsetResponseHeader).offset == 0
        assert high.header(GetMaxOffsetResponseHeader).offset == len(got[0])
        third = got[0][3]
        assert bodies((await one.client.ask_well(RequestCode.QUERY_MESSAGE, query("k6"))).body) == [body(6)]
        unique = query("U6", is_unique_key="true")
        assert bodies((await one.client.ask_well(RequestCode.QUERY_MESSAGE, unique)).body) == [body(6)]
        view = ViewMessageRequestHeader(offset=third.physical_offset)
        assert bodies((await one.client.ask_well(RequestCode.VIEW_MESSAGE_BY_ID, view)).body) == [body(6)]
        search = SearchOffsetRequestHeader(topic=TOPIC, queue_id=0, timestamp=third.store_timestamp)
        response = await one.client.ask_well(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        assert response.header(SearchOffsetResponseHeader).offset == 3
        # A new manifest: a held pull is answered with what is new.
        await fill(source, COUNT)
        await closed(tmp_path, source)
        await until(lambda: one.broker.store.max_offset(TOPIC, 0) > len(got[0]))
        more = await pulled(one, 0, len(got[0]))
        assert bytes(more[0].body) == body(2 * len(got[0]))


async def test_sends_are_refused_with_the_reason_and_no_topic_is_made(tmp_path: Path) -> None:
    async with served(tmp_path) as source:
        await fill(source, 0)
        await closed(tmp_path, source)
        async with reader(tmp_path) as one:
            await until(lambda: ready(one))
            for topic in (TOPIC, "New"):
                response = await one.client.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic), b"x")
                assert response.code == ResponseCode.NO_PERMISSION
                assert "serves an archive (readOnlyFrom)" in (response.remark or "")
            assert "New" not in one.broker.topics
            config = one.broker.topics.get(TOPIC)
            assert config is not None
            assert config.perm == 4


async def test_a_group_pops_acknowledges_and_gives_back(tmp_path: Path) -> None:
    async with served(tmp_path) as source:
        await fill(source, 0)
        await closed(tmp_path, source)
        async with reader(tmp_path) as one:
            await until(lambda: ready(one))
            expected = sum(one.broker.store.max_offset(TOPIC, queue_id) for queue_id in (0, 1))
            got: list[bytes] = []
            while len(got) < expected:
                response = await pop(one.client, poll_time=20_000)
                assert response.code == ResponseCode.SUCCESS, response.remark
                for message in messages_of(response):
                    got.append(message.body)
                    assert (await ack(one.client, message)).code == ResponseCode.SUCCESS
            assert set(got) == {body(number) for number in range(expected)}
            offset = (await pulled(one, 0))[0].physical_offset
            back = ConsumerSendMsgBackRequestHeader(offset=offset, group=GROUP, delay_level=1, origin_topic=TOPIC)
            await one.client.ask_well(RequestCode.CONSUMER_SEND_MSG_BACK, back)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_after_a_restart_nobody_is_moved_and_the_ends_are_those_of_the_archive(
    tmp_path: Path, is_clean: bool
) -> None:
    async with served(tmp_path) as source:
        await fill(source, 0)
        await closed(tmp_path, source)
    async with reader(tmp_path) as one:
        await until(lambda: ready(one))
        end = one.broker.store.max_offset(TOPIC, 0)
    if not is_clean:
        (tmp_path / "reader" / "store" / "queuelist").unlink()
    away = f"file://{tmp_path}/nowhere"
    async with reader(tmp_path, read_only_from=away) as one:
        # The archive cannot be read yet: the topic is known, its messages are not.
        response = await one.client.pull(offset=end - 1)
        assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert response.header(PullMessageResponseHeader).next_begin_offset == end - 1
    async with reader(tmp_path) as one:
        await until(lambda: one.broker.store.max_offset(TOPIC, 0) == end)
        assert len(await pulled(one, 0)) == end


async def test_a_broker_with_a_log_of_its_own_or_an_archive_of_its_own_is_no_reader(tmp_path: Path) -> None:
    async with served(tmp_path) as source:
        await fill(source, 0)
        await closed(tmp_path, source)
    (tmp_path / "reader").mkdir()
    (tmp_path / "store").rename(tmp_path / "reader" / "store")
    with pytest.raises(StoreError, match="has a log of its own"):
        async with reader(tmp_path, mapped_file_size_commit_log=SEGMENT_BYTES):
            pass
    with pytest.raises(ConfigError, match="cannot have an archive of its own"):
        async with reader(tmp_path, object_store_bucket="memory:///"):
            pass
