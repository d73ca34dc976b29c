"""A slave whose master is killed, in processes of their own: how far groups go back, and a log that its master lost.

`python -m tests.chaos.replication.test_surviving_slave ROUNDS` kills so many masters and says how far groups went back.
"""

import asyncio
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.rig import TOPIC, TestClient, create
from tests.compat.ports import free_broker_port
from tests.sprocket_cli.programs import BROKER_FLAGS, ServerProcess, server

GROUPS, MESSAGES, PROMISED_S = 50, 400, 1.0


@dataclass
class Pair:
    """The addresses and folders of a master and its slave, and the name server that both know."""

    root: Path
    namesrv: str
    master_port: int = field(default_factory=free_broker_port)

    @property
    def master_address(self) -> str:
        return f"127.0.0.1:{self.master_port}"

    @contextlib.contextmanager
    def run(self, name: str, *settings: str) -> Iterator[ServerProcess]:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        values = [*settings, "brokerIP2=127.0.0.1", "registerNameServerPeriod=10000", f"storePathRootDir={folder}/s"]
        flags = [flag for value in values for flag in ("--set", value)]
        with server(folder, "broker", "-n", self.namesrv, *BROKER_FLAGS, *flags) as process:
            yield process

    def master(self) -> contextlib.AbstractContextManager[ServerProcess]:
        return self.run("master", f"listenPort={self.master_port}")

    def slave(self) -> contextlib.AbstractContextManager[ServerProcess]:
        return self.run("slave", "brokerRole=SLAVE", "brokerId=1")


@contextlib.contextmanager
def pair(root: Path) -> Iterator[Pair]:
    with server(root, "namesrv", "--set", "listenPort=0") as name_server:
        yield Pair(root, f"127.0.0.1:{name_server.port}")


async def until(holds: Callable[[], Awaitable[bool]], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not await holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


async def committed(client: RemotingClient, address: str, group: str) -> int:
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=TOPIC, queue_id=0)
    answer = await client.invoke(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    found = answer.code == ResponseCode.SUCCESS
    return answer.header(QueryConsumerOffsetResponseHeader).offset if found else -1


async def end_of(client: RemotingClient, address: str) -> int:
    answer = await client.invoke(
        address, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0)
    )
    return answer.header(GetMaxOffsetResponseHeader).offset if answer.code == ResponseCode.SUCCESS else -1


async def commit_until_dead(client: RemotingClient, address: str) -> dict[str, list[tuple[float, int]]]:
    """Commit one offset after the other for every group; when each was acknowledged."""
    acknowledged: dict[str, list[tuple[float, int]]] = {f"group-{number}": [] for number in range(GROUPS)}
    with contextlib.suppress(ClientError):
        for offset in range(1, MESSAGES + 1):
            headers = {
                group: UpdateConsumerOffsetRequestHeader(
                    consumer_group=group, topic=TOPIC, queue_id=0, commit_offset=offset
                )
                for group in acknowledged
            }
            for group, header in headers.items():
                answer = await client.invoke(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                acknowledged[group].append((time.monotonic(), offset))
            await asyncio.sleep(0.002)
    return acknowledged


async def rollback_s(both: Pair, dice: random.Random) -> float:
    """How long ago the newest commits were that the slave does not know when its master is killed, the worst group."""
    client = RemotingClient()
    try:
        with both.master() as master, both.slave() as slave:
            slave_address = f"127.0.0.1:{slave.port}"
            own = TestClient(both.master_address)
            await own.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
            for number in range(GROUPS):
                config = dumps(SubscriptionGroupConfig(f"group-{number}"))
                await own.ask_well(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config)
            for number in range(MESSAGES):
                await own.send(b"%d" % number)
            await own.close()

            async def has_all() -> bool:
                return await end_of(client, slave_address) == MESSAGES

            await until(has_all)
            committing = asyncio.ensure_future(commit_until_dead(client, both.master_address))
            await asyncio.sleep(dice.uniform(1.2, 2.0))
            killed_at = time.monotonic()
            master.stop(signal.SIGKILL)
            acknowledged = await committing
            assert sum(map(len, acknowledged.values())) > GROUPS
            worst = 0.0
            for group, commits in acknowledged.items():
                known = await committed(client, slave_address, group)
                unknown = [at for at, offset in commits if offset > known and at <= killed_at]
                worst = max(worst, killed_at - min(unknown) if unknown else 0.0)
            return worst
    finally:
        await client.close()


async def test_a_group_goes_back_by_no_more_than_a_second(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        assert await rollback_s(both, random.Random(1)) < PROMISED_S


async def test_a_slave_process_gives_up_what_its_master_lost_by_itself(tmp_path: Path) -> None:
    client = RemotingClient()

    async def send(bodies: range) -> None:
        own = TestClient(both.master_address)
        for number in bodies:
            await own.send(b"%03d" % number * 10)
        await own.close()

    async def has(count: int) -> bool:
        with contextlib.suppress(ClientError):
            return await end_of(client, f"127.0.0.1:{slave.port}") == count
        return False

    with pair(tmp_path) as both:
        with both.master() as master:
            await send(range(5))
            master.stop()
        shutil.copytree(tmp_path / "master", tmp_path / "early")
        with both.master() as master, contextlib.ExitStack() as stack:
            slave = stack.enter_context(both.slave())
            await send(range(5, 20))
            await until(lambda: has(20))
            master.stop(signal.SIGKILL)
            shutil.rmtree(tmp_path / "master")
            (tmp_path / "early").rename(tmp_path / "master")
            master = stack.enter_context(both.master())
            await send(range(500, 503))
            # It restarts, and logs another line.
            assert slave.process.stdout is not None
            line = await asyncio.wait_for(asyncio.to_thread(slave.process.stdout.readline), 60)
            slave.facts = json.loads(line)
            await until(lambda: has(8))
            assert (tmp_path / "slave" / "s" / "cut").is_dir()
            assert "event=restart" in slave.log.read_text()
            master.stop()
            assert slave.stop() == 0
        logs = [tmp_path / name / "s" / "commitlog" / f"{0:020}" for name in ("master", "slave")]
        ours, theirs = (log.read_bytes().rstrip(b"\0") for log in logs)
        assert ours == theirs
    await client.close()


def main(rounds: int) -> None:
    """Kill so many masters."""
    found = []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder, pair(Path(folder)) as both:
            found.append(asyncio.run(rollback_s(both, random.Random(number))))
    print(f"rounds={rounds} worst_s={max(found):.3f} median_s={sorted(found)[len(found) // 2]:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
