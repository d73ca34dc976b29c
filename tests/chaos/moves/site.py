"""Three brokers and a name server in processes of their own, and the tool, each of which can be killed at any line."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.static_topics import StaticTopics
from sprocket.client.connection.topic_route import topic_route
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.static_topic.logical_queues import all_queues
from sprocket.static_topic.unfinished import is_unfinished
from tests.chaos.load import PROPERTIES
from tests.chaos.nursery import ChaosBroker, ChaosNameServer, Nursery

BROKERS: Final = ("broker-a", "broker-b", "broker-c")
_PROPERTIES: Final = {**PROPERTIES, "autoCreateSubscriptionGroup": "true", "mappedFileSizeCommitLog": "4194304"}
_NAMES: Final = {"orderMessageEnable": "true"}
_MAX_TRIES: Final = 12
_TOOL_LIMIT_S: Final = 90.0

# Called with the number of each line that the tool prints; True: the tool is killed now.
OnLine = Callable[[int], Awaitable[bool]]


class MovingSite:
    """The servers.  A context manager that starts and kills them."""

    def __init__(self, nursery: Nursery, folder: Path, flush: str = "SYNC_FLUSH") -> None:
        self._nursery = nursery
        self._folder = folder
        self._flush = flush
        self._stack = AsyncExitStack()
        self.brokers: dict[str, ChaosBroker] = {}
        self.namesrv = ""

    async def __aenter__(self) -> Self:
        names = self._stack.enter_context(ChaosNameServer(self._nursery, self._folder / "names", _NAMES))
        names.start()
        self.namesrv = names.address
        for name in BROKERS:
            own = {**_PROPERTIES, "brokerName": name, "namesrvAddr": self.namesrv, "flushDiskType": self._flush}
            broker = ChaosBroker(self._nursery, self._folder / name, own)
            self.brokers[name] = self._stack.enter_context(broker)
            broker.start()
        self.admin = await self._stack.enter_async_context(AdminClient(self.namesrv))
        await self.admin.wait_for_broker("DefaultCluster", len(BROKERS), within_s=60)
        self.topics = StaticTopics(self.admin, wall_ms=lambda: 0, random=lambda: 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def kill_and_start(self, name: str) -> None:
        """SIGKILL of a broker; it is back when this returns, at another address."""
        broker = self.brokers[name]
        broker.kill()
        await asyncio.to_thread(broker.start)
        while not await self._is_registered(name, broker.address):
            await asyncio.sleep(0.02)

    async def _is_registered(self, name: str, address: str) -> bool:
        data = (await self.admin.cluster_info()).broker_addr_table.get(name)
        return data is not None and data.broker_addrs.get(0) == address

    async def run(self, *arguments: str, on_line: OnLine | None = None) -> tuple[int, list[str]]:
        """Run `sprocket` once; its exit status and its lines."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", "sprocket_cli", *arguments, "-n", self.namesrv, cwd=self._folder,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env={"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        assert process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(_TOOL_LIMIT_S):
                async for line in process.stdout:
                    lines.append(line.decode().rstrip())
                    if on_line is not None and await on_line(len(lines)) and process.returncode is None:
                        process.kill()
                return await process.wait(), lines
        except TimeoutError:
            raise AssertionError(f"{arguments} did not end in {_TOOL_LIMIT_S} s:\n" + "\n".join(lines)) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def done(self, *arguments: str, on_line: OnLine | None = None) -> list[str]:
        """Run `sprocket` until it succeeds; all its lines.  Only the first run is disturbed."""
        lines: list[str] = []
        for attempt in range(_MAX_TRIES):
            status, said = await self.run(*arguments, on_line=on_line if attempt == 0 else None)
            lines += said
            if status == 0:
                return lines
            await asyncio.sleep(0.1)
        raise AssertionError(f"{arguments} failed {_MAX_TRIES} times:\n" + "\n".join(lines))

    async def leaders(self, topic: str) -> dict[int, str]:
        """The leader of each logical queue, by the brokers' own tables, which must agree."""
        configs = await self.topics.configs(topic)
        assert set(configs) == set(BROKERS)
        assert not is_unfinished(topic, configs)
        queues = all_queues(configs)
        for broker, config in configs.items():
            assert config.mapping_detail is not None
            for number, items in config.mapping_detail.hosted_queues.items():
                newest = {item.gen: item for item in queues[int(number)].items}
                assert all(newest.get(item.gen, item) == item for item in items), (broker, number)
        shown = (await self.admin.topic_route(topic)).topic_queue_mapping_by_broker or {}
        found = {number: queue.leader for number, queue in queues.items()}
        assert found == {int(each): name for name, info in shown.items() for each in info.curr_id_map or ()}
        return found

    async def make(self, topic: str, kind: str, queues: int) -> None:
        """Create a plain topic with so many queues on each broker, or a static one with as many in all.

        Of an ordered one the name server knows the queues: without a broker, keys do not choose others.
        """
        if kind == "static":
            plan = await self.topics.creation(topic, queues * len(BROKERS), BROKERS, {})
            await self.topics.create(topic, plan)
            return
        for broker in self.brokers.values():
            await self.admin.create_topic(broker.address, TopicConfig(topic, queues, queues))
        if kind == "ordered":
            await self.admin.set_order_conf(topic, dict.fromkeys(BROKERS, queues), whole=True)

    async def queues(self, topic: str) -> int:
        """The number of queues that keys choose from, by the route."""
        return len(topic_route(topic, await self.admin.topic_route(topic)).publish)

    async def attributes(self, topic: str, name: str) -> set[str]:
        """The values that brokers have for an attribute of a topic."""
        configs = (await self.topics.configs(topic)).values()
        return {config.attributes[name] for config in configs if name in config.attributes}
