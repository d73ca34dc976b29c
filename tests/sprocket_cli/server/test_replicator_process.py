"""A replicator beside a broker, as a process of its own."""

import asyncio
from pathlib import Path

import sprocket
from sprocket import Message
from sprocket.testing import Broker
from tests.replicate.clusters import LIMIT_S, config_text


async def test_a_broker_runs_and_ends_its_replicator_whose_failure_does_not_harm_it(tmp_path: Path) -> None:
    file = tmp_path / "replication.toml"
    with Broker() as east, Broker(properties={"replicationConfigPath": str(file)}) as west:
        for broker in (east, west):
            broker.create_topic("Orders", 1)
        async with asyncio.timeout(LIMIT_S), sprocket.connect(west.namesrv) as there:
            await there.producer().send(Message("Own", b"served without the file"))
            log = west.store / "replicator.log"
            while "replication.toml" not in (log.read_text() if log.exists() else ""):
                await asyncio.sleep(0.1)
            file.write_text(config_text({"east": east.namesrv, "west": west.namesrv}, ["east>west"]))
            async with sprocket.connect(east.namesrv) as here:
                await here.producer().send(Message("Orders", b"1"))
            async for message in there.consumer("readers", "Orders", consume_from=sprocket.ConsumeFrom.FIRST):
                assert message.body == b"1"
                break
