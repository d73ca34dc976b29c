"""Our brokers under controllers of Apache RocketMQ 5.3.3: ids, roles and failover, with RocketMQ's weaker promise."""

from pathlib import Path

import pytest

from tests.compat import maven
from tests.compat.controllers.controllers import GROUP, ControllerCluster
from tests.compat.replication.replicas import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"Apache's controllers: {missing}")


def test_our_brokers_fail_over_under_apaches_controllers(tmp_path: Path) -> None:
    with ControllerCluster(tmp_path, kind="apache") as cluster:
        cluster.start_controllers()
        first, second = cluster.add_sprocket_broker(0), cluster.add_sprocket_broker(1)
        first.start()
        until(lambda: cluster.master([first]), "the first broker is the master")
        second.start()
        until(lambda: cluster.in_sync() == 2, "both are in sync")
        identity = (second.directory / "store" / "brokerIdentity").read_text()
        assert identity.split("#")[1:] == [GROUP, "2"]
        assert b"event=no_leases" in first.output.read_bytes()
        first.kill()
        until(lambda: cluster.master([second]), "the second broker is the master")
        first.start()
        until(lambda: cluster.in_sync() == 2, "the killed broker is in sync again")
        assert cluster.master([second])
