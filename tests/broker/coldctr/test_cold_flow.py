"""Pulls of messages that are no longer in memory: counted, refused, held; thresholds that operators set."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from broker.server import Broker
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.cold_flow import SetCommitLogReadModeRequestHeader
from tests.broker.hot_path import records
from tests.broker.rig import GROUP, TOPIC, TestClient, running_broker
from tests.waiting import until

# Nothing but the log's end is in memory.
COLD = {"cold_data_flow_control_enable": True, "access_message_in_memory_hot_ratio": 0}


@asynccontextmanager
async def cold_broker(root: Path, **changes: Any) -> AsyncIterator[tuple[Broker, TestClient]]:
    """A broker with six messages, all of them cold, in queue 0; a group may read one in a round."""
    async with running_broker(root, store=COLD, **({"cg_cold_read_threshold": 10} | changes)) as (broker, client):
        for number in range(6):
            await client.send(b"%d" % number)
        yield broker, client


async def info(client: TestClient) -> dict[str, Any]:
    return dict(json.loads((await client.ask_well(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body))


async def test_a_pull_consumer_that_reads_too_much_is_held_and_gets_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.coldctr.cold_flow._HOLD_S", 0.3)
    async with cold_broker(tmp_path) as (broker, client):
        assert len(records((await client.pull()).body)) == 6, "the group had read nothing yet"
        loop = asyncio.get_running_loop()
        began = loop.time()
        response = await client.pull()
        assert response.code == ResponseCode.SUCCESS
        assert [bytes(record.body) for record in records(response.body)] == [b"0"]
        assert loop.time() - began >= 0.3
        assert len(records((await client.pull(group="Other")).body)) == 6
        # A round later.
        broker.pulls.cold.thresholds.end_round(broker.config.broker, 0)  # type: ignore[union-attr]
        assert len(records((await client.pull()).body)) == 6


async def test_a_push_consumer_that_reads_too_much_is_refused(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as (broker, client):
        await client.heartbeat("c1", TOPIC)
        assert (await client.pull()).code == ResponseCode.SUCCESS
        response = await client.pull()
        assert response.code == ResponseCode.SYSTEM_BUSY
        assert broker.routes.refusals.by_reason == {Reason.COLD_READ: 1}
        assert response.remark == "This consumer group is reading cold data. It has been flow control"


async def test_what_is_not_cold_is_neither_counted_nor_held(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"cold_data_flow_control_enable": True}, cg_cold_read_threshold=0) as rig:
        _, client = rig
        await client.send()
        for _ in range(3):
            assert (await client.pull()).code == ResponseCode.SUCCESS
        assert (await info(client))["runtimeTable"] == {}


async def test_system_groups_are_not_bound(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as (_, client):
        for _ in range(3):
            assert len(records((await client.pull(group="TOOLS_CONSUMER")).body)) == 6
        assert (await info(client))["globalAcc"] == 0


async def test_the_control_is_switched_while_the_broker_runs(tmp_path: Path) -> None:
    async with running_broker(tmp_path, cg_cold_read_threshold=10) as (broker, client):
        assert not broker.pulls.cold.is_on, "no pull is looked at"
        await client.send()
        await client.pull()
        on = b"coldDataFlowControlEnable=true\naccessMessageInMemoryHotRatio=0\n"
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=on)
        await client.pull()
        assert (await info(client))["runtimeTable"][GROUP]["coldAcc"] > 10
        held = asyncio.create_task(client.pull())
        await until(lambda: len(broker.pulls.cold.held) == 1)  # type: ignore[union-attr]
        # What is held is answered at once when the control goes off.
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=b"coldDataFlowControlEnable=false\n")
        assert (await held).code == ResponseCode.SUCCESS
        assert (await info(client))["runtimeTable"] == {}


async def test_held_pulls_are_bounded_and_go_with_their_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.coldctr.cold_flow._HOLD_S", 600.0)
    monkeypatch.setattr("broker.coldctr.cold_flow._MAX_HELD", 2)
    async with cold_broker(tmp_path) as (broker, client):
        await client.pull()
        held = [asyncio.create_task(client.pull()) for _ in range(2)]
        await until(lambda: len(broker.pulls.cold.held) == 2)  # type: ignore[union-attr]
        assert len(records((await client.pull()).body)) == 1, "no room: one message at once"
        await client.remoting.close()
        await until(lambda: len(broker.pulls.cold.held) == 0)  # type: ignore[union-attr]
        await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.code(
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
)
async def test_operators_set_see_and_remove_thresholds(tmp_path: Path) -> None:
    async with cold_broker(tmp_path) as (_, client):
        set_code, remove_code = (
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        )
        await client.ask_well(set_code, body=f"{GROUP}=1000000\nother=5\n".encode())
        for _ in range(3):
            assert len(records((await client.pull()).body)) == 6
        shown = await info(client)
        assert shown["configTable"] == {GROUP: 1_000_000, "other": 5}
        assert (shown["cgColdReadThreshold"], shown["globalColdReadThreshold"]) == (10, 100 * 1024 * 1024)
        reads = shown["runtimeTable"][GROUP]
        assert reads["coldAcc"] == shown["globalAcc"] > 0
        assert 0 < reads["createTimeMills"] <= reads["lastColdReadTimeMills"]
        await client.ask_well(remove_code, body=GROUP.encode())
        await client.ask_well(remove_code, body=b"unknown")
        assert (await info(client))["configTable"] == {"other": 5}


@pytest.mark.parametrize("body", [b"g=x", b"g=-1", b"g=99999999999999999999", b"a/b=1", b"good=1\nbad=", b"x" * 70_000])
async def test_bad_thresholds_are_refused_whole(tmp_path: Path, body: bytes) -> None:
    async with running_broker(tmp_path) as (_, client):
        response = await client.ask(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)
        assert response.code == ResponseCode.INVALID_PARAMETER
        assert (await info(client))["configTable"] == {}


@pytest.mark.code(RequestCode.SET_COMMITLOG_READ_MODE)
async def test_read_ahead_is_switched(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, client):
        for mode in (1, 0):
            header = SetCommitLogReadModeRequestHeader(read_ahead_mode=mode)
            response = await client.ask_well(RequestCode.SET_COMMITLOG_READ_MODE, header)
            assert response.remark == f"set commitlog readahead mode success, mode: {mode}"
            assert broker.config.store.data_read_ahead_enable is (mode == 0)
            assert broker.store.config.data_read_ahead_enable is (mode == 0)
        header = SetCommitLogReadModeRequestHeader(read_ahead_mode=2)
        assert (await client.ask(RequestCode.SET_COMMITLOG_READ_MODE, header)).code == ResponseCode.INVALID_PARAMETER
        assert (await client.ask(RequestCode.SET_COMMITLOG_READ_MODE)).code == ResponseCode.SYSTEM_ERROR


async def test_a_key_that_bounds_a_read_counts_at_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (_, client):
        for _ in range(4):
            await client.send()
        assert len(records((await client.pull()).body)) == 4
        body = b"maxTransferCountOnMessageInMemory=3\n"
        await client.ask_well(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert len(records((await client.pull()).body)) == 3
