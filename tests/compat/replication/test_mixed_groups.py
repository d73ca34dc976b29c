"""Groups under controllers in which Apache's brokers and ours follow and replace each other, beside a stock client."""

from pathlib import Path

import pytest

from tests.compat import maven, wire
from tests.compat.cluster import Server
from tests.compat.controllers.controllers import TOPIC, ControllerCluster, StockClient, now_ms
from tests.compat.replication.replicas import Kind, until

pytestmark = [pytest.mark.java, pytest.mark.timeout(1500)]

_ALL_IN_SYNC = {"allAckInSyncStateSet": "true", "inSyncReplicas": "1"}
_TWO = {"allAckInSyncStateSet": "false", "inSyncReplicas": "2"}


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        maven.apache_classpath()
        maven.client_classpath("5.3.3")
    except maven.JavaMissingError as missing:
        pytest.skip(f"Apache's brokers: {missing}")


def in_sync(cluster: ControllerCluster, brokers: list[Server]) -> None:
    """Wait until all these brokers are in sync.  Fails at once if one has ended."""

    def are_all() -> bool:
        for broker in brokers:
            broker.check()
        return cluster.in_sync() == len(brokers)

    until(are_all, f"{len(brokers)} brokers are in sync")


def fail_over(cluster: ControllerCluster, brokers: list[Server]) -> int:
    """SIGKILL the master: another broker leads, clients are told, and the old master follows it.

    Returns when the master was dead, in ms.
    """
    master = cluster.master(brokers)
    assert master is not None
    master.kill()
    killed_ms = now_ms()
    others = [one for one in brokers if one is not master]
    until(lambda: cluster.master(others), "another broker is the master")
    elected_ms = now_ms() - killed_ms
    other = cluster.master(others)
    assert other is not None
    until(lambda: cluster.routed_master() == other.address, "clients are told of the new master")
    print(f"{master.name} to {other.name}: elected after {elected_ms} ms, routed after {now_ms() - killed_ms} ms")
    master.start()
    in_sync(cluster, brokers)
    return killed_ms


@pytest.mark.parametrize(
    ("controllers", "kinds", "rules", "deaths"),
    [
        pytest.param("sprocket", ("sprocket", "apache"), _ALL_IN_SYNC, 2, id="ours-mixed"),
        pytest.param("apache", ("sprocket", "apache"), _TWO, 5, id="theirs-mixed", marks=pytest.mark.slow),
        pytest.param("apache", ("sprocket", "sprocket"), _ALL_IN_SYNC, 5, id="theirs-ours", marks=pytest.mark.slow),
    ],
)
def test_nothing_acknowledged_is_lost_when_masters_die(
    tmp_path: Path, controllers: Kind, kinds: tuple[Kind, ...], rules: dict[str, str], deaths: int
) -> None:
    with ControllerCluster(tmp_path, controllers) as cluster:
        cluster.start_controllers()
        brokers = [cluster.add_broker(number, kind, **rules) for number, kind in enumerate(kinds)]
        for number, broker in enumerate(brokers, 1):
            broker.start()
            in_sync(cluster, brokers[:number])
        assert cluster.master(brokers) is brokers[0]
        wire.create_topic(brokers[0].address, TOPIC, 4)
        until(lambda: cluster.routed_master() == brokers[0].address, "the topic is routed")
        with StockClient(tmp_path / "client", cluster.name_servers) as client:
            until(lambda: client.has_got(100), "the client sends and gets")
            for _ in range(deaths):
                client.sends_again(fail_over(cluster, brokers))
            client.stop_sending()
            until(lambda: client.sent.keys() <= client.got.keys(), "every acknowledged message is delivered")
            print(f"{len(client.sent)} acknowledged, {len(client.failed)} not")
