"""SIGKILL of the broker that has the half and delayed messages of a static topic whose queues have moved."""

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from sprocket import ConsumeFrom, Consumer
from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.namesrv import GetRouteInfoRequestHeader
from sprocket.remoting.headers.send import EndTransactionRequestHeader, SendMessageResponseHeader
from tests.broker.rig import GROUP, TOPIC, TestClient
from tests.broker.static_topics.rig import A, B
from tests.chaos.load import PROPERTIES
from tests.chaos.nursery import ChaosBroker, ChaosNameServer, Nursery
from tests.send_headers import send_header
from tests.sprocket_cli.mqadmin.conftest import runner

KILLS = 3
HALVES = 60
DELAYED = 30


@pytest.fixture
def names(nursery: Nursery, tmp_path: Path) -> Iterator[ChaosNameServer]:
    with ChaosNameServer(nursery, tmp_path / "names", {}) as names:
        names.start()
        yield names


@pytest.fixture
def brokers(nursery: Nursery, names: ChaosNameServer, tmp_path: Path) -> Iterator[tuple[ChaosBroker, ChaosBroker]]:
    """Brokers a and b, which run."""
    own = {"namesrvAddr": names.address, "bindAddress": "127.0.0.1", "autoCreateSubscriptionGroup": "true"}
    with (
        ChaosBroker(nursery, tmp_path / A, PROPERTIES | own | {"brokerName": A}) as a,
        ChaosBroker(nursery, tmp_path / B, PROPERTIES | own | {"brokerName": B}) as b,
    ):
        a.start()
        b.start()
        yield a, b


async def registered(names: ChaosNameServer, count: int) -> None:
    """Wait until the cluster has so many brokers."""
    client = RemotingClient()
    header = GetRouteInfoRequestHeader(topic="DefaultCluster")
    try:
        async with asyncio.timeout(60):
            while True:
                response = await client.invoke(names.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
                if response.body.count(b'"brokerAddrs"') >= count:
                    return
                await asyncio.sleep(0.05)
    finally:
        await client.close()


async def send(client: TestClient, body: str, properties: str, sys_flag: int = 0) -> SendMessageResponseHeader:
    text = f"UNIQ_KEY\x01{body.encode().hex():0>32}\x02{properties}"
    header = send_header(TOPIC, queue_id=len(body) % 2, properties=text, sys_flag=sys_flag)
    return (await client.ask_well(RequestCode.SEND_MESSAGE_V2, header, body.encode())).header(SendMessageResponseHeader)


async def commit(client: TestClient, half: SendMessageResponseHeader, number: int) -> bool:
    """Commit; whether the broker says that it is committed, now or before."""
    end = EndTransactionRequestHeader(
        producer_group="PG", tran_state_table_offset=number, commit_log_offset=int(half.msg_id[-16:], 16),
        commit_or_rollback=8, msg_id=half.msg_id,
    )  # fmt: skip
    try:
        answer = await client.ask(RequestCode.END_TRANSACTION, end)
    except ClientError:
        return False
    return answer.code == ResponseCode.SUCCESS or "has ended already" in (answer.remark or "")


async def test_no_late_message_is_lost(
    names: ChaosNameServer, brokers: tuple[ChaosBroker, ChaosBroker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    a, _ = brokers
    tool = partial(asyncio.to_thread, runner(names.address))
    await registered(names, 2)
    await tool("updateStaticTopic", "-t", TOPIC, "-qn", "2", "-b", A)
    client = TestClient(a.address)
    half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    halves = [await send(client, f"half-{number}", half, sys_flag=4) for number in range(HALVES)]
    for number in range(DELAYED):
        await send(client, f"later-{number}", "DELAY\x012\x02")
    await tool("remappingStaticTopic", "-t", TOPIC, "-b", B)
    committed = 0
    for turn in range(KILLS + 1):
        # The others end while it dies, with or without an answer.
        goal = HALVES * (turn + 1) // (KILLS + 1)
        ends = [asyncio.create_task(commit(client, halves[number], number)) for number in range(committed, goal)]
        if turn < KILLS:
            await next(iter(asyncio.as_completed(ends)))
            a.kill()
        await asyncio.gather(*ends)
        await client.close()
        if turn < KILLS:
            a.start()
        client = TestClient(a.address)
        for number in range(committed, goal):
            async with asyncio.timeout(60):
                while not await commit(client, halves[number], number):
                    await asyncio.sleep(0.1)
        committed = goal
    expected = {f"half-{number}" for number in range(HALVES)} | {f"later-{number}" for number in range(DELAYED)}
    found: set[str] = set()
    await registered(names, 2)
    # It reads logical queues: what is behind the end of an old item it never gets.
    async with Consumer(GROUP, [TOPIC], names.address, consume_from=ConsumeFrom.FIRST) as consumer:
        async with asyncio.timeout(90):
            while found != expected:
                message = await anext(consumer)
                await consumer.ack(message)
                found.add(message.body.decode())
    await client.close()
