"""Members of broadcasting groups that connect directly, through a proxy, and alternately."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.clock import ManualClock

MEMBER = "one"
Pair = tuple[Broker, TestClient, ManualClock]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(10):
            await client.send(b"%d" % number)
        await client.heartbeat(MEMBER, TOPIC, model="BROADCASTING")
        yield broker, client, clock


async def pull(client: TestClient, offset: int, *, proxy_for: str | None = None, **changes: Any) -> ReceivedResponse:
    fields: dict[str, Any] = {
        "consumer_group": GROUP, "topic": TOPIC, "queue_id": 0, "queue_offset": offset, "max_msg_nums": 1,
        "sys_flag": 4, "commit_offset": 0, "suspend_timeout_millis": 0, "subscription": "*", "sub_version": 0,
        "expression_type": "TAG",
    }  # fmt: skip
    if proxy_for is not None:
        fields |= {"request_source": 1, "proxy_froward_client_id": proxy_for}
    return await client.ask(RequestCode.PULL_MESSAGE, PullMessageRequestHeader(**(fields | changes)))


def moved_to(answer: ReceivedResponse) -> int:
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED, answer
    return int(answer.ext_fields["nextBeginOffset"])


async def test_a_member_that_always_comes_straight_is_never_sent_elsewhere(pair: Pair) -> None:
    _, client, _ = pair
    for offset in (0, 1, 2, 7, 3):
        assert (await pull(client, offset)).code == ResponseCode.SUCCESS


async def test_a_member_behind_a_proxy_begins_at_the_first_message_in_memory(pair: Pair) -> None:
    _, client, _ = pair
    assert moved_to(await pull(client, -1, proxy_for="other")) == 0


async def test_or_at_the_end_where_the_first_message_is_on_the_disk_only(pair: Pair) -> None:
    broker, client, _ = pair
    broker.broadcasts._memory_bytes = 0
    assert moved_to(await pull(client, -1, proxy_for="other")) == 10


async def test_a_member_that_changes_between_proxy_and_direct_continues_at_its_offset(pair: Pair) -> None:
    _, client, _ = pair
    await pull(client, 4)
    assert moved_to(await pull(client, -1, proxy_for=MEMBER)) == 4
    assert (await pull(client, 6, proxy_for=MEMBER)).code == ResponseCode.SUCCESS
    assert moved_to(await pull(client, 0)) == 6
    assert (await pull(client, 6)).code == ResponseCode.SUCCESS


async def test_a_new_member_behind_a_proxy_begins_where_the_slowest_is(pair: Pair) -> None:
    broker, client, _ = pair
    await pull(client, 7)
    await pull(client, 3, proxy_for="slow")
    broker.broadcasts.scan()
    assert broker.offsets.query(GROUP + "@broadcast", TOPIC, 0) == 3
    assert moved_to(await pull(client, -1, proxy_for="new")) == 3


async def test_members_that_go_are_forgotten_in_time(pair: Pair) -> None:
    broker, client, clock = pair
    await pull(client, 8)
    await pull(client, 2, proxy_for="gone")
    clock.advance(119)
    broker.broadcasts.scan()
    assert broker.offsets.query(GROUP + "@broadcast", TOPIC, 0) == 2
    clock.advance(2)
    broker.broadcasts.scan()
    broker.broadcasts.scan()
    assert broker.offsets.query(GROUP + "@broadcast", TOPIC, 0) == 8, "the connected one counts on"
    clock.advance(300)
    broker.broadcasts.scan()
    assert broker.broadcasts._members == {}


async def test_a_group_that_does_not_broadcast_is_not_remembered(pair: Pair) -> None:
    broker, client, _ = pair
    await client.heartbeat(MEMBER, TOPIC, model="CLUSTERING")
    await pull(client, 4)
    assert broker.broadcasts._members == {}


async def test_nothing_is_remembered_where_the_key_is_off(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_broadcast_offset_store=False) as (broker, client):
        await client.send()
        await client.heartbeat(MEMBER, TOPIC, model="BROADCASTING")
        await pull(client, 0)
        assert broker.broadcasts._members == {}
        assert (await pull(client, -1, proxy_for="other")).code == ResponseCode.PULL_OFFSET_MOVED
