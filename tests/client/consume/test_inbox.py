"""Consumers that wait for messages, and consumers that stopped."""

import asyncio

from sprocket.client.consume.inbox import Inbox


async def test_reader_that_stops_waiting_is_forgotten() -> None:
    """A consumer of a quiet topic may ask again and again for a short time."""
    inbox = Inbox(asyncio.get_running_loop().time)
    for _ in range(10):
        reader = asyncio.create_task(inbox.take())
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.wait([reader])
    assert not inbox._readers
