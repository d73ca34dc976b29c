"""SIGKILL of a broker while idempotent messages are sent and repeated: each acknowledged id is in the log once."""

import asyncio
import random
from pathlib import Path

import pytest

from sprocket.remoting.client import RemotingClient
from tests.chaos.kills.idempotent_sends import IdempotentSends
from tests.chaos.load import PROPERTIES, QUEUES, TOPIC, beside, create_topic
from tests.chaos.nursery import ChaosBroker, Nursery

KILLS = 6


@pytest.mark.parametrize(("flush", "seed"), [("SYNC_FLUSH", 7), ("ASYNC_FLUSH", 8)])
@pytest.mark.timeout(120)
async def test_killed_while_ids_are_sent_and_repeated(nursery: Nursery, tmp_path: Path, flush: str, seed: int) -> None:
    dice, sends = random.Random(seed), IdempotentSends(seed)
    with ChaosBroker(nursery, tmp_path, {**PROPERTIES, "flushDiskType": flush}) as broker:
        for number in range(KILLS):
            broker.start()
            if number == 0:
                client = RemotingClient()
                await create_topic(client, broker.address, TOPIC, QUEUES)
                await client.close()

            async def kill_soon() -> None:
                # The short ones hit the reading of the window from the log.
                await asyncio.sleep(dice.choice((dice.uniform(0.0, 0.03), dice.uniform(0.05, 0.4))))
                broker.kill()

            await beside(kill_soon(), sends.until_dead(broker.address))
        broker.start()
        assert await sends.problems(broker.address) == [], f"seed {seed}"
        assert len(sends.places) > KILLS, "hardly an id was acknowledged: the test shows nothing"
        if flush == "SYNC_FLUSH":
            # Answers wait for the disk, so every kill leaves messages that are stored and not answered.
            assert sends.kept_unanswered > 0
        assert broker.stop() == 0
