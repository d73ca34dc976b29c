"""A directory with light queues changes hands: Apache RocketMQ's broker and ours take turns on it."""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from store.record.record import Record, decode
from tests.compat import maven, wire
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.directories.turns import ApacheBroker, max_offset, properties

PARENT, GROUP = "Parent", "%LMQ%Readers"
_SEND_MESSAGE_V2, _UPDATE_OFFSET, _QUERY_OFFSET, _CREATE_GROUP = 310, 15, 14, 200
_FOUND, _NOT_FOUND = 0, 19
_NAMES = [f"%LMQ%client{number}" for number in range(6)]


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"directories of Apache RocketMQ: {missing}")


@dataclass
class Shadow:
    """What each light queue should hold, and where its reader is."""

    bodies: dict[str, list[bytes]] = field(default_factory=lambda: {name: [] for name in _NAMES})
    committed: dict[str, int] = field(default_factory=dict)


def send(address: str, body: bytes, names: list[str], topic: str = PARENT) -> None:
    dispatch = f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02" if names else ""
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(int(time.time() * 1000)),
        "h": "0", "i": f"UNIQ_KEY\x01{body.hex().upper().ljust(32, '0')}\x02TAGS\x01tag\x02{dispatch}", "j": "0",
    }  # fmt: skip
    answer = wire.invoke(address, _SEND_MESSAGE_V2, fields, body)
    assert answer.code == 0, answer


def pull(address: str, topic: str, offset: int) -> wire.Response:
    fields = {
        "consumerGroup": GROUP, "topic": topic, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return wire.invoke(address, wire.PULL_MESSAGE, fields)


def read(address: str, topic: str) -> list[bytes]:
    """All bodies of a light queue from its first on, each of a record that says it is there."""
    bodies: list[bytes] = []
    offset = 0
    while True:
        answer = pull(address, topic, offset)
        if answer.code != _FOUND:
            assert answer.code == _NOT_FOUND, answer
            return bodies
        at = 0
        while at < len(answer.body):
            size = int.from_bytes(answer.body[at : at + 4], "big")
            record = decode(memoryview(answer.body)[at : at + size])
            assert isinstance(record, Record), record
            bodies.append(bytes(record.body))
            if record.topic != topic:
                assert (topic, offset) in places_of(bytes(record.properties)), record
            offset += 1
            at += size
        assert offset == int(answer.fields["nextBeginOffset"])


def places_of(encoded: bytes) -> set[tuple[str, int]]:
    found = dict(re.findall(r"([^\x01\x02]+)\x01([^\x02]*)", encoded.decode()))
    numbers = map(int, found["INNER_MULTI_QUEUE_OFFSET"].split(","))
    return set(zip(found["INNER_MULTI_DISPATCH"].split(","), numbers, strict=True))


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def check(cluster: Cluster, shadow: Shadow) -> None:
    address = cluster.brokers[0].address
    for name, expected in shadow.bodies.items():
        assert read(address, name) == expected, name
    for name, offset in shadow.committed.items():
        fields = {"consumerGroup": GROUP, "topic": name, "queueId": "0"}
        assert wire.invoke(address, _QUERY_OFFSET, fields).fields["offset"] == str(offset), name


def add(cluster: Cluster, shadow: Shadow, turn: int) -> None:
    address = cluster.brokers[0].address
    rng = random.Random(turn)
    for number in range(60):
        names = rng.sample(_NAMES, rng.randrange(4))
        body = b"%d-%d" % (turn, number)
        send(address, body, names)
        for name in names:
            shadow.bodies[name].append(body)
    for name in _NAMES:
        until(lambda name=name: max_offset(cluster, name, 0) == len(shadow.bodies[name]), name)  # type: ignore[misc]
        offset = rng.randrange(len(shadow.bodies[name]))
        fields = {"consumerGroup": GROUP, "topic": name, "queueId": "0", "commitOffset": str(offset)}
        assert wire.invoke(address, _UPDATE_OFFSET, fields).code == 0
        shadow.committed[name] = offset
    check(cluster, shadow)


@pytest.mark.java
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kinds", "ending"),
    [
        ((SprocketCluster, ApacheBroker, SprocketCluster), "stop"),
        pytest.param((ApacheBroker, SprocketCluster, ApacheBroker, SprocketCluster), "kill", marks=pytest.mark.slow),
    ],
    ids=["ours-first-stopped", "theirs-first-killed"],
)
def test_light_queues_change_hands(java: None, tmp_path: Path, kinds: tuple[type[Cluster], ...], ending: str) -> None:
    store = tmp_path / "store"
    shadow = Shadow()
    settings = {**properties(store), "enableLmq": "true", "enableMultiDispatch": "true"}
    for turn, kind in enumerate(kinds):
        with kind(tmp_path / f"turn-{turn}", properties=settings) as cluster:
            if turn == 0:
                wire.create_topic(cluster.brokers[0].address, PARENT, 2)
            else:
                check(cluster, shadow)
            add(cluster, shadow, turn)
            if ending == "kill":
                # RocketMQ saves offsets for the first time 10 s after its start.
                time.sleep(11.5 if kind is ApacheBroker else 1.5)
                cluster.brokers[0].kill()
    assert (store / "config" / "lmqConsumerOffset.json").exists()
    assert len(list((store / "consumequeue").glob("%LMQ%*"))) == len(_NAMES)
