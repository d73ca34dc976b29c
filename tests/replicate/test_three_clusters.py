"""Groups that move in a mesh and in a ring of three real clusters."""

import asyncio
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner

import sprocket
from replicate.config import load_config
from replicate.service import Replication
from sprocket import Message
from sprocket.testing import Broker
from sprocket_cli.main import main
from tests.replicate.clusters import LIMIT_S, config_of, config_text, replicating
from tests.waiting import until

_MESH = [f"{source}>{target}" for source, target in permutations("abc", 2)], "forward = false"
_RING = ["a>b", "b>c", "c>a"], ""


@pytest.fixture
def brokers() -> Iterator[dict[str, Broker]]:
    with Broker() as one, Broker() as two, Broker() as three:
        yield dict(zip("abc", (one, two, three), strict=True))


async def _send(broker: Broker, topic: str, bodies: list[bytes]) -> None:
    async with sprocket.connect(broker.namesrv) as mq:
        for body in bodies:
            await mq.producer().send(Message(topic, body))


async def _read(broker: Broker, topic: str, count: int) -> list[bytes]:
    """Return the next messages of the group."""
    found: list[bytes] = []
    async with sprocket.connect(broker.namesrv) as mq, asyncio.timeout(LIMIT_S):
        async for message in mq.consumer(f"of-{topic}", topic, consume_from=sprocket.ConsumeFrom.FIRST):
            await message.ack()
            found.append(message.body)
            if len(found) == count:
                break
    return found


async def _moved_to(broker: Broker, topic: str, offset: int) -> None:
    async with sprocket.connect(broker.namesrv) as mq, asyncio.timeout(LIMIT_S):
        while await _offset(mq, topic) != offset:
            await asyncio.sleep(0.1)


async def _offset(mq: sprocket.Connection, topic: str) -> int | None:
    try:
        stats = await mq.admin.consume_stats(f"of-{topic}", topic)
    except sprocket.ClientError:
        return None
    return max((each.consumer_offset for each in stats.offset_table.values()), default=None)


@pytest.mark.parametrize(("links", "more"), [_MESH, _RING], ids=["mesh", "ring"])
async def test_a_group_that_moves_misses_nothing_of_any_cluster(
    brokers: dict[str, Broker], links: list[str], more: str
) -> None:
    topic = "Mesh" if more else "Ring"
    for broker in brokers.values():
        broker.create_topic(topic, 1)

    def has_all(replication: Replication) -> bool:
        queues = [each for link in replication.links for each in link.copiers.items() if each[0].topic == topic]
        return len(queues) == len(links) and all(
            copier.position.origins is not None and copier.position.origins.end == len(sent) for _, copier in queues
        )

    sent: list[bytes] = []
    config = config_of({name: broker.namesrv for name, broker in brokers.items()}, links, more)
    async with replicating(config) as run:
        for name, broker in brokers.items():
            bodies = [b"%s %d" % (name.encode(), number) for number in range(20)]
            await _send(broker, topic, bodies)
            sent += bodies
            await until(lambda: has_all(run))
        consumed = await _read(brokers["a"], topic, 45)
        assert len(set(consumed)) == 45
        await _moved_to(brokers["b"], topic, 45)
        # Only c sends, which the link from a to b does not copy in the mesh.
        late = [b"late %d" % number for number in range(5)]
        await _send(brokers["c"], topic, late)
        sent += late
        await until(lambda: has_all(run))
        consumed += await _read(brokers["a"], topic, 20)
        await _moved_to(brokers["b"], topic, 65)
    assert sorted(consumed) == sorted(sent)
    await _send(brokers["b"], topic, [b"last"])
    assert await _read(brokers["b"], topic, 1) == [b"last"]
    async with replicating(config):  # the way back: in the ring by c
        await _moved_to(brokers["a"], topic, 66)


async def test_status_counts_the_groups_whose_place_is_not_known(
    brokers: dict[str, Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A replicator says then how many there are; else every 15 s.
    monkeypatch.setattr("replicate.link.RENEW_S", 0.2)
    links, more = _MESH
    path = tmp_path / "mesh.toml"
    names = {name: broker.namesrv for name, broker in brokers.items()}
    path.write_text(config_text(names, links, f'{more}\nstart = "last"\ntopics = ["Begun"]'))

    async def until_said(count: int) -> None:
        text = "groups without an offset in some queue of b, as their place there is not known: "
        wanted = [f"{text}{count}"] if count else []
        async with asyncio.timeout(LIMIT_S):
            while True:
                done = await asyncio.to_thread(CliRunner().invoke, main, ["replicate", "status", "--config", str(path)])
                (line,) = (line for line in done.stdout.splitlines() if line.startswith("a > b: "))
                if "replicator test copies" in line and [p for p in line.split("; ") if p.startswith(text)] == wanted:
                    return
                await asyncio.sleep(0.1)

    for broker in brokers.values():
        broker.create_topic("Begun", 1)
    # Links that start at the end do not read these, so what a group before it has consumed is not known.
    await _send(brokers["a"], "Begun", [b"%d" % number for number in range(10)])
    await _read(brokers["a"], "Begun", 5)
    async with replicating(load_config(path)) as run:
        await until(lambda: all(any(each.topic == "Begun" for each in link.copiers) for link in run.links))
        await until_said(1)
        await _read(brokers["a"], "Begun", 5)
        await until_said(0)
        await _moved_to(brokers["b"], "Begun", 0)
