"""Pulls: what is found, held, refused."""

import asyncio
import struct
from pathlib import Path

import msgspec
import pytest

from broker.client.clients import Member
from broker.pull.planner import COMMIT_OFFSET, SUBSCRIPTION, SUSPEND
from sprocket.remoting.bodies.client import ConsumerData, SubscriptionData
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.frames import encode_request
from sprocket.remoting.framing import JSON, ROCKETMQ
from sprocket.remoting.headers.pull import PullMessageResponseHeader
from tests.broker.hot_path import TOPIC, FlushDiskType, HotPath, hot_path, properties, records


def bodies(response: ReceivedResponse) -> list[bytes]:
    assert response.code == ResponseCode.SUCCESS, (response.code, response.remark)
    return [bytes(record.body) for record in records(response.body)]


def header_of(response: ReceivedResponse) -> PullMessageResponseHeader:
    return response.header(PullMessageResponseHeader)


async def send(path: HotPath, *names: str, **changes: object) -> None:
    """One message per name, whose tag and body it is."""
    for name in names:
        response = await path.send(name.encode(), properties=properties(TAGS=name), **changes)
        assert response.code == ResponseCode.SUCCESS


async def held(path: HotPath, count: int) -> None:
    """Wait until `count` pulls are held."""
    async with asyncio.timeout(60):
        while len(path.held) != count:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("serialization", [JSON, ROCKETMQ])
