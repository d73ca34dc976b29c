"""Health of real servers: a broker is ready once a name server has accepted it."""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.compat.ports import free_port
from tests.sprocket_cli.programs import BROKER_FLAGS, server


def ready(port: int) -> tuple[int, dict[str, str]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=30) as answer:
            return answer.status, json.load(answer)["checks"]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["checks"]


def test_a_broker_is_ready_while_a_name_server_knows_it(tmp_path: Path) -> None:
    namesrv_health, broker_health, namesrv_port = free_port(), free_port(), free_port()
    with server(
        tmp_path, "broker", "-n", f"127.0.0.1:{namesrv_port}", *BROKER_FLAGS, "--set", f"healthPort={broker_health}"
    ):
        status, checks = ready(broker_health)
        assert (status, checks["recovered"], checks["disk"], checks["role"]) == (503, "UP", "UP", "UP")
        assert "no name server" in checks["registered"]
        flags = ("--set", f"listenPort={namesrv_port}", "--set", f"healthPort={namesrv_health}")
        with server(tmp_path, "namesrv", *flags):
            assert ready(namesrv_health) == (200, {"listening": "UP"})
            deadline = time.monotonic() + 60
            while ready(broker_health)[0] != 200:
                assert time.monotonic() < deadline, ready(broker_health)
                time.sleep(0.2)
