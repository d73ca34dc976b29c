"""`mqadmin updateStaticTopic` and `remappingStaticTopic` against real brokers, while messages are sent and read."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from sprocket.remoting.headers.send import SendMessageResponseHeader
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC
from tests.broker.static_topics.rig import A, B, Site, records, site
from tests.send_headers import send_header
from tests.sprocket_cli.mqadmin.conftest import runner

PROPERTIES = "UNIQ_KEY\x010A000001000000000000000000000001\x02"


def leader(two: Site, queue_id: int) -> str:
    """The broker that leads a logical queue, by what the brokers themselves say."""
    [name] = [
        name
        for name, broker in two.brokers.items()
        if (detail := core_of(broker).mappings.get(TOPIC)) is not None
        and str(queue_id) in (detail.info().curr_id_map or {})
    ]
    return name


async def send(two: Site, queue_id: int, body: bytes) -> int:
    """Send to the leader, and return the logical offset."""
    header = send_header(TOPIC, queue_id=queue_id, properties=PROPERTIES)
    response = await two.clients[leader(two, queue_id)].ask_well(RequestCode.SEND_MESSAGE_V2, header, body)
    return response.header(SendMessageResponseHeader).queue_offset


async def read(two: Site, queue_id: int) -> list[tuple[int, bytes]]:
    """Read a logical queue from its start, as a consumer does; return logical offsets and bodies."""
    offset, found = 0, []
    while True:
        header = PullMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, queue_offset=offset, max_msg_nums=2, sys_flag=4,
            commit_offset=0, suspend_timeout_millis=0, subscription="*", sub_version=0, expression_type="TAG",
        )  # fmt: skip
        response = await two.clients[leader(two, queue_id)].ask(RequestCode.PULL_MESSAGE, header)
        if response.code == ResponseCode.PULL_NOT_FOUND:
            return found
        shown = response.header(PullMessageResponseHeader)
        offset = shown.next_begin_offset
        delta = shown.offset_delta or 0
        found += [(record.queue_offset + delta, bytes(record.body)) for record in records(response.body)]


async def test_queues_are_made_and_moved_to_and_fro_and_no_message_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with site(tmp_path, auto_create_subscription_group=True) as two:
        tool = partial(asyncio.to_thread, runner(two.name_server))
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "2", "-b", f"{A},{B}")
        assert {leader(two, 0), leader(two, 1)} == {A, B}
        sent: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
        for number, targets in enumerate((None, A, B, f"{A},{B}", A)):
            if targets is not None:
                await tool("remappingStaticTopic", "-t", TOPIC, "-b", targets)
                assert {leader(two, 0), leader(two, 1)} == set(targets.split(","))
            for queue_id, messages in sent.items():
                for copy in range(3):
                    body = b"%d %d %d" % (queue_id, number, copy)
                    messages.append((await send(two, queue_id, body), body))
        for queue_id, messages in sent.items():
            offsets = [offset for offset, _ in messages]
            assert offsets == sorted(set(offsets))
            assert await read(two, queue_id) == messages
        await tool("updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{A},{B}")
        assert await send(two, 3, b"new queue") == 0
        assert await read(two, 3) == [(0, b"new queue")]
        await tool("deleteTopic", "-t", TOPIC, "-c", "DefaultCluster")
        assert all(core_of(broker).mappings.get(TOPIC) is None for broker in two.brokers.values())
