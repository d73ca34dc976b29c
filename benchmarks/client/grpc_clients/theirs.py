"""Process of RocketMQ's client for Python, as `ours.py`; its environment has that client and not Sprocket.

python theirs.py PROXY TOPIC GROUP
"""

import json
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
)

_BODY = bytes(1024)
_WINDOW = 64
_BATCH = 32


class Client:
    """Producer and consumer of one topic."""

    def __init__(self, proxy: str, topic: str, group: str) -> None:
        configuration = ClientConfiguration(proxy, Credentials())
        self._topic = topic
        self._threads = ThreadPoolExecutor(_BATCH)
        self._producer = Producer(configuration, (topic,))
        self._producer.startup()
        self._consumer = SimpleConsumer(configuration, group, {topic: FilterExpression("*")}, 20)
        self._consumer.startup()
        self._consumer.receive(1, 10)  # a group begins at the end of a topic

    def _message(self) -> Any:
        made = Message()
        made.topic, made.body = self._topic, _BODY
        return made

    def send(self, count: int) -> None:
        for _ in range(count):
            self._producer.send(self._message())

    def send_64(self, count: int) -> None:
        waiting: deque[Any] = deque()
        for _ in range(count):
            if len(waiting) == _WINDOW:
                waiting.popleft().result()
            waiting.append(self._producer.send_async(self._message()))
        for future in waiting:
            future.result()

    def receive(self, count: int) -> None:
        while count > 0:
            for message in self._consumer.receive(min(_BATCH, count), 60) or ():
                self._consumer.ack(message)
                count -= 1

    def receive_together(self, count: int) -> None:
        while count > 0:
            found = self._consumer.receive(min(_BATCH, count), 60) or ()
            # Its `ack_async` returns nothing to wait for, so threads are the way to acknowledge messages together.
            for _ in self._threads.map(self._consumer.ack, found):
                pass
            count -= len(found)

    def shutdown(self) -> None:
        self._producer.shutdown()
        self._consumer.shutdown()


def main(proxy: str, topic: str, group: str) -> None:
    """Answer the parent until it closes our standard input."""
    client = Client(proxy, topic, group)
    print("{}", flush=True)
    while line := sys.stdin.readline():
        what, count = line.split()
        cpu, wall = time.process_time(), time.perf_counter()
        getattr(client, what)(int(count))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        print(json.dumps({"cpu_us": cpu / int(count) * 1e6, "rate": int(count) / wall}), flush=True)
    client.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:4])
