"""The configuration of a controller: what it cannot start with is named, with what to do."""

from pathlib import Path
from typing import Any

import pytest

from controller.config import ControllerConfig
from controller.server import Controller
from sprocket.common.errors import ConfigError
from sprocket_cli.server.server_config import controller_configuration, namesrv_configuration

GOOD = "controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-a.example:9878;n1-a.example:9868\ncontrollerDLegerSelfId=n1\n"


def configured(tmp_path: Path, text: str) -> ControllerConfig:
    file = tmp_path / "controller.conf"
    file.write_text(text)
    config = controller_configuration(file).of(ControllerConfig)
    config.require()
    return config


def test_the_port_of_the_own_peer_is_listened_on(tmp_path: Path) -> None:
    config = configured(tmp_path, GOOD)
    assert (config.own.id, config.own.host, config.own.port) == ("n1", "a.example", 9868)
    assert [member.port for member in config.raft_members] == [10878, 10868]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"controllerDLegerSelfId": "n9"}, "own id 'n9' is not among the members n0, n1"),
        ({"controllerDLegerPeers": "n0-a:1;n0-b:1"}, "more than one member has the id n0"),
        ({"controllerDLegerPeers": "n0-a:1;n1-a:1"}, "more than one member has the address a:1"),
        ({"controllerDLegerPeers": "n0-a"}, "'n0-a' is not a member of a group"),
        ({"controllerDLegerPeers": "n1-a:65000"}, "the port of n1 would be 66000: lower it"),
        ({"controllerDLegerPeers": "n0-a:1;n1-a:1001"}, "is that of n1 for brokers: choose another distance"),
        ({"controllerDLegerPeers": ""}, "controllerDLegerPeers: a controller needs controllerDLegerPeers"),
        ({"controllerDLegerGroup": " "}, "a controller needs controllerDLegerGroup"),
        ({"controllerType": "jRaft", "controllerDLegerPeers": ""}, "jRaft's own keys are not read"),
        ({"controllerType": "Zab"}, "allowed is DLedger or jRaft"),
        ({"electMasterMaxRetryCount": "0"}, "an integer from 1 to 100"),
    ],
)
def test_what_a_controller_cannot_start_with_is_named(tmp_path: Path, changes: dict[str, str], says: str) -> None:
    text = GOOD + "".join(f"{key}={value}\n" for key, value in changes.items())
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        configured(tmp_path, text)


def test_an_unknown_key_is_reported_with_the_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "controller.conf"
    file.write_text(GOOD + "isProcessReadEvent=true\nmappedFileSize=1048576\n")
    unknown, unsupported = controller_configuration(file).notices
    assert unknown.endswith("isProcessReadEvent: unknown key; did you mean processReadEvent?")
    assert "mappedFileSize: a key of RocketMQ" in unsupported and "has no effect" in unsupported


def test_a_name_server_reads_the_keys_of_its_controller(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(GOOD + "listenPort=9876\nenableControllerInNamesrv=true\n")
    configuration = namesrv_configuration(file)
    assert configuration.notices == ()
    assert configuration.of(ControllerConfig).own.port == 9868
    # Without a controller its keys are not judged.
    file.write_text("listenPort=9876\ncontrollerDLegerPeers=x\n")
    plain = namesrv_configuration(file)
    assert len(plain.notices) == 1
    with pytest.raises(KeyError):
        plain.of(ControllerConfig)


async def test_the_store_of_a_controller_of_rocketmq_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    fields: dict[str, Any] = {
        "controller_dleger_group": "g", "controller_dleger_peers": "n0-127.0.0.1:9878",
        "controller_dleger_self_id": "n0", "controller_store_path": tmp_path,
    }  # fmt: skip
    controller = Controller(ControllerConfig(**fields), on_fatal=lambda error: None)
    with pytest.raises(ConfigError, match=r"dledger-n0 is the store of a controller of RocketMQ"):
        await controller.start()
