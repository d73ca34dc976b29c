"""Consumers of each client go on at the slave while the master is dead, and come back to the master."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.checkers.consumption import Disturbance, displaced, doubles, lost, strangers, unexplained_doubles
from tests.checkers.history import Histories, History, Place, Sent
from tests.compat import wire
from tests.compat.cluster import ApacheCluster, Cluster, Server, SprocketCluster
from tests.compat.storms.clients import java_command, sprocket_command
from tests.compat.storms.storm import QUEUES, Program, create_topics

# Of processes that start on a machine that runs other tests.
pytestmark = pytest.mark.timeout(300)

_LIMIT_S = 60.0
_POLL_S = 0.05
_PART = 120
_S = 1_000_000
# A client's commits are a second apart here, a broker writes them every five.
_MEMORY_US, _SETTLING_US = 10 * _S, 10 * _S
_QUERY_CONSUMER_OFFSET, _SEARCH_OFFSET_BY_TIMESTAMP, _GET_MIN_OFFSET = 14, 29, 31
_TOPIC_NOT_EXIST = 17
_FLAGS = {"sysFlag": "4", "subscription": "*", "expressionType": "TAG", "subVersion": "0"}
# Consumed in the order of the queue.
_IN_ORDER = ("orderly", "lite-pull", "pull")


def until(holds: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {_LIMIT_S:g} s: {what()}"
        time.sleep(_POLL_S)


def micros() -> int:
    return time.time_ns() // 1_000


class Readers:
    """A program whose consumers read what the test sends."""

    def __init__(self, cluster: Cluster, kinds: Sequence[str], command: Sequence[str], home: Path) -> None:
        self.kinds = kinds
        self.histories = Histories(kinds)
        self._run = home.name
        self._cluster = cluster
        create_topics(cluster, self._run, kinds)
        self.program = Program([*command, cluster.name_server_address, self._run, "50", *kinds], self.histories, home)

    def topic(self, kind: str) -> str:
        return f"S-{self._run}-{kind}"

    def has_topics_at_slave(self) -> bool:
        (slave,) = self._cluster.slaves
        fields = {"consumerGroup": "CG", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "commitOffset": "0"}
        codes = [
            wire.invoke(
                slave.address,
                wire.PULL_MESSAGE,
                {**fields, **_FLAGS, "topic": self.topic(kind), "suspendTimeoutMillis": "0"},
            ).code
            for kind in self.kinds
        ]
        return _TOPIC_NOT_EXIST not in codes

    def send(self, count: int) -> None:
        """So many messages of each kind, to the master."""
        (master,) = self._cluster.brokers
        for kind in self.kinds:
            history = self.histories[kind]
            for number in range(len(history.sent), len(history.sent) + count):
                history.sent.append(_sent(master, self.topic(kind), f"{kind}-{number:06d}", number % QUEUES))

    def ends(self, kind: str) -> dict[int, int]:
        """Queue id -> one past the last message that was sent."""
        return {sent.place.queue_id: sent.place.offset + 1 for sent in self.histories[kind].sent if sent.place}

    def committed(self, broker: Server, kind: str) -> dict[int, int]:
        """Queue id -> the group's offset, as `broker` knows it; -1 for none."""
        fields = {"consumerGroup": f"SG-{self._run}-{kind}", "topic": self.topic(kind), "setZeroIfNotFound": "false"}
        answers = [
            wire.invoke(broker.address, _QUERY_CONSUMER_OFFSET, {**fields, "queueId": str(queue_id)})
            for queue_id in range(QUEUES)
        ]
        return {queue_id: int(answer.fields.get("offset", -1)) for queue_id, answer in enumerate(answers)}

    def await_all(self) -> None:
        """Until each kind was given all that was sent."""
        for kind in self.kinds:
            history = self.histories[kind]
            sent = {each.key for each in history.sent}

            def missing(history: History = history, sent: set[str] = sent) -> set[str]:
                return sent - {got.key for got in tuple(history.got)}

            until(lambda: not missing(), lambda: f"{kind} was given {sorted(missing())[:5]}")  # noqa: B023 # at once


def _sent(master: Server, topic: str, key: str, queue_id: int) -> Sent:
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": "1750000000000", "h": "0",
        "i": f"TAGS\x01T\x02UNIQ_KEY\x01{key}\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    began = micros()
    answer = wire.invoke(master.address, wire.SEND_MESSAGE_V2, fields, key.encode())
    assert answer.code == 0, answer.remark
    return Sent(key, began, micros(), Place(master.name, queue_id, int(answer.fields["queueOffset"])), True)


