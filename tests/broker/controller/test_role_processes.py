"""Replicas in processes that are killed at any moment, also in the middle of a change of their role."""

import asyncio
import contextlib
import json
import random
import statistics
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sprocket.common.errors import ClientError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.message.properties import encode
from tests.broker.controller.rig import group
from tests.broker.rig import TOPIC, TestClient, records
from tests.compat.ports import free_broker_port
from tests.send_headers import send_header
from tests.waiting import until

_ROUNDS = 10
# A message that only the master has is stored, and not acknowledged: no other replica is there.
_STORED = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)


class ReplicaProcess:
    """One replica, which may be killed and started again."""

    def __init__(self, root: Path, broker_id: int) -> None:
        self._root = root
        self.id = broker_id
        self.port = free_broker_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.broker.controller.replica_process", str(self._root), str(self.id),
            str(self.port), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert await self._answer() == "ready"

    async def _answer(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(60):
            return (await self._process.stdout.readline()).decode().strip()

    async def do(self, **asked: object) -> float:
        """Ask for a change, and return how long it took, ms; -1 if the process died."""
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()
        return float(await self._answer() or -1)

    async def kill(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(60):
            assert await self._process.wait() == 0


class Pair:
    """Two processes, one sender, and the decisions."""

    def __init__(self, root: Path) -> None:
        self.replicas = {number: ReplicaProcess(root, number) for number in (1, 2)}
        self.master = 1
        self.epoch = 0
        self.acknowledged: list[int] = []
        self.stored = 0
        self._is_running = True

    async def start(self) -> None:
        for replica in self.replicas.values():
            await replica.start()

    def other(self) -> ReplicaProcess:
        return self.replicas[3 - self.master]

    async def lead(self) -> float:
        self.epoch += 1
        return await self.replicas[self.master].do(do="lead", epoch=self.epoch, address="")

    async def follow(self) -> float:
        return await self.other().do(do="follow", epoch=self.epoch, address=self.replicas[self.master].address)

    async def send(self) -> None:
        """Send numbered messages to the present master, until the end."""
        clients = {number: TestClient(replica.address) for number, replica in self.replicas.items()}
        number = 0
        while self._is_running:
            text = encode({"UNIQ_KEY": f"{number:032X}"})
            header = send_header(TOPIC, queue_id=0, flag=7, properties=text)
            code = -1
            with contextlib.suppress(ClientError):
                client = clients[self.master].remoting
                answer = await client.invoke(
                    clients[self.master].address, RequestCode.SEND_MESSAGE_V2, header, b"%d" % number, timeout_s=2
                )
                code = answer.code
            if code == ResponseCode.SUCCESS:
                self.acknowledged.append(number)
            if code in _STORED:
                self.stored += 1
            await asyncio.sleep(0.002)
            number += 1
        for client in clients.values():
            await client.close()

    async def in_sync(self) -> None:
        """Wait until both replicas take part in acknowledgements."""
        wanted = len(self.acknowledged) + 5
        await until(lambda: len(self.acknowledged) >= wanted)

    def end(self) -> None:
        self._is_running = False


@asynccontextmanager
async def pair(root: Path) -> AsyncIterator[Pair]:
    it = Pair(root)
    try:
        await it.start()
        yield it
    finally:
        it.end()
        for replica in it.replicas.values():
            await replica.kill()


async def test_replicas_that_are_killed_at_any_moment_lose_nothing_acknowledged(tmp_path: Path) -> None:
    randomly, loop = random.Random(1), asyncio.get_running_loop()
    took_ms: list[float] = []
    async with pair(tmp_path) as it:
        await it.lead()
        await it.follow()
        sending = asyncio.create_task(it.send())
        for round_ in range(_ROUNDS):
            await it.in_sync()
            killed = it.replicas[it.master]
            if round_ % 3 == 2:
                # In the middle of its change to a slave: the other one is about to lead.
                changing = asyncio.create_task(killed.do(do="rest"))
                await asyncio.sleep(randomly.uniform(0, 0.06))
                await killed.kill()
                await changing
            else:
                await killed.kill()
            began, before = loop.time(), it.stored
            it.master = it.other().id
            await it.lead()
            await until(lambda before=before: it.stored > before)  # type: ignore[misc]
            took_ms.append((loop.time() - began) * 1000)
            if round_ % 5 == 4:
                # The new master dies in the middle of a change, too, and leads again.
                changing = asyncio.create_task(it.lead())
                await asyncio.sleep(randomly.uniform(0, 0.06))
                await it.replicas[it.master].kill()
                await changing
                await it.replicas[it.master].start()
                await it.lead()
            await it.other().start()
            await it.follow()
        await it.in_sync()
        it.end()
        await sending
        for replica in it.replicas.values():
            await replica.stop()
        master = it.master
    print(f"SIGKILL to the next stored message: median {statistics.median(took_ms):.0f} ms, max {max(took_ms):.0f} ms")
    async with group(tmp_path) as group_:
        await group_.elect(master)
        await group_.in_step()
        for number in (1, 2):
            numbers = [int(bytes(record.body)) for record in records(group_[number].broker, TOPIC)]
            assert numbers == sorted(set(numbers)), "once, and in order"
            assert set(it.acknowledged) <= set(numbers)
    assert len(it.acknowledged) > 5 * _ROUNDS
