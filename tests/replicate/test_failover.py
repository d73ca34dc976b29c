"""A failover and the way back, as the operator types it."""

import asyncio
import json
from itertools import permutations
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import sprocket
from replicate.cluster import Cluster
from replicate.config import Config, load_config
from replicate.records import Link, Record, link_key
from replicate.service import Replication
from sprocket import Message
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.clock import SystemClock
from sprocket.testing import Broker
from sprocket_cli.main import main
from tests.replicate.clusters import config_text, replicating
from tests.waiting import until


def _file(path: Path, one: Broker, other: Broker) -> Path:
    links = "".join(
        f'[[links]]\nsource = "{source}"\ntarget = "{target}"\ncheckpoint-s = 0.2\noffsets-s = 0.2\n'
        for source, target in (("east", "west"), ("west", "east"))
    )
    clusters = f'[clusters.east]\nnamesrv = "{one.namesrv}"\n[clusters.west]\nnamesrv = "{other.namesrv}"\n'
    path.write_text('home = "east"\n' + clusters + links)
    return path


async def _type(path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    command = ["replicate", words[0], "--config", str(path), *words[1:], "--json"]
    done = await asyncio.to_thread(CliRunner().invoke, main, command)
    assert done.stdout, done.stderr
    return done.exit_code, json.loads(done.stdout)


async def _send(broker: Broker, body: bytes) -> None:
    async with sprocket.connect(broker.namesrv) as mq:
        await mq.producer().send(Message("Orders", body))


async def _read(broker: Broker, group: str, last: bytes) -> list[bytes]:
    found = []
    async with sprocket.connect(broker.namesrv) as mq, asyncio.timeout(30):
        async for message in mq.consumer(group, "Orders", consume_from=sprocket.ConsumeFrom.FIRST):
            await message.ack()
            found.append(message.body)
            if message.body == last:
                break
    return found


async def test_a_lost_cluster_is_replaced_and_comes_back(tmp_path: Path) -> None:
    with Broker(tmp_path / "east") as east, Broker(tmp_path / "west") as west:
        path = _file(tmp_path / "pair.toml", east, west)
        config: Config = load_config(path)
        east.create_topic("Orders", 1)
        for number in range(10):
            await _send(east, b"east %d" % number)
        async with replicating(config) as replication:
            forward = replication.links[0].copiers
            await until(lambda: sum(copier.copied for copier in forward.values()) >= 10)
            assert await _read(east, "workers", b"east 4") == [b"east %d" % number for number in range(5)]
            async with sprocket.connect(west.namesrv) as mq:
                while not await _has_offset(mq, 5):
                    await asyncio.sleep(0.05)

            status, report = await _type(path, "failover", "--to", "west", "--source-lost")
            assert status == 1 and "not lost" in report["refused"]
            status, report = await _type(path, "failback")
            assert status == 1 and "nothing to fail back" in report["refused"]
            status, report = await _type(path, "rehearse")
            assert status == 0 and report["after"]["active"] == "west"
            assert [group["targetOffset"] for group in report["links"][0]["groups"] if group["topic"] == "Orders"] == [
                5
            ]
            status, report = await _type(path, "failover", "--to", "west")
            assert status == 0 and report["after"]["phase"] == "failed-over"

            await until(lambda: not replication.links[0].is_copying())
            await _send(east, b"late")  # a producer that was not stopped
            assert await _read(west, "workers", b"east 9") == [b"east %d" % number for number in range(5, 10)]
            await _send(west, b"west 0")
            status, report = await _type(path, "failback", "--finish")
            assert status == 1 and "not returning yet" in report["refused"]
            assert (await _type(path, "failback"))[0] == 0
            await until(lambda: sum(copier.copied for copier in forward.values()) >= 11)
            await _read(west, "workers", b"late")
            async with asyncio.timeout(60):
                while (await _type(path, "failback", "--finish"))[0]:
                    await asyncio.sleep(0.2)
            await _send(east, b"home")
            assert (await _read(east, "workers", b"home")) == [b"home"]


async def test_status_says_who_copies_and_which_cluster_does_not_answer(tmp_path: Path) -> None:
    async def said(word: str) -> tuple[int, str]:
        done = await asyncio.to_thread(CliRunner().invoke, main, ["replicate", word, "--config", str(path)])
        return done.exit_code, done.stdout

    with Broker(tmp_path / "east") as east, Broker(tmp_path / "west") as west:
        path = _file(tmp_path / "pair.toml", east, west)
        status, text = await said("status")
        assert status == 1 and text.count("no replicator has copied anything yet") == 2
        async with Cluster("west", ClientSettings(namesrv=west.namesrv), SystemClock()) as target:
            await target.open_table(create=True)
            # As a replicator of an older version, which says no more.
            await target.put(link_key("east"), Record(link=Link("east", forwards=True, target="west")))
        status, text = await said("status")
        assert "east > west: nothing is missing; not known whether a replicator copies" in text
        assert text.count("no replicator has copied anything yet") == 1
        async with replicating(load_config(path)):
            while (await said("status"))[1].count("replicator test copies") < 2:
                await asyncio.sleep(0.1)
            status, text = await said("status")
            assert status == 0
            assert "east > west: nothing is missing; replicator test copies" in text
            status, text = await said("rehearse")
            assert status == 0 and "`failover --to west`, and it is possible" in text and "Nothing is changed" in text
            east.kill()
            status, text = await said("status")
            assert status == 1 and "west > east: not known, east does not answer: " in text
            assert "east > west: nothing is missing; the source does not answer" in text


async def test_no_step_goes_to_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    with Broker(tmp_path / "east") as east, Broker(tmp_path / "west") as west:
        path = _file(tmp_path / "pair.toml", east, west)
        west.kill()
        for words in (("--source-lost",), ()):
            status, report = await _type(path, "failover", "--to", "west", *words)
            assert status == 1 and report["refused"].startswith("west does not answer; start its brokers")
        status, report = await _type(path, "rehearse")
        assert status == 1 and report["after"] is None and report["before"]["active"] == "east"


async def test_two_clusters_of_a_mesh_are_a_pair(tmp_path: Path) -> None:
    def has_read(replication: Replication, count: int) -> bool:
        queues = [each for link in replication.links for each in link.copiers.items() if each[0].topic == "Orders"]
        origins = [copier.position.origins for _, copier in queues]
        return len(queues) == 6 and all(each is not None and each.end == count for each in origins)

    with Broker() as east, Broker() as west, Broker() as north:
        names = {"east": east.namesrv, "west": west.namesrv, "north": north.namesrv}
        links = [f"{source}>{target}" for source, target in permutations(names, 2)]
        path, ring = tmp_path / "mesh.toml", tmp_path / "ring.toml"
        path.write_text(config_text(names, links, "forward = false"))
        ring.write_text(config_text(names, ["east>west", "west>north", "north>east"]))
        pair = "--pair", "east", "west"
        async with replicating(load_config(path)) as replication:
            east.create_topic("Orders", 1)
            for number in range(4):
                await _send(east, b"east %d" % number)
            await until(lambda: has_read(replication, 4))
            await _send(north, b"north 0")
            await until(lambda: has_read(replication, 5))
            assert await _read(east, "workers", b"east 2") == [b"east 0", b"east 1", b"east 2"]
            async with sprocket.connect(west.namesrv) as mq:
                while not await _has_offset(mq, 3):
                    await asyncio.sleep(0.05)

            assert "name two of the clusters with --pair" in await _refused(path, "failover", "--to", "west")
            assert "no link each way" in await _refused(ring, "failover", "--to", "west", *pair)
            assert "use one of" in await _refused(path, "failover", "--to", "south", *pair)
            status, report = await _type(path, "failover", "--to", "west", *pair)
            assert status == 0 and report["after"]["active"] == "west"
            await until(lambda: not replication.links[0].is_copying())
            assert await _read(west, "workers", b"north 0") == [b"east 3", b"north 0"]
            refused = await _refused(path, "failover", "--to", "north", "--pair", "west", "north", "--source-lost")
            assert "west took over from east" in refused and "--pair east west" in refused
            assert "--pair east west" in await _refused(path, "failback", "--pair", "west", "east")

            await _send(west, b"west 0")
            assert (await _type(path, "failback", *pair))[0] == 0
            await _read(west, "workers", b"west 0")
            await until(lambda: has_read(replication, 6))
            async with asyncio.timeout(60):
                while (await _type(path, "failback", "--finish", *pair))[0]:
                    await asyncio.sleep(0.2)
            await _send(east, b"home")
            assert (await _read(east, "workers", b"home"))[-1] == b"home"
            north.kill()  # a third cluster that is lost is in nobody's way
            status, report = await _type(path, "rehearse", *pair)
            assert status == 0 and report["after"]["active"] == "west"
            east.kill()
            status, report = await _type(path, "failover", "--to", "west", "--source-lost", *pair)
            assert status == 0 and report["after"]["phase"] == "failed-over"


async def _refused(path: Path, *words: str) -> str:
    """Return why a step is refused: by a report, or for its options."""
    done = await asyncio.to_thread(CliRunner().invoke, main, ["replicate", words[0], "--config", str(path), *words[1:]])
    assert done.exit_code
    return done.stdout + done.stderr


async def _has_offset(mq: sprocket.Connection, offset: int) -> bool:
    try:
        stats = await mq.admin.consume_stats("workers", "Orders")
    except sprocket.ClientError:
        return False
    return any(each.consumer_offset == offset for each in stats.offset_table.values())
