"""Rebalance while nothing answers: it goes on trying, and says so once."""

import asyncio
import logging

import pytest

from sprocket import Consumer


async def test_a_failure_that_repeats_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sprocket.client.rebalance"):
        async with Consumer("g", {"T": "*"}, "127.0.0.1:1") as consumer:
            rounds = consumer._rebalance
            for _ in range(3):
                await rounds.once()
            await asyncio.sleep(0)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("topic=T reason=" in message for message in messages) == 1
