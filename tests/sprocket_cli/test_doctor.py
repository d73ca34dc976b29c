"""`sprocket doctor` on this machine and a real cluster."""

import json
import socket
from pathlib import Path

from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.programs import run


def test_doctor_of_a_cluster_and_a_configuration(cluster: Cluster, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        config = tmp_path / "broker.conf"
        config.write_text(f"storePathRootDir={tmp_path / 'store'}\nlistenPort={taken.getsockname()[1]}\n")
        done = run(tmp_path, "doctor", "-n", f"{cluster.namesrv};127.0.0.1:1", "-c", str(config), "--json")
    document = json.loads(done.stdout)
    found = {(one["check"], one["level"]) for one in document["findings"]}
    assert done.returncode == 2
    assert document["level"] == "failure"
    assert ("ports", "failure") in found
    assert ("name servers", "warning") in found
    assert ("clock", "ok") in found
    assert ("versions", "ok") in found
    assert ("replicas", "ok") in found
    assert (document["findings"][0]["check"], document["findings"][0]["level"]) == ("sends", "ok")
    assert any(one["text"].startswith("broker-a id 0: no access control") for one in document["findings"])
    assert list(tmp_path.glob(".sprocket-doctor-*")) == []


def test_doctor_of_a_wrong_configuration(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("listenPort=many\n")
    done = run(tmp_path, "doctor", "-c", str(config))
    assert done.returncode == 2
    assert "listenPort" in done.stderr
