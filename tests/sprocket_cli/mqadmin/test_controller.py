"""`mqadmin` about controllers, against a controller process and one inside a name server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat import wire
from tests.compat.ports import free_port
from tests.sprocket_cli.programs import ServerProcess, run, server

BROKER = "127.0.0.1:41"


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[str]:
    """Address of a controller alone."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with server(tmp_path, "controller", *flags(tmp_path, port)):
        await_leader(address)
        yield address


def await_leader(address: str) -> None:
    """Until the controller leads: its own vote needs a moment."""
    deadline = time.monotonic() + 30
    while wire.invoke(address, 1005).fields.get("isLeader") != "true":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def flags(folder: Path, port: int) -> list[str]:
    values = {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerRaftPortOffset": "1",
        "controllerStorePath": str(folder / "controller"),
    }
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def admin(folder: Path, *arguments: str, fails: bool = False) -> str:
    done = run(folder, *arguments, program="mqadmin")
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stderr if fails else done.stdout


def register(controller: str, broker_id: int) -> None:
    """A broker of the group asks for its id."""
    names = {"clusterName": "c", "brokerName": "broker-a"}
    apply = {**names, "appliedBrokerId": str(broker_id), "registerCheckCode": f"{BROKER}{broker_id};1"}
    assert wire.invoke(controller, 1013, apply).code == 0


def test_metadata_and_configuration(tmp_path: Path, controller: str) -> None:
    said = admin(tmp_path, "getControllerMetaData", "-a", controller)
    assert said == (
        f"\n#ControllerGroup\tgroup1\n#ControllerLeaderId\tn0\n#ControllerLeaderAddress\t{controller}\n"
        f"#Peer:\tn0:{controller}\n"
    )
    assert json.loads(admin(tmp_path, "getControllerMetaData", "-a", controller, "--json"))["isLeader"] is True
    said = admin(tmp_path, "updateControllerConfig", "-a", controller, "-k", "enableElectUncleanMaster", "-v", "true")
    assert said == f"update controller config success![{controller}]\nenableElectUncleanMaster : true\n"
    shown = admin(tmp_path, "getControllerConfig", "-a", controller)
    assert shown.startswith(f"============{controller}============\n")
    assert f"{'enableElectUncleanMaster':<50}=  true\n" in shown
    refused = admin(
        tmp_path, "updateControllerConfig", "-a", controller, "-k", "controllerStorePath", "-v", "/", fails=True
    )
    assert "Can not update controllerStorePath" in refused


def test_elections_and_clean_up(tmp_path: Path, controller: str) -> None:
    for broker_id in (1, 2):
        register(controller, broker_id)
    group = ("-bn", "broker-a", "-c", "c")
    said = admin(tmp_path, "electMaster", "-a", controller, "-b", "1", *group)
    assert said == (
        f"\n#ClusterName\tc\n#BrokerName\tbroker-a\n#BrokerMasterAddr\t{BROKER}1\n#MasterEpoch\t1\n"
        f"#SyncStateSetEpoch\t1\n\t#Broker\t1\t{BROKER}1\n\t#Broker\t2\t{BROKER}2\n"
    )
    said = admin(tmp_path, "getSyncStateSet", "-a", controller, "-b", "broker-a")
    first, second = (
        f"ReplicaIdentity{{brokerName='broker-a', brokerId={one}, brokerAddress='{BROKER}{one}', alive=false}}"
        for one in (1, 2)
    )
    assert said == (
        f"\n#brokerName\tbroker-a\n#MasterBrokerId\t1\n#MasterAddr\t{BROKER}1\n#MasterEpoch\t1\n#SyncStateSetEpoch\t1\n"
        f"#SyncStateSetNums\t1\n\nInSyncReplica:\t{first}\n\nNotInSyncReplica:\t{second}\n"
    )
    refused = admin(tmp_path, "electMaster", "-a", controller, "-b", "2", *group, fails=True)
    assert "CODE: 2012  DESC: Failed to elect a new master" in refused
    said = admin(tmp_path, "cleanBrokerMetadata", "-a", controller, "-b", "2", *group)
    assert said == "clear broker broker-a metadata from controller success! \n"
    refused = admin(tmp_path, "cleanBrokerMetadata", "-a", controller, *group, fails=True)
    assert "Broker broker-a is still alive, clean up failure" in refused
    assert "give -c" in admin(tmp_path, "cleanBrokerMetadata", "-a", controller, "-bn", "broker-a", fails=True)
    admin(tmp_path, "cleanBrokerMetadata", "-a", controller, "-bn", "broker-a", "-l")
    assert admin(tmp_path, "getSyncStateSet", "-a", controller, "-b", "broker-a") == ""
    assert "give exactly one of -b and -c" in admin(tmp_path, "getSyncStateSet", "-a", controller, fails=True)


def test_a_controller_in_a_name_server(tmp_path: Path) -> None:
    port = free_port()
    in_namesrv = ("--set", "enableControllerInNamesrv=true", "--set", "listenPort=0", *flags(tmp_path, port))
    with server(tmp_path, "namesrv", *in_namesrv) as process:
        assert isinstance(process, ServerProcess)
        await_leader(f"127.0.0.1:{port}")
        said = admin(tmp_path, "getControllerMetaData", "-a", f"127.0.0.1:{port}")
        assert f"#ControllerLeaderAddress\t127.0.0.1:{port}\n" in said
        # No broker has controller mode yet: there is nothing to ask for epochs.
        namesrv = f"127.0.0.1:{process.port}"
        refused = admin(tmp_path, "getBrokerEpoch", "-n", namesrv, "-b", "broker-a", fails=True)
        assert "broker group broker-a is not known to the name server" in refused
        assert process.stop() == 0


def test_wrong_peers_stop_the_start(tmp_path: Path) -> None:
    wrong = [*flags(tmp_path, free_port()), "--set", "controllerDLegerSelfId=n7"]
    done = run(tmp_path, "controller", *wrong)
    assert done.returncode == 2
    assert "own id 'n7' is not among the members n0" in done.stderr
    assert "a controller needs controllerDLegerGroup" in run(tmp_path, "controller").stderr


def test_a_group_is_not_taken_over_unless_its_master_answers(tmp_path: Path, controller: str) -> None:
    register(controller, 1)
    file = tmp_path / "brokerGroups.json"
    export = ("exportBrokerGroups", "-a", controller, "-f", str(tmp_path), "-b")
    assert "is not known there, or has no master now" in admin(tmp_path, *export, "nobody", fails=True)
    assert "is not known there, or has no master now" in admin(tmp_path, *export, "broker-a", fails=True)
    assert not file.exists()
    take = ("importBrokerGroups", "-a", controller, "-f", str(file))
    assert "does not exists" in admin(tmp_path, *take, fails=True)
    file.write_text('[{"clusterName": "c"}]')
    assert "is no JSON list of BrokerGroupState" in admin(tmp_path, *take, fails=True)
    state = {
        "clusterName": "c", "brokerName": "broker-b", "brokers": {"1": f"127.0.0.1:{free_port()}"}, "nextBrokerId": 2,
        "masterBrokerId": 1, "masterEpoch": 3, "syncStateSetEpoch": 4,
    }  # fmt: skip
    file.write_text(json.dumps([state]))
    assert "the master of broker-b does not answer" in admin(tmp_path, *take, fails=True)
    assert wire.invoke(controller, 1004, {"brokerName": "broker-b"}).code != 0