@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.code(RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
async def test_a_pull_brings_what_was_sent_in_order(tmp_path: Path, code: RequestCode, serialization: int) -> None:
    async with hot_path(tmp_path, serialization=serialization) as path:
        await send(path, *"01234")
        response = await path.pull(code=code, queue_offset=1, max_msg_nums=3)
        assert response.remark == "FOUND"
        assert bodies(response) == [b"1", b"2", b"3"]
        assert [record.queue_offset for record in records(response.body)] == [1, 2, 3]
        header = header_of(response)
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (4, 0, 5)
        assert (header.suggest_which_broker_id, header.topic_sys_flag, header.group_sys_flag) == (0, 0, 0)
        assert path.offsets.query_pull("CG", TOPIC, 0) == 4


async def test_a_pull_of_records_that_are_not_neighbours(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        for name in "abc":
            await send(path, name)
            await send(path, "other", queue_id=1)
        assert bodies(await path.pull()) == [b"a", b"b", b"c"]


async def test_a_pull_keeps_to_the_bytes_it_asked_for(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"abcdef")
        size = len((await path.pull(max_msg_nums=1)).body)
        assert bodies(await path.pull(max_msg_bytes=3 * size)) == [b"a", b"b", b"c"]
        assert len(bodies(await path.pull(max_msg_bytes=-1))) == 6


async def test_a_pull_with_tags_brings_those_alone(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"abcabc")
        response = await path.pull(subscription="a || c", max_msg_nums=3)
        assert bodies(response) == [b"a", b"c", b"a"]
        # Behind it comes the next match or at the latest the end, never a message twice.
        assert 4 <= header_of(response).next_begin_offset <= 5
        nothing = await path.pull(subscription="x")
        assert (nothing.code, nothing.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert header_of(nothing).next_begin_offset == 6


@pytest.mark.parametrize(
    ("sent", "offset", "code", "remark", "next_offset"),
    [
        (0, 0, ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE", 0),
        (0, 5, ResponseCode.PULL_OFFSET_MOVED, "NO_MATCHED_LOGIC_QUEUE", 0),
        (2, 2, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 2),
        (2, 3, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 2),
        (2, -1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
async def test_a_pull_beside_the_queue(
    tmp_path: Path, sent: int, offset: int, code: ResponseCode, remark: str, next_offset: int
) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"ab"[:sent])
        response = await path.pull(queue_offset=offset)
        assert (response.code, response.remark, response.body) == (code, remark, b"")
        assert header_of(response).next_begin_offset == next_offset


async def test_offsets_are_committed_with_a_pull_that_says_so(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, "a")
        await path.pull(commit_offset=7)
        assert path.offsets.query("CG", TOPIC, 0) == -1
        await path.pull(commit_offset=7, sys_flag=SUBSCRIPTION | COMMIT_OFFSET)
        assert path.offsets.query("CG", TOPIC, 0) == 7


async def test_a_reset_offset_is_told_once(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"abc")
        path.offsets.reset("CG", TOPIC, 0, 1)
        response = await path.pull(queue_offset=3)
        assert (response.code, response.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        header = header_of(response)
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (1, 0, 3)
        assert bodies(await path.pull(queue_offset=1)) == [b"b", b"c"]


# Refusals


async def test_what_forbids_a_pull_is_named(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        path.topics.update([TopicConfig("WriteOnly", 1, 1, perm=2)])
        path.groups.update([SubscriptionGroupConfig("Stopped", consume_enable=False)])
        cases = [
            ({"topic": "WriteOnly"}, ResponseCode.NO_PERMISSION, "3"),
            ({"consumer_group": "Stopped"}, ResponseCode.NO_PERMISSION, "2"),
            ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST, None),
            ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, None),
            ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER, None),
            ({"expression_type": "SQL92", "subscription": "a > 1"}, ResponseCode.SYSTEM_ERROR, None),
            ({"expression_type": "SQL92", "subscription": ""}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, None),
        ]
        for changes, code, forbidden_type in cases:
            response = await path.pull(**changes)
            assert (response.code, response.ext_fields.get("forbiddenType")) == (code, forbidden_type), changes
        sql = await path.pull(expression_type="SQL92", subscription="a > 1")
        assert sql.remark == "The broker does not support consumer to filter message by SQL92"
        path.config.update(b"litePullMessageEnable=false")
        lite = await path.pull(code=RequestCode.LITE_PULL_MESSAGE)
        assert (lite.code, lite.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "1")
        path.config.update(b"brokerPermission=2")
        broker = await path.pull()
        assert (broker.code, broker.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "1")


async def test_an_unknown_group_is_refused_when_it_may_not_be_made(tmp_path: Path) -> None:
    async with hot_path(tmp_path, broker={"auto_create_subscription_group": False}) as path:
        assert (await path.pull(consumer_group="New")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    async with hot_path(tmp_path / "2") as path:
        await path.pull(consumer_group="New")
        assert path.groups.get("New") is not None


# Subscriptions of the group


class Connection:
    """A channel of a consumer that sent heartbeats."""

    id = 77
    peer = ("127.0.0.1", 1)

    def notify(self, *_: object) -> None: ...


def subscribe(path: HotPath, *subscriptions: SubscriptionData, model: str = "CLUSTERING") -> None:
    member = Member(Connection(), "client", "JAVA", 479, 0.0)  # type: ignore[arg-type] # all that is needed
    path.consumers.register(member, ConsumerData("CG", message_model=model, subscription_data_set=list(subscriptions)))


async def test_without_a_subscription_in_the_request_the_heartbeats_decide(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"abab")

        async def pull(**changes: object) -> ReceivedResponse:
            return await path.pull(sys_flag=0, subscription=None, **changes)

        assert (await pull()).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        subscribe(path, SubscriptionData("Other"))
        assert (await pull()).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        subscribe(path, SubscriptionData(TOPIC, "b", code_set=[java_hash_code("b")], sub_version=5))
        assert bodies(await pull(sub_version=5)) == [b"b", b"b"]
        assert (await pull(sub_version=6)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        subscribe(path, SubscriptionData(TOPIC, "a > 1", expression_type="SQL92", sub_version=7))
        assert (await pull()).code == ResponseCode.SYSTEM_ERROR


async def test_broadcasting_can_be_forbidden_for_a_group(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        path.groups.update([SubscriptionGroupConfig("CG", consume_broadcast_enable=False)])
        subscribe(path, SubscriptionData(TOPIC), model="BROADCASTING")
        response = await path.pull(sys_flag=0)
        assert (response.code, response.ext_fields["forbiddenType"]) == (ResponseCode.NO_PERMISSION, "4")


# Held pulls


async def test_a_held_pull_is_answered_by_the_next_message_for_it(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        flags = SUBSCRIPTION | SUSPEND
        everything = asyncio.create_task(path.pull(sys_flag=flags))
        tagged = asyncio.create_task(path.pull(sys_flag=flags, subscription="b"))
        elsewhere = asyncio.create_task(path.pull(sys_flag=flags, queue_id=1))
        await held(path, 3)
        await send(path, "a")
        assert bodies(await everything) == [b"a"]
        await held(path, 2)
        await send(path, "b")
        assert bodies(await tagged) == [b"b"]
        await held(path, 1)
        await send(path, "c", queue_id=1)
        assert bodies(await elsewhere) == [b"c"]
        await held(path, 0)


async def test_a_held_pull_does_not_commit_its_offset_twice(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        pull = asyncio.create_task(path.pull(sys_flag=SUBSCRIPTION | SUSPEND | COMMIT_OFFSET, commit_offset=3))
        await held(path, 1)
        path.offsets.commit("CG", TOPIC, 0, 9)
        await send(path, "a")
        await pull
        assert path.offsets.query("CG", TOPIC, 0) == 9


async def test_a_held_pull_is_told_when_its_time_is_up(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        response = await path.pull(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=100)
        assert response.code == ResponseCode.PULL_NOT_FOUND
        # Without the flag nothing is held, whatever the timeout says.
        assert (await path.pull()).code == ResponseCode.PULL_NOT_FOUND


async def test_short_polling_has_a_time_of_its_own(tmp_path: Path) -> None:
    async with hot_path(tmp_path, broker={"long_polling_enable": False, "short_polling_time_mills": 50}) as path:
        response = await path.pull(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=3_600_000)
        assert response.code == ResponseCode.PULL_NOT_FOUND


async def test_a_held_pull_whose_topic_is_deleted_is_told(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        pull = asyncio.create_task(path.pull(sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=200))
        await held(path, 1)
        path.topics.delete(TOPIC)
        assert (await pull).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_held_pull_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        flags = SUBSCRIPTION | SUSPEND
        doomed = asyncio.create_task(path.pull(sys_flag=flags, consumer_group="Doomed"))
        await held(path, 1)
        fine = asyncio.create_task(path.pull(sys_flag=flags))
        await held(path, 2)
        find = path.groups.find

        def fails_for_one(group: str) -> SubscriptionGroupConfig | None:
            if group == "Doomed":
                raise OSError("no luck")
            return find(group)

        path.groups.find = fails_for_one  # type: ignore[method-assign]
        await send(path, "a")
        assert bodies(await fine) == [b"a"]
        assert ((await doomed).code, (await doomed).remark) == (ResponseCode.SYSTEM_ERROR, "OSError: no luck")


async def test_a_closed_connection_leaves_no_held_pull(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        _, writer = await asyncio.open_connection("127.0.0.1", path.server.port)
        header = path.pull_header(sys_flag=SUBSCRIPTION | SUSPEND)
        writer.write(b"".join(encode_request(11, opaque, header) for opaque in range(50)))
        await held(path, 50)
        writer.close()
        await held(path, 0)


async def test_with_sync_flush_a_pull_waits_for_the_disk(tmp_path: Path) -> None:
    async with hot_path(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as path:
        pull = asyncio.create_task(path.pull(sys_flag=SUBSCRIPTION | SUSPEND))
        await held(path, 1)
        await send(path, "a")
        assert bodies(await pull) == [b"a"]
        assert path.store.flushed_offset == path.store.wrote_offset


async def test_the_pulls_of_one_read_are_answered_in_order_in_one_stream(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"abcdefgh")
        reader, writer = await asyncio.open_connection("127.0.0.1", path.server.port)
        frames = [encode_request(11, n, path.pull_header(queue_offset=n, max_msg_nums=1)) for n in range(8)]
        writer.write(b"".join(frames))
        for n in range(8):
            length, header_bytes = struct.unpack(">ii", await reader.readexactly(8))
            frame = await reader.readexactly(length - 4)
            assert msgspec.json.decode(frame[:header_bytes])["opaque"] == n
            (record,) = records(frame[header_bytes:])
            assert bytes(record.body) == b"abcdefgh"[n : n + 1]
        writer.close()


async def test_a_damaged_record_is_answered_with_its_place_and_what_to_do(tmp_path: Path) -> None:
    async with hot_path(tmp_path) as path:
        await send(path, *"0123")
        # As after a start: all that is there is from before it.
        path.store._reader.cold.end_offset = path.store.wrote_offset
        entry = path.store.entry(TOPIC, 0, 2)
        assert entry is not None
        (segment,) = path.store.config.commit_log_path.glob("0" * 20)
        with segment.open("r+b") as file:
            file.seek(entry[0] + 20)  # its queue offset
            file.write(bytes(8))
        assert bodies(await path.pull()) == [b"0", b"1"]
        response = await path.pull(queue_offset=2)
        assert response.code == ResponseCode.SYSTEM_ERROR
        for part in (f"topic {TOPIC}, queue 0, queue offset 2", str(segment), "sprocket store repair"):
            assert part in (response.remark or "")
        assert bodies(await path.pull(queue_offset=3)) == [b"3"]
