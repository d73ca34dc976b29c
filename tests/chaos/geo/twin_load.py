"""Load on the topic that two clusters copy to each other, and what both have of it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.chaos.geo.twin_checker import problems
from tests.chaos.load import read_queue
from tests.send_headers import send_header

_PAUSE_S: Final = 0.02
SEND_LIMIT_S: Final = 3.0


class TwinLoad:
    """Senders to each queue of each broker of `addresses`, which are by cluster and in the order of broker names."""

    def __init__(
        self, addresses: Mapping[str, Sequence[str]], topic: str, queues: int, client: RemotingClient, dice: Random
    ) -> None:
        self.acknowledged: dict[str, set[str]] = {name: set() for name in addresses}
        # What was right already: acknowledged keys, and by cluster and queue the offset after its last message.
        self._checked: dict[str, set[str]] = {name: set() for name in addresses}
        self._checked_to: dict[str, dict[tuple[str, int], int]] = {name: {} for name in addresses}
        self._addresses = addresses
        self._topic = topic
        self._queues = queues
        self._client = client
        self._dice = dice
        self._numbers = iter(range(1 << 40))
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Send to each queue of both clusters from now on."""
        for cluster, addresses in self._addresses.items():
            for address in addresses:
                for queue in range(self._queues):
                    self._tasks.append(asyncio.ensure_future(self._send(cluster, address, queue)))

    async def stop(self) -> None:
        """Stop sending."""
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _send(self, cluster: str, address: str, queue: int) -> None:
        while True:
            key = f"{cluster}-{next(self._numbers)}"
            body = (key + "." * self._dice.randrange(1, 300)).encode()
            header = send_header(self._topic, queue_id=queue, born_timestamp=time.time_ns() // 1_000_000)
            try:
                answer = await self._client.invoke(
                    address, RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=SEND_LIMIT_S
                )
            except ClientError:
                await asyncio.sleep(0.1)
                continue
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged[cluster].add(key)
            await asyncio.sleep(_PAUSE_S)

    async def problems(self, *, is_whole: bool) -> list[str]:
        """Return what is wrong with the topic at both clusters now: all of it, or what came since it was right.

        Raises ClientError, AssertionError.
        """
        if is_whole:
            self._checked = {name: set() for name in self._addresses}
            self._checked_to = {name: {} for name in self._addresses}
        contents = {cluster: await self._contents(cluster) for cluster in self._addresses}
        new = {cluster: keys - self._checked[cluster] for cluster, keys in self.acknowledged.items()}
        found = problems(contents, new)
        if not found:
            self._checked = {cluster: set(keys) for cluster, keys in self.acknowledged.items()}
            for cluster, queues in contents.items():
                for queue, keys in queues.items():
                    self._checked_to[cluster][queue] = self._checked_to[cluster].get(queue, 0) + len(keys)
        return found

    async def _contents(self, cluster: str) -> dict[tuple[str, int], list[str]]:
        found = dict[tuple[str, int], list[str]]()
        for number, address in enumerate(self._addresses[cluster]):
            for queue_id in range(self._queues):
                queue = f"broker-{number}", queue_id
                begin = self._checked_to[cluster].get(queue, 0)
                messages = await read_queue(self._client, address, self._topic, queue_id, begin)
                found[queue] = [key for _, key in messages]
        return found


def may_pass(problem: str) -> bool:
    """Return whether a problem may pass: what is missing may come; what is doubled or in the wrong place stays so."""
    return "twice" not in problem and "before" not in problem
