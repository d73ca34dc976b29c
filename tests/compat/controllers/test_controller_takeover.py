"""Our controllers take over a group of Apache's brokers from Apache's controllers, while it serves a stock client."""

from pathlib import Path

import pytest

from tests.compat import maven, wire
from tests.compat.controllers.controllers import GROUP, TOPIC, ControllerCluster, StockClient, now_ms
from tests.compat.replication.replicas import until
from tests.sprocket_cli.programs import run

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


def admin(folder: Path, *arguments: str) -> str:
    done = run(folder, *arguments, program="mqadmin")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Four minutes; `test_controlled_move.py` takes the controllers over, too.
@pytest.mark.slow
def test_our_controllers_take_over_from_apaches(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
        maven.client_classpath("5.3.3")
    except maven.JavaMissingError as missing:
        pytest.skip(f"Apache's controllers: {missing}")
    with ControllerCluster(tmp_path, "apache") as cluster:
        cluster.start_controllers()
        first, second = cluster.add_broker(0), cluster.add_broker(1)
        first.start()
        until(lambda: cluster.master([first]), "the first broker is the master")
        second.start()
        until(lambda: cluster.in_sync() == 2, "both are in sync")
        wire.create_topic(first.address, TOPIC, 4)
        until(lambda: cluster.routed_master() == first.address, "the topic is routed")
        with StockClient(tmp_path / "client", cluster.name_servers) as client:
            until(lambda: client.has_got(100), "the client sends and gets")
            leader = cluster.leader()
            assert leader is not None
            admin(tmp_path, "exportBrokerGroups", "-a", leader.address, "-b", GROUP, "-f", str(tmp_path))
            for controller in cluster.controllers:
                controller.stop()
            stopped_ms = now_ms()
            # The brokers serve without controllers.
            client.sends_again(stopped_ms)
            cluster.replace_controllers("sprocket")
            cluster.start_controllers()
            file = str(tmp_path / "brokerGroups.json")
            said = admin(tmp_path, "importBrokerGroups", "-a", cluster.controllers[0].address, "-f", file)
            assert said == f"{GROUP}: taken over\n"
            assert cluster.master([first, second]) is first
            until(lambda: cluster.in_sync() == 2, "both are in sync under our controllers")
            assert not client.failed
            # The next failover is ours.
            first.kill()
            until(lambda: cluster.master([first, second]) is second, "the slave is the master")
            killed_ms = now_ms()
            client.sends_again(killed_ms)
            first.start()
            until(lambda: cluster.in_sync() == 2, "the old master is in sync again")
            client.stop_sending()
            until(lambda: client.sent.keys() <= client.got.keys(), "every acknowledged message is delivered")
