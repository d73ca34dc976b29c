"""SIGKILL of a proxy's process, twice, while a client sends, handles and acknowledges: nothing is missing."""

import asyncio
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import sprocket
from sprocket import Message, ReceivedMessage, SendFailed
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import ProxyProcess

pytestmark = pytest.mark.unsteady(reason="kills and starts processes beside a client with real clocks")
_MESSAGES, _KILLS_AFTER, _LIMIT_S = 60, (15, 35), 90


@pytest.mark.slow
async def test_nothing_is_missing_after_two_kills(broker: Broker, topic: str, tmp_path: Path) -> None:
    handled: Counter[str] = Counter()
    sent: list[str] = []
    # One thread for all starts: a proxy ends with the thread that started it.
    with ThreadPoolExecutor(1) as starter:
        loop = asyncio.get_running_loop()
        proxy = ProxyProcess(broker, tmp_path / "proxy", {"minInvisibleTimeMillsForRecv": "1000"})
        await loop.run_in_executor(starter, proxy.start)

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.02)
            handled[message.message_id] += 1

        async def send() -> None:
            while len(sent) < _MESSAGES:
                try:
                    result = await producer.send(Message(topic, b"%d" % len(sent)), timeout_s=5)
                except SendFailed:
                    continue
                sent.append(result.message_id)
                await asyncio.sleep(0.02)

        try:
            async with sprocket.connect(f"grpc://{proxy.endpoints}") as mq, asyncio.timeout(_LIMIT_S):
                producer, consumer = mq.producer(), mq.consumer("group-killed", topic)
                await mq.simple_consumer("group-killed", topic).receive(1, wait_s=0.1)
                handling, sending = asyncio.create_task(consumer.run(handle)), asyncio.create_task(send())
                for count in _KILLS_AFTER:
                    while len(sent) < count:
                        await asyncio.sleep(0.01)
                    await loop.run_in_executor(starter, proxy.end, signal.SIGKILL)
                    await loop.run_in_executor(starter, proxy.start)
                await sending
                while not handled.keys() >= set(sent):
                    await asyncio.sleep(0.05)
                consumer.stop()
                await handling
        finally:
            await loop.run_in_executor(starter, proxy.end, signal.SIGKILL)
    assert len(sent) == _MESSAGES and handled.keys() >= set(sent)
