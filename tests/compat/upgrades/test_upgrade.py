"""Rolling upgrade: what a previous version wrote is opened and followed, and brokers of both versions replicate.

``data/sprocket-1409cd06.tar.xz`` is what a broker of commit 1409cd06 left when it was killed.  A running broker of that
version needs its source code: see `tests.compat.upgrades.previous`.  `test_rolling_upgrade` has whole clusters of both
versions; docs/upgrade.md says what is tested.

``data/sprocket-controller-1409cd06.tar.xz`` is what a controller of that version and its brokers left,
``data/sprocket-auth-1409cd06.tar.xz`` what a broker with users and policies left.  To make all three again, see
`tests.compat.upgrades.make_sprocket_directory` and `tests.compat.upgrades.make_server_directories`.
"""

import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.compat import wire
from tests.compat.cluster import Server, SprocketCluster
from tests.compat.controllers.controllers import GET_SYNC_STATE_DATA, ControllerCluster
from tests.compat.directories.turns import SHORT_DELAYS, TOPIC, Ledger, add_turn, check_turn, properties
from tests.compat.replication.replicas import Replicas, ha_status, log_end, same_logs, send, until
from tests.compat.security.test_auth import PROPERTIES, Door, allowed, refusals
from tests.compat.upgrades.previous import previous_broker, previous_source

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "sprocket-1409cd06.tar.xz"
GOLDEN_CONTROLLER = GOLDEN.with_name("sprocket-controller-1409cd06.tar.xz")
GOLDEN_AUTH = GOLDEN.with_name("sprocket-auth-1409cd06.tar.xz")
GROUP = "broker-a"
SIZES = {"mappedFileSizeCommitLog": str(256 * 1024), "mappedFileSizeConsumeQueue": "4000"}

pytestmark = pytest.mark.timeout(600)


def unpacked(folder: Path) -> Ledger:
    """Unpack the previous version's store into ``folder/store``; return what its broker had done."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(folder, filter="data")
    return Ledger.from_json((folder / "ledger.json").read_text())


async def test_a_store_of_the_previous_version_opens_and_serves(tmp_path: Path) -> None:
    ledger = unpacked(tmp_path)
    # What was delayed by level 3 is due by now.
    ledger.due.append("0-level-3")
    settings = {**properties(tmp_path / "store"), **SHORT_DELAYS}
    with SprocketCluster(tmp_path / "first", properties=settings) as cluster:
        await check_turn(cluster, ledger)
        await add_turn(cluster, 1, ledger)
        cluster.brokers[0].kill()
    with SprocketCluster(tmp_path / "again", properties=settings) as cluster:
        ledger.due.append("1-level-3")
        await check_turn(cluster, ledger)


def test_slaves_follow_a_store_of_the_previous_version(tmp_path: Path) -> None:
    """One slave has the previous version's copy of the log, the other one nothing."""
    with Replicas(tmp_path) as replicas:
        homes = [tmp_path / f"home-{number}" for number in range(3)]
        for home in homes[:2]:
            unpacked(home)
        homes[2].mkdir()
        master, *slaves = [
            replicas.again(
                "sprocket", GROUP, number, home, "SLAVE" if number else "ASYNC_MASTER", **SIZES, **SHORT_DELAYS
            )
            for number, home in enumerate(homes)
        ]
        for server in (master, *slaves):
            server.start()
            replicas.await_registered(server)
        until(lambda: followers(master) == 2, "both slaves follow")
        send(master.address, 50, 500, TOPIC)
        until(lambda: followers(master, in_step=True) == 2, "both slaves have everything")
        # Groups come by another way than records: a slave asks for them every few seconds.
        until(lambda: all("Bookkeepers" in groups_of(slave) for slave in slaves), "both slaves have the group")
        end = log_end(master.address)
        for server in (master, *slaves):
            assert server.stop() == 0
        for slave in slaves:
            assert same_logs(master, slave, end) == 0
            assert "Bookkeepers" in groups_of(slave)


def groups_of(server: Server) -> Mapping[str, object]:
    """Return the consumer groups in a broker's configuration file, none if there is no file yet."""
    file = server.directory / "store" / "config" / "subscriptionGroup.json"
    if not file.exists():
        return {}
    groups: Mapping[str, object] = json.loads(file.read_text())["subscriptionGroupTable"]
    return groups


