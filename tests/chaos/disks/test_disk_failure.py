"""A broker process whose disk fails: it acknowledges nothing more, says why, and ends with a status of its own."""

import asyncio

import pytest

from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket_cli.exit_codes import DISK
from tests.chaos.load import TOPIC, Load, Refused, read_queue
from tests.chaos.nursery import ChaosBroker


async def load_until_it_fails(broker: ChaosBroker, load: Load, failpoints: str) -> None:
    broker.start(failpoints)
    await load.prepare(broker.address)
    reads = asyncio.ensure_future(read_until_it_ends(broker.address))
    try:
        await load.until_dead(broker.address, others=False)
    except Refused as refusal:
        assert "the broker's disk failed" in refusal.remark
        assert "Input/output error" in refusal.remark
    assert await reads > 0


async def read_until_it_ends(address: str) -> int:
    """Read a queue again and again: it is served or the connection ends, but no read is refused; how many were."""
    client = RemotingClient()
    reads = 0
    try:
        while True:
            await read_queue(client, address, TOPIC, 0, 0)
            reads += 1
    except ClientError:
        return reads
    finally:
        await client.close()


@pytest.mark.parametrize("point", ["disk.sync", "disk.write"])
@pytest.mark.parametrize("times", [12, 60])
async def test_nothing_is_acknowledged_after_a_failed_disk(broker: ChaosBroker, point: str, times: int) -> None:
    load = Load()
    # A single failed write may be that of a hint, without which the broker goes on.
    await load_until_it_fails(broker, load, f"{point}=error:EIO@{times}+")
    assert await asyncio.to_thread(broker.wait) == DISK
    last_line = broker.log_tail().rstrip().rpartition("\n")[2]
    assert last_line.startswith("Error: ")
    assert "Input/output error" in last_line
    assert load.acknowledged
    assert not load.acknowledged_after_refusal
    broker.start()
    assert await load.problems(broker.address) == []
    await load.sends(broker.address, 100)
    assert await load.problems(broker.address) == []
    assert broker.stop() == 0


async def test_a_sync_that_fails_while_recovering_ends_the_start(broker: ChaosBroker) -> None:
    load = Load()
    broker.start()
    await load.prepare(broker.address)
    await load.sends(broker.address, 100)
    broker.kill()
    broker.launch("disk.sync=error:EIO@1")
    assert not broker.await_serving()
    assert broker.wait() == DISK
    assert "Input/output error" in broker.log_tail().rstrip().rpartition("\n")[2]
    broker.start()
    assert await load.problems(broker.address) == []
