"""One cluster of two kinds of brokers, and a group that moves from Apache RocketMQ to Sprocket under a stock client.

The steps of the move are those of docs/migration.md.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.checkers.history import Histories
from tests.compat import wire
from tests.compat.cluster import Server
from tests.compat.replication.replicas import (
    UPDATE_BROKER_CONFIG,
    Kind,
    Replicas,
    ha_status,
    is_in_step,
    log_end,
    parsed,
    same_logs,
    until,
)
from tests.compat.storms.clients import java_command
from tests.compat.storms.storm import Program

# Minutes each.
pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(900)]

_VERSION = "5.3.3"
GET_ALL_CONSUMER_OFFSET = 43
_QUEUES = 4
_PERIOD_MS = 20


@contextmanager
def stock_client(
    replicas: Replicas, home: Path, masters: list[Server], kinds: list[str]
) -> Iterator[tuple[Program, Histories]]:
    """A Java client that sends and consumes; topics are on all `masters`."""
    home.mkdir()
    run = home.name
    for kind in kinds:
        for master in masters:
            wire.create_topic(master.address, f"S-{run}-{kind}", _QUEUES)
    histories = Histories(kinds)
    command = [*java_command(_VERSION, home), replicas.name_servers, run, str(_PERIOD_MS), *kinds]
    program = Program(command, histories, home)
    try:
        program.await_phase("ready")
        program.tell("start")
        program.await_phase("started")
        yield program, histories
    finally:
        program.end()


def acknowledged(histories: Histories, kind: str) -> int:
    return len(histories[kind].acknowledged)


def lacks(histories: Histories) -> dict[str, int]:
    """How many acknowledged messages no consumer was given, by kind."""
    return {
        kind: len({sent.key for sent in history.acknowledged} - {got.key for got in history.got})
        for kind, history in histories.items()
    }


def go_on(histories: Histories, count: int) -> None:
    """Until so many more are acknowledged, of each kind."""
    wanted = {kind: acknowledged(histories, kind) + count for kind in histories}
    until(lambda: all(acknowledged(histories, kind) >= wanted[kind] for kind in wanted), f"{count} more sends")


def progress_of(server: Server) -> dict[str, object]:
    """What the broker tells its slaves of the groups' offsets, wherever it stores them."""
    answer = wire.invoke(server.address, GET_ALL_CONSUMER_OFFSET, {}, b"")
    assert answer.code == 0, answer.remark
    found = parsed(answer.body.decode())
    assert isinstance(found, dict)
    return {key: table for key, table in found["offsetTable"].items() if table}


@pytest.mark.parametrize("name_servers", ["sprocket", "apache"])
def test_one_topic_on_a_pair_of_each_kind(java: None, tmp_path: Path, name_servers: Kind) -> None:
    with Replicas(tmp_path, name_servers) as replicas:
        masters = [replicas.add("apache", "broker-a", 0), replicas.add("sprocket", "broker-b", 0)]
        slaves = [replicas.add("apache", "broker-a", 1, "SLAVE"), replicas.add("sprocket", "broker-b", 1, "SLAVE")]
        for server in [*masters, *slaves]:
            server.start()
        for server in [*masters, *slaves]:
            replicas.await_registered(server)
        with stock_client(replicas, tmp_path / "mixed", masters, ["sync"]) as (program, histories):
            program.tell("send")
            go_on(histories, 400)
            program.tell("stop")
            program.await_phase("stopped")
            until(lambda: not any(lacks(histories).values()), "everything is consumed")
            brokers = Counter(got.place.broker for got in histories["sync"].got)
            assert set(brokers) == {"broker-a", "broker-b"}
            assert not histories["sync"].troubles
        for master, slave in zip(masters, slaves, strict=True):
            until(lambda master=master: is_in_step(master.address), "slaves are in step")  # type: ignore[misc]
            same_logs(master, slave, log_end(master.address))


@pytest.mark.parametrize("store_type", ["default", "defaultRocksDB"])
def test_a_group_moves_from_apache_to_sprocket(java: None, tmp_path: Path, store_type: str) -> None:
    """Nothing acknowledged is lost, consumers go on where they were, and what was delayed comes when it is due."""
    with Replicas(tmp_path) as replicas:
        old = replicas.add("apache", "broker-a", 0, storeType=store_type)
        new = replicas.add("sprocket", "broker-a", 1, "SLAVE")
        old.start()
        replicas.await_registered(old)
        kinds = ["sync", "delay-level", "delay-time"]
        with stock_client(replicas, tmp_path / "move", [old], kinds) as (program, histories):
            program.tell("send")
            go_on(histories, 200)
            # 1. Add a slave of ours, and wait until it has all.
            new.start()
            until(lambda: is_in_step(old.address), "the new slave is in step")
            go_on(histories, 100)
            # 2. Let the old master take nothing more; its consumers read on.
            answer = wire.invoke(old.address, UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4")
            assert answer.code == 0, answer.remark
            until(lambda: lacks(histories)["sync"] == 0, "what was sent is consumed")
            until(lambda: is_in_step(old.address), "the log is whole")
            until(lambda: progress_of(new) == progress_of(old), "progress is equal")
            end = log_end(old.address)
            # 3. Stop it.
            old.stop()
            same_logs(old, new, end)
            # 4. The slave becomes the master: another configuration over the same directory.
            new.stop()
            master = replicas.again("sprocket", "broker-a", 0, new.directory, "ASYNC_MASTER")
            master.start()
            replicas.await_registered(master)
            assert ha_status(master.address)["master"]
            # 5. Clients find it by themselves.
            go_on(histories, 200)
            program.tell("stop")
            program.await_phase("stopped")
            until(lambda: not any(lacks(histories).values()), "everything is consumed")
            # Progress was equal when the old master went: nothing is delivered twice.
            twice = [key for key, count in Counter(got.key for got in histories["sync"].got).items() if count > 1]
            assert not twice
