"""Producers that send to every broker of the group, and write down what was acknowledged, by whom and when."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.send import SendMessageResponseHeader
from tests.chaos.queue_checker import QueueChecker
from tests.send_headers import send_header
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.profile import LISTEN_PORT

TOPIC: Final = "Orders"
QUEUES: Final = 2
_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True)
class Acked:
    """One acknowledged message: who acknowledged it, and when its request left and its answer arrived, s."""

    key: str
    ip: str
    sent_s: float
    heard_s: float


class Senders:
    """One task for each broker, in one process.  A second master would find somebody to acknowledge to."""

    def __init__(self, machine: Machine, brokers: Sequence[str]) -> None:
        """`brokers` are the addresses of their machines."""
        self.acked: list[Acked] = []
        self.checker = QueueChecker()
        self.answers: dict[str, int] = {}
        self._machine = machine
        self._brokers = brokers
        self._rng = machine.scheduler.rng
        self._numbers = iter(range(1 << 40))
        self.process = machine.start_process()
        self.process.call_soon(self._begin)

    def _begin(self) -> None:
        for ip in self._brokers:
            self.process.create_task(self._send(ip)).add_done_callback(lambda task: task.result())

    async def _send(self, ip: str) -> None:
        client, now = RemotingClient(connect_timeout_s=0.5), self._machine.monotonic
        while True:
            await asyncio.sleep(self._rng.uniform(0.005, 0.06))
            key = f"k{next(self._numbers)}"
            header = send_header(TOPIC, queue_id=self._rng.randrange(QUEUES), default_topic_queue_nums=QUEUES)
            body = (key + "." * self._rng.randrange(1, 300)).encode()
            self.checker.unknown.add(key)
            sent_s = now()
            try:
                answer = await client.invoke(
                    f"{ip}:{LISTEN_PORT}", RequestCode.SEND_MESSAGE_V2, header, body, timeout_s=_TIMEOUT_S
                )
            except (ClientError, ProtocolError):
                self._count("lost")
                continue
            self._count(ResponseCode(answer.code).name)
            if answer.code == ResponseCode.SUCCESS:
                told = answer.header(SendMessageResponseHeader)
                self.checker.on_acknowledged(key, told.queue_id, told.queue_offset)
                self.acked.append(Acked(key, ip, sent_s, now()))

    def _count(self, outcome: str) -> None:
        self.answers[outcome] = self.answers.get(outcome, 0) + 1
