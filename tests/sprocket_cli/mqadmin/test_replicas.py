"""`mqadmin` about a master and its slave, each a process of its own."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from sprocket.remoting.bodies.stats import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from sprocket_cli.mqadmin.replication import ha_lines
from tests.sprocket_cli.mqadmin.conftest import Admin, runner
from tests.sprocket_cli.programs import BROKER_FLAGS, await_masters, server

_LIMIT_S = 30


@dataclass(frozen=True)
class Pair:
    """Addresses of a master and its slave, and mqadmin with their name server."""

    master: str
    slave: str
    admin: Admin


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folders = [tmp_path_factory.mktemp(name) for name in ("namesrv", "master", "slave")]
    as_slave = ("--set", "brokerRole=SLAVE", "--set", "brokerId=1")
    with server(folders[0], "namesrv", "--set", "listenPort=0") as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        with (
            server(folders[1], "broker", "-n", namesrv, *BROKER_FLAGS) as master,
            server(folders[2], "broker", "-n", namesrv, *BROKER_FLAGS, *as_slave) as slave,
        ):
            await_masters(namesrv)
            yield Pair(f"127.0.0.1:{master.port}", f"127.0.0.1:{slave.port}", runner(namesrv))


def wait_for(admin: Admin, *arguments: str, text: str) -> list[str]:
    """Return the lines of a command as soon as one of them contains `text`."""
    end = time.monotonic() + _LIMIT_S
    while True:
        lines = admin(*arguments)
        if any(text in line for line in lines):
            return lines
        assert time.monotonic() < end, lines
        time.sleep(0.1)


def test_how_far_a_slave_is(pair: Pair) -> None:
    wait_for(pair.admin, "haStatus", "-b", pair.master, text="OK")
    lines = pair.admin("haStatus", "-c", "DefaultCluster")
    assert "#SlaveNum\t1" in lines
    assert lines[-1].split()[-2] == "OK"
    own = pair.admin("haStatus", "-b", pair.slave)
    assert [line.split("\t")[0] for line in own[1:]] == [
        "#MasterAddr", "#CommitLogMaxOffset", "#TransferSpeed(KB/s)", "#LastReadTime", "#LastWriteTime",
        "#MasterFlushOffset",
    ]  # fmt: skip


def test_a_slave_keeps_the_flush_offset_of_its_master(pair: Pair) -> None:
    said = pair.admin("resetMasterFlushOffset", "-b", pair.slave, "-o", "12345")
    assert said == ["reset master flush offset to 12345 success"]
    assert "#MasterFlushOffset\t12345" in pair.admin("haStatus", "-b", pair.slave)


def test_configurations_of_a_master_and_its_slave(pair: Pair) -> None:
    text = f"============My Master: {pair.master}=====Slave: {pair.slave}============"
    lines = wait_for(pair.admin, "getBrokerConfig", "-c", "DefaultCluster", text=text)
    assert lines[0] == f"============Master: {pair.master}============"
    change = ("updateBrokerConfig", "-c", "DefaultCluster", "-k", "maxTransferCountOnMessageInMemory", "-v", "48")
    assert pair.admin(*change)[0] == f"update broker config success, {pair.master}"
    said = [line for line in pair.admin(*change, "-a", "true") if line.startswith("update broker config success")]
    assert said == [f"update broker config success, {each}" for each in (pair.master, pair.slave)]
    tables = json.loads("".join(pair.admin("getBrokerConfig", "-c", "DefaultCluster", "--json")))
    assert {each: table["brokerRole"] for each, table in tables.items()} == {
        pair.master: "ASYNC_MASTER", pair.slave: "SLAVE",
    }  # fmt: skip


def test_the_size_of_the_cluster_is_exported(pair: Pair, tmp_path: Path) -> None:
    wait_for(pair.admin, "clusterList", text=pair.slave)
    pair.admin("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path))
    content = json.loads((tmp_path / "configs.json").read_text())
    assert content["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 1}


def test_columns_of_a_slave_that_is_behind() -> None:
    slave = HAConnectionRuntimeInfo("10.0.0.2:5", 90, 10, False, 2048, 80)
    *_, line = ha_lines("10.0.0.1:10911", HARuntimeInfo(True, 100, 0, [slave]))
    assert line.split() == ["10.0.0.2:5", "90", "10", "2.00", "Fall", "Behind", "80"]
    own = HARuntimeInfo(False, ha_client_runtime_info=HAClientRuntimeInfo(None, 1536, 7, 0, 0, 5))
    assert list(ha_lines("x", own))[1:4] == [
        "#MasterAddr\tnull",
        "#CommitLogMaxOffset\t7",
        "#TransferSpeed(KB/s)\t1.50",
    ]
