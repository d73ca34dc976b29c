"""What a broker in DLedger mode runs, and wrong groups, each refused by name."""

from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig, BrokerRole
from sprocket.common.errors import ConfigError
from sprocket.remoting.credentials import Credentials
from sprocket_cli.server.dledger_mode import DLedgerMode, dledger_mode
from store.config.store_config import StoreConfig

PEERS = "n0-10.0.0.1:40911;n1-10.0.0.2:40911;n2-[fd00::3]:40911"


def _mode(tmp_path: Path, broker: dict[str, Any] | None = None, **store: Any) -> DLedgerMode:
    fields = {"enable_dleger_commit_log": True, "dleger_peers": PEERS, "dleger_self_id": "n1"} | store
    found = dledger_mode(
        BrokerConfig(broker_name="RaftNode00", **(broker or {})), StoreConfig(store_path_root_dir=tmp_path, **fields)
    )
    assert found is not None
    return found


def test_the_broker_is_a_replica_under_controllers_in_the_group_itself(tmp_path: Path) -> None:
    mode = _mode(tmp_path)
    assert mode.broker.enable_controller_mode
    assert mode.broker.controller_addr == "10.0.0.1:40911;10.0.0.2:40911;[fd00::3]:40911"
    assert mode.broker.broker_role is BrokerRole.SYNC_MASTER
    assert mode.controller.controller_dleger_group == "RaftNode00"
    assert mode.controller.own.port == 40911
    assert [member.port for member in mode.controller.raft_members] == [41911] * 3
    assert mode.controller.controller_store_path == tmp_path / "dledgerController"
    mode.controller.check()


@pytest.mark.parametrize(("count", "majority"), [(3, 2), (4, 3), (5, 3)])
def test_a_majority_has_each_message(tmp_path: Path, count: int, majority: int) -> None:
    peers = ";".join(f"n{at}-10.0.0.{at}:40911" for at in range(count))
    mode = _mode(tmp_path, dleger_peers=peers, all_ack_in_sync_state_set=True, enable_auto_in_sync_replicas=True)
    assert (mode.store.in_sync_replicas, mode.store.min_in_sync_replicas) == (majority, majority)
    assert not mode.store.all_ack_in_sync_state_set and not mode.store.enable_auto_in_sync_replicas


def test_a_preferred_leader_is_elected_first(tmp_path: Path) -> None:
    assert _mode(tmp_path, preferred_leader_id="n0;n1").broker.broker_election_priority == 0
    assert _mode(tmp_path, preferred_leader_id="n0").broker.broker_election_priority > 0


def test_the_controller_signs_as_its_broker_does(tmp_path: Path) -> None:
    """With ACL 1.0 alone, that is the account of ``tools.yml``."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: servers\nsecretKey: its secret\n")
    broker: dict[str, Any] = {"acl_enable": True, "rocketmq_home": str(tmp_path)}
    assert _mode(tmp_path, broker).controller.inner_credentials() == Credentials("servers", "its secret")
    configured = {"inner_client_authentication_credentials": '{"accessKey":"inner","secretKey":"another"}'}
    assert _mode(tmp_path, broker | configured).controller.inner_credentials() == Credentials("inner", "another")
    assert _mode(tmp_path).controller.inner_credentials() is None


def test_without_the_mode_there_is_nothing_to_run(tmp_path: Path) -> None:
    assert dledger_mode(BrokerConfig(), StoreConfig(store_path_root_dir=tmp_path, dleger_peers=PEERS)) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dleger_peers": ""}, "no members"),
        ({"dleger_peers": "n0-h:1;n1-h:2", "dleger_self_id": "n0"}, "name at least 3"),
        ({"dleger_self_id": "n7"}, "'n7' is not among the members"),
        ({"dleger_peers": PEERS + ";n1-10.0.0.9:1"}, "more than one member has the id n1"),
        ({"preferred_leader_id": "n9"}, "'n9' is not in dLegerPeers"),
        ({"broker": {"enable_controller_mode": True}}, "choose one of them"),
    ],
)
def test_a_wrong_group_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        _mode(tmp_path, **changes)