def followers(master: Server, *, in_step: bool = False) -> int:
    """Return how many slaves a master has; `in_step`: those that lack nothing."""
    slaves = ha_status(master.address)["haConnectionInfo"]
    assert isinstance(slaves, list)
    return sum(not in_step or slave["diff"] == 0 for slave in slaves)


@pytest.mark.slow
def test_a_group_is_upgraded_and_goes_back_while_it_serves(tmp_path: Path) -> None:
    """Slave first, then the master; back in the other order.  Each step replicates between the two versions."""
    source = previous_source()
    with Replicas(tmp_path) as replicas:
        servers = [
            replicas.add("sprocket", GROUP, number, "SLAVE" if number else "ASYNC_MASTER", **SIZES) for number in (0, 1)
        ]
        master, slave = servers
        this = {server.name: server.command for server in servers}
        previous = {server.name: previous_broker(source, server.directory / "broker.conf") for server in servers}

        def step(server: Server, command: Mapping[str, Sequence[str]]) -> None:
            """Restart a server as the version of `command`, send, and wait until the slave has everything."""
            server.stop()
            server.command = command[server.name]
            server.start()
            until(lambda: followers(master) == 1, f"the slave follows after a restart of {server.name}")
            replicas.await_registered(server)
            send(master.address, 20, 500)
            until(lambda: followers(master, in_step=True) == 1, "the slave has everything")

        for server in servers:
            server.command = previous[server.name]
            server.start()
            replicas.await_registered(server)
        wire.create_topic(master.address, "Orders", 4)
        for server, command in ((slave, this), (master, this), (master, previous), (slave, previous)):
            step(server, command)
        end = log_end(master.address)
        for server in (slave, master):
            assert server.stop() == 0
        assert same_logs(master, slave, end) == 0


def extracted(archive: Path, folder: Path) -> Mapping[str, Any]:
    """Unpack directories of servers into `folder`; return what the servers had said."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    ledger: Mapping[str, Any] = json.loads((folder / "ledger.json").read_text())
    return ledger


def test_a_controller_of_the_previous_version_is_taken_over(tmp_path: Path) -> None:
    """Master, epochs and replicas are there before any broker comes; the brokers keep their ids; elections go on."""
    ledger = extracted(GOLDEN_CONTROLLER, tmp_path / "golden")
    with ControllerCluster(tmp_path, count=1) as cluster:
        (controller,) = cluster.controllers
        (tmp_path / "golden" / "controller" / "store").rename(controller.directory / "store")
        cluster.start_controllers()
        said = cluster.replica_info(ledger["group"])
        assert {name: said[name] for name in ledger["said"]} == ledger["said"]
        brokers = []
        for number in (0, 1):
            broker = cluster.add_sprocket_broker(number)
            (tmp_path / "golden" / str(number) / "store").rename(broker.directory / "store")
            broker.start()
            brokers.append(broker)

        def is_elected_and_in_sync() -> bool:
            """The stored state has two in sync as well, until the first election after the start."""
            is_elected = int(cluster.replica_info().get("masterEpoch", 0)) > int(ledger["said"]["masterEpoch"])
            return is_elected and cluster.in_sync() == 2 and cluster.master(brokers) is not None

        until(is_elected_and_in_sync, "both replicas are in sync")
        ids = wire.invoke(controller.address, GET_SYNC_STATE_DATA, body=json.dumps([GROUP]).encode())
        assert all(f'"brokerId":{number}' in ids.body.decode() for number in (1, 2))
        assert '"brokerId":3' not in ids.body.decode()
        master = cluster.master(brokers)
        assert master is not None
        epoch = int(cluster.replica_info()["masterEpoch"])
        other = next(broker for broker in brokers if broker is not master)
        master.kill()
        until(lambda: cluster.master(brokers) is other, "the other broker leads")
        assert int(cluster.replica_info()["masterEpoch"]) > epoch


def test_users_and_policies_of_the_previous_version_judge_as_before(tmp_path: Path) -> None:
    ledger = extracted(GOLDEN_AUTH, tmp_path)
    settings = {**PROPERTIES, "storePathRootDir": str(tmp_path / "broker" / "store"), **SIZES}
    settings["storePathCommitLog"] = str(tmp_path / "broker" / "store" / "commitlog")
    with SprocketCluster(tmp_path / "servers", properties=settings) as cluster:
        door = Door(cluster.brokers[0].address)
        refused = {name: list(answer) for name, answer in refusals(door).items()}
        assert refused == ledger["refusals"]
        served = allowed(door)
        assert served == dict.fromkeys(served, 0)
