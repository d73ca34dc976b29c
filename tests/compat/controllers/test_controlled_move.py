"""The move of a group under RocketMQ's controllers to Sprocket: broker by broker, then the controllers.

The steps are those of docs/migration.md, beside a stock client.
"""

import json
from pathlib import Path

import pytest

from tests.compat import maven, wire
from tests.compat.cluster import CLUSTER_NAME, Server
from tests.compat.controllers.controllers import GROUP, TOPIC, ControllerCluster, StockClient, now_ms
from tests.compat.replication.replicas import log_end, same_logs, until
from tests.compat.replication.test_mixed_groups import in_sync
from tests.sprocket_cli.programs import run

pytestmark = [pytest.mark.java, pytest.mark.timeout(1500)]


def admin(folder: Path, *arguments: str) -> str:
    done = run(folder, *arguments, program="mqadmin")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def id_of(cluster: ControllerCluster, broker: Server) -> str:
    """The id that the controllers assigned to a broker."""
    leader = cluster.leader()
    assert leader is not None
    said = json.loads(admin(broker.directory, "getSyncStateSet", "-a", leader.address, "-b", GROUP, "--json"))
    replicas = said[GROUP]["inSyncReplicas"] + said[GROUP]["notInSyncReplicas"]
    return next(str(one["brokerId"]) for one in replicas if one["brokerAddress"] == broker.address)


def forget(cluster: ControllerCluster, broker: Server) -> None:
    """Stop a broker of the group for good."""
    broker_id, others = id_of(cluster, broker), cluster.in_sync() - 1
    broker.stop()
    until(lambda: cluster.in_sync() == others, "the old broker has left the sync-state set")
    leader = cluster.leader()
    assert leader is not None
    forgotten = ("cleanBrokerMetadata", "-a", leader.address, "-bn", GROUP, "-c", CLUSTER_NAME, "-b", broker_id)
    # The controllers take it for alive until they notice.
    until(lambda: run(broker.directory, *forgotten, program="mqadmin").returncode == 0, "the old broker is forgotten")


def test_a_group_moves_broker_by_broker_and_then_its_controllers(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
        maven.client_classpath("5.3.3")
    except maven.JavaMissingError as missing:
        pytest.skip(f"Apache's brokers: {missing}")
    with ControllerCluster(tmp_path, "apache") as cluster:
        cluster.start_controllers()
        theirs = [cluster.add_broker(number) for number in range(2)]
        for number, broker in enumerate(theirs, 1):
            broker.start()
            in_sync(cluster, theirs[:number])
        wire.create_topic(theirs[0].address, TOPIC, 4)
        until(lambda: cluster.routed_master() == theirs[0].address, "the topic is routed")
        with StockClient(tmp_path / "client", cluster.name_servers) as client:
            until(lambda: client.has_got(100), "the client sends and gets")
            first = cluster.add_broker(2, "sprocket")
            first.start()
            in_sync(cluster, [*theirs, first])
            forget(cluster, theirs[1])
            in_sync(cluster, [theirs[0], first])
            second = cluster.add_broker(3, "sprocket")
            second.start()
            in_sync(cluster, [theirs[0], first, second])
            print(f"{len(client.failed)} sends failed while brokers came and went")
            # The master moves.
            leader = cluster.leader()
            assert leader is not None
            moved_ms = now_ms()
            elect = ("-a", leader.address, "-bn", GROUP, "-c", CLUSTER_NAME, "-b", id_of(cluster, first))
            admin(tmp_path, "electMaster", *elect)
            until(lambda: cluster.routed_master() == first.address, "our broker is the master")
            print(f"sends go on {client.sends_again(moved_ms)} ms after the change of the master")
            in_sync(cluster, [theirs[0], first, second])
            forget(cluster, theirs[0])
            ours = [first, second]
            in_sync(cluster, ours)
            # The controllers move.
            since_ms, failed = now_ms(), len(client.failed)
            leader = cluster.leader()
            assert leader is not None
            admin(tmp_path, "exportBrokerGroups", "-a", leader.address, "-b", GROUP, "-f", str(tmp_path))
            for controller in cluster.controllers:
                controller.stop()
            client.sends_again(now_ms())
            cluster.replace_controllers("sprocket")
            cluster.start_controllers()
            file = str(tmp_path / "brokerGroups.json")
            admin(tmp_path, "importBrokerGroups", "-a", cluster.controllers[0].address, "-f", file)
            in_sync(cluster, ours)
            assert cluster.master(ours) is first
            client.sends_again(now_ms())
            print(f"{len(client.failed) - failed} sends failed in {now_ms() - since_ms} ms of the controllers' move")
            first.kill()
            until(lambda: cluster.master(ours) is second, "our controllers replace a master")
            client.sends_again(now_ms())
            first.start()
            in_sync(cluster, ours)
            client.stop_sending()
            until(lambda: client.sent.keys() <= client.got.keys(), "every acknowledged message is delivered")
            same_logs(first, second, log_end(second.address))
