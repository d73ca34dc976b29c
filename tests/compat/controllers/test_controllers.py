"""Brokers of Apache RocketMQ in controller mode under our controllers, beside a stock client, and Java's mqadmin."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.controller import SyncStateSet
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.controller import GetReplicaInfoRequestHeader, GetReplicaInfoResponseHeader
from tests.compat import maven, wire
from tests.compat.cluster import CLUSTER_NAME, Server
from tests.compat.controllers.controllers import GROUP, TOPIC, ControllerCluster, StockClient, now_ms
from tests.compat.java_client import AdminShell
from tests.compat.replication.replicas import Kind, until

ELECT_MASTER = 1002

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        maven.apache_classpath()
        maven.client_classpath("5.3.3")
    except maven.JavaMissingError as missing:
        pytest.skip(f"Apache's brokers: {missing}")


def start_group(cluster: ControllerCluster) -> tuple[Server, Server]:
    """Two brokers of Apache, both in sync; the first is the master."""
    cluster.start_controllers()
    first, second = cluster.add_broker(0), cluster.add_broker(1)
    first.start()
    until(lambda: cluster.master([first]), "the first broker is the master")
    second.start()
    until(lambda: cluster.in_sync() == 2, "both are in sync")
    return first, second


def fail_over(cluster: ControllerCluster, brokers: tuple[Server, Server], *, with_leader: bool) -> int:
    """SIGKILL the master, with the leader of the controllers: the other broker leads, and clients are told.

    Returns when the master was dead, in ms.
    """
    master = cluster.master(brokers)
    assert master is not None
    leader = cluster.leader() if with_leader else None
    if leader is not None:
        leader.kill()
    master.kill()
    killed_ms = now_ms()
    other = next(one for one in brokers if one is not master)
    until(lambda: cluster.master(brokers) is other, "the slave is the master")
    elected_ms = now_ms() - killed_ms
    until(lambda: cluster.routed_master() == other.address, "clients are told of the new master")
    print(f"elected after {elected_ms} ms, routed after {now_ms() - killed_ms} ms, with_leader={with_leader}")
    for server in (master, leader):
        if server is not None:
            server.start()
    until(lambda: cluster.in_sync() == 2, "the old master is in sync again")
    return killed_ms


@pytest.mark.slow  # 2 minutes; `test_brokers_under_apache.py` and `test_mixed_groups.py` run such failovers in CI
def test_a_stock_client_goes_on_through_failovers_of_apaches_brokers(tmp_path: Path) -> None:
    with ControllerCluster(tmp_path) as cluster:
        brokers = start_group(cluster)
        wire.create_topic(brokers[0].address, TOPIC, 4)
        until(lambda: cluster.routed_master() == brokers[0].address, "the topic is routed")
        with StockClient(tmp_path / "client", cluster.name_servers) as client:
            until(lambda: client.has_got(100), "the client sends and gets")
            for with_leader in (False, True):
                killed_ms = fail_over(cluster, brokers, with_leader=with_leader)
                assert client.sends_again(killed_ms) < 120_000
            client.stop_sending()
            until(lambda: client.sent.keys() <= client.got.keys(), "every acknowledged message is delivered")
        assert len(cluster.replica_info()["body"]) > 0
        assert cluster.replica_info()["masterEpoch"] == "3"


INNER = Credentials("inner", "secret-of-inner")
_PROVIDERS = "org.apache.rocketmq.auth.authentication.provider."
_ACCESS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}


def signed_info(cluster: ControllerCluster) -> tuple[GetReplicaInfoResponseHeader, SyncStateSet] | None:
    """What the leader says of the group to a signed request; None while there is no leader or no group."""

    async def ask() -> tuple[GetReplicaInfoResponseHeader, SyncStateSet] | None:
        client = RemotingClient(credentials=INNER)
        try:
            for controller in cluster.controllers:
                header = GetReplicaInfoRequestHeader(broker_name=GROUP)
                answer = await client.invoke(controller.address, RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
                if answer.code == 0:
                    return answer.header(GetReplicaInfoResponseHeader), loads(answer.body, SyncStateSet)
        except ClientError:
            pass
        finally:
            await client.close()
        return None

    return asyncio.run(ask())


def test_apaches_brokers_sign_for_controllers_with_access_control(tmp_path: Path) -> None:
    with ControllerCluster(tmp_path, properties=_ACCESS | {"authorizationEnabled": "true"}) as cluster:
        for controller in cluster.controllers:
            controller.start()
        providers = {
            "authenticationProvider": f"{_PROVIDERS}DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{_PROVIDERS}LocalAuthenticationMetadataProvider",
        }
        first, second = (cluster.add_broker(number, **_ACCESS, **providers) for number in range(2))
        first.start()
        until(lambda: (info := signed_info(cluster)) and info[0].master_address == first.address, "the first leads")
        second.start()
        until(lambda: (info := signed_info(cluster)) and len(info[1].sync_state_set) == 2, "both are in sync")
        elect = {"clusterName": CLUSTER_NAME, "brokerName": GROUP, "brokerId": "2", "designateElect": "true"}
        for controller in cluster.controllers:
            assert wire.invoke(controller.address, ELECT_MASTER, elect).code == ResponseCode.NO_PERMISSION
        first.kill()
        until(lambda: (info := signed_info(cluster)) and info[0].master_address == second.address, "the second leads")


def masked(output: str, cluster: ControllerCluster, brokers: tuple[Server, ...]) -> str:
    """Output without what differs from run to run: ports, and the order of two brokers in a Java set."""
    names = {server.address: server.name for server in cluster.controllers}
    for number, broker in enumerate(brokers):
        names[broker.address] = f"broker-{number}"
    for address, name in names.items():
        output = output.replace(address, name)
    return re.sub(r"#ControllerLeader(Id|Address)\t\S+", r"#ControllerLeader\1\tleader", output)


def story(cluster: ControllerCluster, run: Callable[..., str]) -> Iterator[tuple[str, str]]:
    """The commands of an operator's day, each with what it printed."""
    brokers = start_group(cluster)
    controller = ("-a", cluster.controllers[0].address)
    group = ("-bn", GROUP, "-c", CLUSTER_NAME)

    def told(name: str, *arguments: str) -> tuple[str, str]:
        return name, masked(run(name, *arguments), cluster, brokers)

    until(lambda: "#brokerId" in run("getBrokerEpoch", "-n", cluster.name_servers, "-b", GROUP), "epochs are there")
    yield told("getControllerMetaData", *controller)
    yield told("getSyncStateSet", *controller, "-b", GROUP)
    yield told("getSyncStateSet", *controller, "-b", "nobody")
    yield told("electMaster", *controller, "-b", "1", *group)
    yield told("electMaster", *controller, "-b", "2", *group)
    until(lambda: cluster.in_sync() == 2, "both are in sync again")
    yield told("getSyncStateSet", *controller, "-b", GROUP)
    yield told("updateControllerConfig", *controller, "-k", "enableElectUncleanMaster", "-v", "true")
    config = run("getControllerConfig", *controller)
    yield "getControllerConfig", "\n".join(line for line in config.splitlines() if "UncleanMaster" in line)
    yield told("cleanBrokerMetadata", *controller, *group)
    yield told("cleanBrokerMetadata", *controller, "-b", "1", *group)
    yield told("cleanBrokerMetadata", *controller, "-b", "x", *group)
    # The slave is stopped: its id can be forgotten.
    brokers[0].stop()
    until(lambda: "alive=false" in run("getSyncStateSet", *controller, "-b", GROUP), "the slave is gone")
    yield told("cleanBrokerMetadata", *controller, "-b", "1", *group)
    time.sleep(1)
    yield told("getSyncStateSet", *controller, "-b", GROUP)


def says(output: str) -> str:
    """The lines of an output that a tool's user reads: no stack of Java, no blank line, no order of a hash table.

    Apache's refusal of ids that are none ends with the class of a Java exception, ours with an example.
    """
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(("\tat ", "\t... "))]
    return re.sub(r"(according to the format).*", r"\1", "\n".join(sorted(lines)))


def outputs(root: Path, kind: Kind) -> list[tuple[str, str]]:
    with ControllerCluster(root / kind, kind) as cluster:
        shell = AdminShell(root / f"{kind}-tools")
        try:
            return [(name, says(output)) for name, output in story(cluster, shell.run)]
        finally:
            shell.close()


# Four minutes, most of them in Java's tools.
@pytest.mark.slow
def test_javas_mqadmin_prints_the_same_for_our_controllers_and_for_apaches(tmp_path: Path) -> None:
    ours, theirs = outputs(tmp_path, "sprocket"), outputs(tmp_path, "apache")
    assert len(ours) == len(theirs) == 13
    for own, their in zip(ours, theirs, strict=True):
        assert own == their
