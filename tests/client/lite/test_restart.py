"""Lite topics survive a restarted broker: the set of lite topics is told again, and positions are kept."""

import asyncio
from pathlib import Path

import pytest

import sprocket
from sprocket import AdminClient, ClientError
from sprocket.testing import Broker
from tests.client.lite.rig import Channels
from tests.proxy.rig import running


async def talk(address: str, broker: Broker, channels: Channels) -> None:
    """A session reads before and after a crash of the broker."""
    async with sprocket.connect(address) as mq, asyncio.timeout(90):
        session = mq.session("chat", topic=channels.topic, group=channels.exclusive)
        await session.send(b"before")
        assert (await anext(session)).body == b"before"
        waiting = asyncio.create_task(session.receive())  # which acknowledges it
        await asyncio.sleep(0.5)  # positions are flushed in a second at most, and repeated otherwise
        broker.kill()
        await asyncio.to_thread(broker.start)
        while True:
            try:
                await session.send(b"after")
                break
            except ClientError:
                await asyncio.sleep(0.2)
        seen = []
        while b"after" not in seen:
            message = await waiting
            assert message is not None
            seen.append(message.body)
            waiting = asyncio.create_task(session.receive())
        # A position that was not flushed means a repetition, never a loss.
        assert [body for body in seen if body != b"before"][:1] == [b"after"]
        waiting.cancel()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", ["remoting", "grpc"])
async def test_a_session_goes_on_after_a_crash_of_the_broker(tmp_path: Path, way: str) -> None:
    channels = Channels(0)
    with Broker(tmp_path) as broker:
        async with AdminClient(broker.namesrv) as admin:
            await channels.create(admin, broker.address)
        if way == "remoting":
            await talk(broker.namesrv, broker, channels)
        else:
            async with running(broker) as rig:
                await talk(f"grpc://127.0.0.1:{rig.port}", broker, channels)
