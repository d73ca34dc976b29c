"""Servers that are busy, brokers that go or come in the midst of a look, closed queues: nothing is called lost."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from spark.queues.positions import QueueId, from_queues
from spark.queues.ranges import QueueSelection
from spark.queues.stream_positions import next_step
from spark.wire.cluster import ServerBusy, WireSettings
from spark.wire.connection import Asked, ConnectionSettings
from spark.wire.pull import Subscription
from spark.wire.source import WireQueues
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse

BROKERS = ("broker-a", "broker-b")
A, B = (QueueId(name, "T", 0) for name in BROKERS)
OFFSETS = {
    RequestCode.GET_MIN_OFFSET: "0",
    RequestCode.GET_MAX_OFFSET: "7",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "3",
}


@dataclass
class Cluster:
    """Two brokers, with a queue of topic T each.  The server `busy` is so for as many requests as `times` says.

    `there`: the brokers that are registered at the first request to a name server, at the second ...
    """

    busy: str = ""
    times: int = 0
    there: list[tuple[str, ...]] = field(default_factory=lambda: [BROKERS])
    perms: dict[str, int] = field(default_factory=dict)

    def answer(self, code: int, address: str) -> ReceivedResponse:
        if address == self.busy and self.times:
            self.times -= 1
            return ReceivedResponse(code=ResponseCode.SYSTEM_BUSY, opaque=1, remark="[OVERLOAD]")
        if code in OFFSETS:
            return ReceivedResponse(code=0, opaque=1, ext_fields={"offset": OFFSETS[RequestCode(code)]})
        names = self.there.pop(0) if len(self.there) > 1 else self.there[0]
        brokers = {name: {"cluster": "c", "brokerName": name, "brokerAddrs": {"0": f"{name}:1"}} for name in names}
        queues = [
            {"brokerName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": self.perms.get(name, 6)}
            for name in names
        ]
        told = {
            RequestCode.GET_BROKER_CLUSTER_INFO: {"brokerAddrTable": brokers, "clusterAddrTable": {"c": names}},
            RequestCode.GET_ROUTEINFO_BY_TOPIC: {"queueDatas": queues, "brokerDatas": list(brokers.values())},
        }[RequestCode(code)]
        return ReceivedResponse(code=0, opaque=1, body=json.dumps(told).encode())


def queues_of(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, retries: int = 2) -> WireQueues:
    class Connection:
        is_closed = False

        def __init__(self, address: str, settings: ConnectionSettings) -> None:
            self._address = address

        def invoke_all(self, requests: Sequence[Asked]) -> list[ReceivedResponse]:
            return [cluster.answer(code, self._address) for code, _ in requests]

    monkeypatch.setattr("spark.wire.cluster.WireConnection", Connection)
    monkeypatch.setattr("spark.wire.connection.time.sleep", lambda seconds: None)
    settings = WireSettings(("names:1", "others:1"), retries=retries)
    return WireQueues(settings, QueueSelection(topics=frozenset({"T"})), Subscription())


def test_a_broker_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster("broker-b:1", 2)
    queues = queues_of(cluster, monkeypatch)
    assert queues.snapshot().ranges == {A: (0, 7), B: (0, 7)}
    cluster.times = 1
    assert queues.at_time(B, 5, 0) == 3
    cluster.times = 99
    with pytest.raises(ServerBusy, match=r"broker-b:1 is busy: \[OVERLOAD\]"):
        queues.snapshot()


def test_a_stream_waits_for_a_broker_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    now = queues_of(Cluster("broker-b:1", 99), monkeypatch).snapshot(strict=False)
    assert (now.broker_names, now.ranges) == (("broker-a",), {A: (0, 7)})


def test_another_name_server_is_asked_for_one_that_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    now = queues_of(Cluster("names:1", 99), monkeypatch, retries=0).snapshot()
    assert now.ranges == {A: (0, 7), B: (0, 7)}


@pytest.mark.parametrize("there", [[BROKERS, BROKERS[:1]], [BROKERS[:1], BROKERS[:1], BROKERS]], ids=["goes", "comes"])
def test_a_broker_that_goes_or_comes_in_the_midst_of_a_look_is_away(
    monkeypatch: pytest.MonkeyPatch, there: list[tuple[str, ...]]
) -> None:
    """Its queues are in no route; of a broker that is there they would pass for deleted."""
    now = queues_of(Cluster(there=there), monkeypatch).snapshot(strict=False)
    assert (now.broker_names, now.ranges) == (("broker-a",), {A: (0, 7)})


def test_a_queue_that_may_not_be_read_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic whose perm is W for a while: what is there stays there."""
    cluster = Cluster()
    queues = queues_of(cluster, monkeypatch)
    start = from_queues({A: 5, B: 5}, BROKERS)
    cluster.perms["broker-b"] = 2
    step = next_step(start, queues.snapshot(), None)
    assert (step.end, step.lost) == (from_queues({A: 7, B: 5}, BROKERS), ())
    cluster.perms.clear()
    assert next_step(step.end, queues.snapshot(), None).end == from_queues({A: 7, B: 7}, BROKERS)
    cluster.there = [BROKERS, BROKERS[:1], BROKERS]  # the topic was deleted on one broker
    lost = next_step(start, queues.snapshot(), None).lost
    assert [each.queue for each in lost] == [B]