class Story:
    """The master dies while consumers have much to read, and comes back; then the slave dies."""

    def __init__(self, cluster: Cluster, readers: Sequence[Readers]) -> None:
        self.cluster = cluster
        self.readers = readers
        self.disturbances: list[Disturbance] = []

    def play(self) -> None:
        (master,), (slave,) = self.cluster.brokers, self.cluster.slaves
        for each in self.readers:
            each.program.await_phase("ready")
        self._tell("start", "started")
        self._send()
        self._await_all()
        with self._disturbance("kill"):
            self._have_unread()
            assert self._places(slave) == self._places(master)
            master.kill()
            for each in self.readers:
                each.program.signal(signal.SIGCONT)
            self._await_all()  # of the slave: the master is dead
            self._await_commits(slave)
        with self._disturbance("return"):
            master.start()
            self.cluster.await_registered(master)
        self._send()
        self._await_all()
        self._await_commits(master)
        slave.kill()
        self._send()  # nobody but the master has these
        self._await_all()

    def _have_unread(self) -> None:
        """Messages that the slave has and that no consumer has seen."""
        for each in self.readers:
            each.program.signal(signal.SIGSTOP)
        self._send()
        (slave,) = self.cluster.slaves
        for each in self.readers:
            for kind in each.kinds:
                for queue_id, end in each.ends(kind).items():
                    fields = {"topic": each.topic(kind), "queueId": str(queue_id)}

                    def reached(fields: dict[str, str] = fields, end: int = end) -> bool:
                        answer = wire.invoke(slave.address, wire.GET_MAX_OFFSET, fields)
                        return int(answer.fields["offset"]) >= end

                    until(reached, lambda: "the slave has what was sent")

    def _await_commits(self, broker: Server) -> None:
        """Until `broker` knows that each group has read all."""
        for each in self.readers:
            for kind in each.kinds:
                ends = each.ends(kind)

                def committed(each: Readers = each, kind: str = kind) -> dict[int, int]:
                    return each.committed(broker, kind)

                until(lambda: committed() == ends, lambda: f"{kind} has {committed()} of {ends}")  # noqa: B023 # at once

    def _places(self, broker: Server) -> list[str]:
        """Where queues begin and end, and where half of what was sent lies, as `broker` says."""
        places = []
        for each in self.readers:
            for kind in each.kinds:
                sent = each.histories[kind].sent
                half_ms = str(sent[len(sent) // 2].began_us // 1_000)
                for queue_id in range(QUEUES):
                    fields = {"topic": each.topic(kind), "queueId": str(queue_id), "timestamp": half_ms}
                    for code in (wire.GET_MAX_OFFSET, _GET_MIN_OFFSET, _SEARCH_OFFSET_BY_TIMESTAMP):
                        answer = wire.invoke(broker.address, code, fields)
                        assert answer.code == 0, answer.remark
                        places.append(f"{kind} {queue_id} {code}: {answer.fields['offset']}")
        return places

    def _tell(self, order: str, phase: str) -> None:
        for each in self.readers:
            each.program.tell(order)
        for each in self.readers:
            each.program.await_phase(phase)

    def _send(self) -> None:
        for each in self.readers:
            each.send(_PART)

    def _await_all(self) -> None:
        for each in self.readers:
            each.await_all()

    @contextmanager
    def _disturbance(self, name: str) -> Iterator[None]:
        began = micros()
        yield
        self.disturbances.append(Disturbance(name, began, micros(), self.cluster.brokers[0].name))


def passed_over(history: History) -> list[str]:
    """Messages of a queue that came after a later one, and not for a second time."""
    problems, seen = [], set()
    last: dict[int, int] = {}
    for got in history.got:
        queue_id, offset = got.place.queue_id, got.place.offset
        if got.place not in seen and offset < last.get(queue_id, -1):
            problems.append(f"{got.key} came after offset {last[queue_id]} of queue {queue_id}")
        seen.add(got.place)
        last[queue_id] = max(offset, last.get(queue_id, -1))
    return problems


def problems(history: History, disturbances: Sequence[Disturbance]) -> list[str]:
    found = [*history.troubles, *lost(history), *strangers(history), *displaced(history)]
    found += unexplained_doubles(history, disturbances, _MEMORY_US, _SETTLING_US)
    return found + (passed_over(history) if history.kind in _IN_ORDER else [])


@contextmanager
def story(root: Path, *casts: tuple[Sequence[str], Sequence[str]]) -> Iterator[Story]:
    """A master, its slave and a program for each of `casts`: kinds, and a command.

    Apache RocketMQ's with COMPAT_AGAINST=apache.
    """
    servers = ApacheCluster if os.environ.get("COMPAT_AGAINST") == "apache" else SprocketCluster
    with servers(root / "servers", slaves=1, properties={"slaveReadEnable": "true"}) as cluster:
        readers: list[Readers] = []
        try:
            for number, (kinds, command) in enumerate(casts):
                home = root / f"readers-{number}"
                home.mkdir()
                readers.append(Readers(cluster, kinds, command, home))
            cluster.start_slaves()
            for each in readers:
                until(each.has_topics_at_slave, lambda: "the slave has the topics")
            yield Story(cluster, readers)
        finally:
            for each in readers:
                each.program.signal(signal.SIGCONT)
                each.program.end()


def test_our_consumers(tmp_path: Path) -> None:
    with story(tmp_path, (("concurrent", "orderly"), sprocket_command())) as told:
        told.play()
        for history in told.readers[0].histories.values():
            assert not problems(history, told.disturbances)
        # Who goes on knows what it was given; only the locks of what is consumed in order may run out meanwhile.
        assert not doubles(told.readers[0].histories["concurrent"])


@pytest.mark.java
def test_stock_java_consumers(java: None, tmp_path: Path) -> None:
    kinds = ("concurrent", "orderly", "lite-pull", "pull")
    home = tmp_path / "java"
    home.mkdir()
    with story(tmp_path, (kinds, java_command("5.3.3", home))) as told:
        told.play()
        for history in told.readers[0].histories.values():
            assert not problems(history, told.disturbances)
            # After a rebalance a client begins a queue again at its last commit.
            assert len(doubles(history)) <= _PART
