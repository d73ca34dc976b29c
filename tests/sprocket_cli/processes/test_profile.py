"""Profiles: ours, Apache RocketMQ's folders as they are, and what is wrong with a folder."""

from pathlib import Path

import pytest

from sprocket.common.errors import ConfigError
from sprocket_cli.processes.local_cluster import LocalCluster
from sprocket_cli.processes.profile import find_profile, profile_names, read_profile

# As distribution/conf/2m-2s-async of RocketMQ 5.3.3 has them; its other folders differ in roles and names only.
APACHE = "brokerClusterName=DefaultCluster\nbrokerName={}\nbrokerId={}\ndeleteWhen=04\nfileReservedTime=48\n"


def apache_folder(folder: Path) -> Path:
    folder.mkdir()
    for name in ("broker-a", "broker-b"):
        (folder / f"{name}.properties").write_text(APACHE.format(name, 0) + "brokerRole=ASYNC_MASTER\n")
        (folder / f"{name}-s.properties").write_text(APACHE.format(name, 1) + "brokerRole=SLAVE\n")
    return folder


@pytest.mark.parametrize(
    ("name", "master", "slaves"),
    [("2m-2s-sync", "SYNC_MASTER", 2), ("2m-2s-async", "ASYNC_MASTER", 2), ("2m-noslave", "ASYNC_MASTER", 0)],
)
def test_profiles_that_come_with_sprocket(name: str, master: str, slaves: int) -> None:
    assert name in profile_names()
    plans = find_profile(name).plans
    assert [plan.role for plan in plans] == ["NAMESRV"] * 2 + [master] * 2 + ["SLAVE"] * slaves
    assert {plan.cluster for plan in plans if plan.is_broker} == {"DefaultCluster"}
    assert [plan.name for plan in plans if plan.is_broker][:2] == ["broker-a", "broker-b"]


def test_replicas_under_controllers_have_no_ids_and_know_all_controllers(tmp_path: Path) -> None:
    profile = find_profile("controller")
    assert [plan.role for plan in profile.plans] == ["NAMESRV"] * 3 + ["REPLICA"] * 6
    cluster = LocalCluster.create(tmp_path, profile, 20000)
    texts = {member.name: (tmp_path / "conf" / f"{member.name}.properties").read_text() for member in cluster.members}
    assert "controllerAddr=127.0.0.1:20100;127.0.0.1:20102;127.0.0.1:20104\n" in texts["broker-b-3"]
    peers = "n0-127.0.0.1:20100;n1-127.0.0.1:20102;n2-127.0.0.1:20104"
    for number, name in enumerate(("namesrv-a", "namesrv-b", "namesrv-c")):
        assert f"controllerDLegerPeers={peers}\n" in texts[name]
        assert f"controllerDLegerSelfId=n{number}\n" in texts[name]
    from sprocket_cli.server.server_config import broker_configuration

    assert broker_configuration(tmp_path / "conf" / "broker-a-1.properties", None).notices == ()


def test_brokers_for_traces_are_asked_for() -> None:
    assert "broker-trace" not in {plan.name for plan in find_profile("2m-noslave").plans}
    assert "broker-trace" in {plan.name for plan in find_profile("2m-noslave", with_trace=True).plans}


def test_a_folder_of_apache_rocketmq_gets_two_name_servers(tmp_path: Path) -> None:
    profile = find_profile(str(apache_folder(tmp_path / "2m-2s-async")))
    names = [plan.name for plan in profile.plans]
    assert names == ["namesrv-a", "namesrv-b", "broker-a", "broker-b", "broker-a-s", "broker-b-s"]


def test_files_say_what_the_profile_says_and_where_each_member_lives(tmp_path: Path) -> None:
    folder = apache_folder(tmp_path / "mine")
    with (folder / "broker-a.properties").open("a") as file:
        file.write("storePathCommitLog=/elsewhere/commitlog")
    cluster = LocalCluster.create(tmp_path / "Örtlich 日本", read_profile(folder), 20000)
    from sprocket_cli.server.server_config import broker_configuration
    from store.config.store_config import StoreConfig

    stores = set()
    for member in [*cluster.masters, *cluster.slaves]:
        file = cluster.directory / "conf" / f"{member.name}.properties"
        configuration = broker_configuration(file, None)
        assert configuration.notices == ()
        store = configuration.of(StoreConfig)
        assert store.store_path_root_dir == cluster.directory / member.name / "store"
        assert store.store_path_commit_log == cluster.directory / member.name / "store" / "commitlog"
        assert store.file_reserved_time == 48
        stores.add(store.store_path_root_dir)
    assert len(stores) == 4
    assert LocalCluster(cluster.directory).members == cluster.members


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "no configuration of a broker"),
        ({"namesrv.properties": "listenPort=1\n"}, "no configuration of a broker"),
        ({"a.conf": "listenPort=1\n"}, "neither a name server's file"),
        ({"a.conf": "brokerName=x\n", "b.conf": "brokerName=x\n"}, "a and b both have brokerName = x and brokerId = 0"),
    ],
)
def test_a_folder_that_is_no_profile(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=reason):
        read_profile(tmp_path)


def test_an_unknown_name_tells_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="2m-2s-async, 2m-2s-sync, 2m-2s-sync-proxy, 2m-noslave, controller"):
        find_profile("3m-3s")


def test_ports_have_an_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--port-base 64600"):
        LocalCluster.create(tmp_path, find_profile("2m-noslave"), 64600)
