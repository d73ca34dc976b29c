"""SIGKILL of replicators and of the brokers at both ends, in real processes, under load on both sides.

`python -m tests.chaos.geo.rounds` does the same with more brokers, a bad way between them, and more kinds of faults.
"""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from random import Random

from sprocket.common.errors import ClientError
from sprocket.common.processes.child_process import ChildProcess
from sprocket.remoting.client import RemotingClient
from sprocket.testing import Broker
from tests.chaos.geo.twin_load import TwinLoad, may_pass
from tests.replicate.clusters import LIMIT_S, config_text, replicator

_TOPIC, _QUEUES = "Orders", 2
# Small files, and every acknowledged message on the disk.
_PROPERTIES = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": str(4 << 20)}
_MESSAGES = 100  # acknowledged in each step, so that each kill meets copies


async def test_nothing_is_lost_doubled_or_reordered_by_kills_of_replicators_and_brokers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = {name: stack.enter_context(Broker(properties=_PROPERTIES)) for name in ("east", "west")}
        for broker in brokers.values():
            broker.create_topic(_TOPIC, _QUEUES)
        text = config_text({name: broker.namesrv for name, broker in brokers.items()}, ["east>west", "west>east"])
        first, second = (replicator(tmp_path / name, text, name) for name in ("first", "second"))
        for process in (first, second):
            stack.callback(process.end, signal.SIGKILL)
            process.launch()
        client = RemotingClient(connect_timeout_s=1.0)
        addresses = {name: [broker.address] for name, broker in brokers.items()}
        load = TwinLoad(addresses, _TOPIC, _QUEUES, client, Random(1))
        load.start()
        try:
            await _kill(brokers, first, second, load)
        finally:
            await load.stop()
        await _until_equal(load)
        await client.close()


async def _kill(brokers: dict[str, Broker], first: ChildProcess, second: ChildProcess, load: TwinLoad) -> None:
    await _sent(load)
    _restart_replicator(first)
    await _sent(load)
    await _restart_broker(brokers["west"])
    _restart_replicator(second)
    await _sent(load)
    await _restart_broker(brokers["east"])
    await _sent(load)
    for process in (first, second):
        process.end(signal.SIGKILL)
    for broker in brokers.values():
        broker.kill()
    for broker in brokers.values():
        await asyncio.to_thread(broker.start)
    for process in (first, second):
        process.launch()
    await _sent(load)


async def _sent(load: TwinLoad) -> None:
    """Wait until both sides have acknowledged some messages more."""
    wanted = {name: len(keys) + _MESSAGES for name, keys in load.acknowledged.items()}
    async with asyncio.timeout(LIMIT_S):
        while any(len(load.acknowledged[name]) < count for name, count in wanted.items()):
            await asyncio.sleep(0.01)


def _restart_replicator(process: ChildProcess) -> None:
    process.end(signal.SIGKILL)
    process.launch()


async def _restart_broker(broker: Broker) -> None:
    broker.kill()
    await asyncio.to_thread(broker.start)


async def _until_equal(load: TwinLoad) -> None:
    found = ["nothing was checked"]
    try:
        async with asyncio.timeout(LIMIT_S):
            while found:
                try:
                    found = await load.problems(is_whole=True)
                except ClientError as error:
                    found = [str(error)]
                assert all(may_pass(one) for one in found), found
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError("\n".join(found)) from None
