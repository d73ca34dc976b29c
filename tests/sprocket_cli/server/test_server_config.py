"""A server's configuration from file and flags, and the durability that it is said to give."""

from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerConfig, BrokerRole
from sprocket.common.errors import ConfigError
from sprocket_cli.server.server_config import broker_configuration, durability
from store.config.store_config import FlushDiskType, StoreConfig


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("namesrvAddr=a:1\nlistenPort=1\nflushDiskType=SYNC_FLUSH\n")
    made = broker_configuration(file, "b:2", ["listenPort=3"])
    assert made.of(BrokerConfig).name_servers == ["b:2"]
    assert made.of(BrokerConfig).listen_port == 3
    assert made.of(StoreConfig).flush_disk_type is FlushDiskType.SYNC_FLUSH


def test_name_servers_of_the_environment_are_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "x:1; y:2")
    assert broker_configuration(None, None).of(BrokerConfig).name_servers == ["x:1", "y:2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("namesrvAddr=localhost", "allowed is host:port"),
        ("brokerId=1", "a broker with role ASYNC_MASTER needs brokerId 0"),
        ("brokerRole=SLAVE", "a broker with role SLAVE needs a brokerId above 0"),
        ("brokerRole=LEADER", "allowed is ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ("brokerName=", "allowed is text that is not empty"),
        ("brokerPermission=5", "allowed is 2 or 4 or 6"),
        ("mappedFileSizeCommitLog=17", "mappedFileSizeCommitLog = '17'"),
        ("messageDelayLevel=1s 2x", "messageDelayLevel"),
    ],
)
def test_what_cannot_be_started_with_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        broker_configuration(file, None)
    assert str(caught.value).startswith(f"{file}:")


def test_override_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed is key=value"):
        broker_configuration(None, None, ["listenPort"])


def test_durability_says_what_a_power_cut_costs() -> None:
    broker = BrokerConfig(broker_role=BrokerRole.ASYNC_MASTER)
    lazy = durability(broker, StoreConfig(flush_commit_log_thorough_interval=3_000))
    assert "may lose up to the last 3 s" in lazy
    strict = durability(broker, StoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH))
    assert "survives a crash and a power cut" in strict
    assert "one copy" in lazy
    assert "one copy" in strict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ("1 slave has", "in memory at the least", "SLAVE_NOT_AVAILABLE", "may lose up to the last 10 s")),
        ({"in_sync_replicas": 3, "min_in_sync_replicas": 2}, ("2 slaves have", "fewer than 2 replicas in sync sends")),
        ({"ha_ack_flushed_offset": True, "all_ack_in_sync_state_set": True}, ("all slaves in sync have", "on disk")),
        ({"enable_auto_in_sync_replicas": True}, ("1 slave has", "fewer if fewer are in sync, down to 1 replica with")),
        ({"flush_disk_type": FlushDiskType.SYNC_FLUSH}, ("survives a crash and a power cut; SEND_OK",)),
    ],
)
def test_durability_says_what_slaves_add(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    said = durability(BrokerConfig(broker_role=BrokerRole.SYNC_MASTER), StoreConfig(**changes))
    assert [word for word in words if word not in said] == [], said


def test_a_slave_promises_no_send() -> None:
    said = durability(BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1), StoreConfig())
    assert said.startswith("SLAVE takes no sends")
    assert "within 10 s" in said
