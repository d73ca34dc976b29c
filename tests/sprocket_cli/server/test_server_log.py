"""Logs of real servers: a file of JSON lines, and levels that change while a broker runs."""

import json
from pathlib import Path

from tests.compat.ports import free_port
from tests.sprocket_cli.programs import BROKER_FLAGS, run, server


def test_levels_of_a_running_broker(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "broker.log"
    flags = ("--set", f"logFile={file}", "--set", "logJson=true", "--set", "logLevels=root=WARNING")

    def events() -> list[str]:
        return [json.loads(line).get("event", "") for line in file.read_text().splitlines()]

    def update(key: str, value: str) -> tuple[int, str]:
        words = ("-n", "127.0.0.1:9876", "-b", address, "-k", key, "-v", value)
        ended = run(tmp_path, "updateBrokerConfig", *words, program="mqadmin")
        return ended.returncode, ended.stdout + ended.stderr

    with server(tmp_path, "broker", *BROKER_FLAGS, *flags) as broker:
        address = f"127.0.0.1:{broker.port}"
        assert update("maxTransferCountOnMessageInMemory", "48")[0] == 0
        assert "config_updated" not in events()
        assert update("logLevels", "root=WARNING,broker.processor=INFO")[0] == 0
        assert events()[-2:] == ["log_levels_changed", "config_updated"]
        status, said = update("logLevels", "broker=LOUD")
        assert status != 0
        assert "with level DEBUG, INFO, WARN, WARNING, ERROR" in said
        assert update("logLevels", "root=ERROR")[0] == 0
        # The line that tells of the change is written before the change.
        assert events()[-1] == "log_levels_changed"
        assert broker.stop() == 0
        assert "event=" not in broker.log.read_text()


def test_a_log_file_that_cannot_be_written_stops_no_server(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    flags = ("--set", "listenPort=0", "--set", f"logFile={tmp_path / 'taken' / 'namesrv.log'}")
    with server(tmp_path, "namesrv", *flags) as name_server:
        assert name_server.stop() == 0
        told = name_server.log.read_text()
    assert told.count("event=log_file_lost") == 1
    assert "event=signal name=SIGTERM" in told


def test_levels_of_a_running_name_server_and_of_its_controller(tmp_path: Path) -> None:
    port = free_port()
    keys = {
        "listenPort": 0,
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "g",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": tmp_path / "controller",
    }
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    with server(tmp_path, "namesrv", *flags) as name_server:
        asked = ("-k", "logLevels", "-v", "namesrv=DEBUG")
        ended = run(tmp_path, "updateNamesrvConfig", "-n", f"127.0.0.1:{name_server.port}", *asked, program="mqadmin")
        assert ended.returncode == 0, ended.stderr
        asked = ("-k", "logLevels", "-v", "controller=DEBUG")
        ended = run(tmp_path, "updateControllerConfig", "-a", f"127.0.0.1:{port}", *asked, program="mqadmin")
        assert ended.returncode == 0, ended.stderr
        assert name_server.stop() == 0
        changes = [line for line in name_server.log.read_text().splitlines() if "event=log_levels_changed" in line]
    assert [line.rpartition(" ")[2] for line in changes] == ["levels='namesrv=DEBUG'", "levels='controller=DEBUG'"]


def test_each_worker_of_a_proxy_has_a_log_file_of_its_own(tmp_path: Path) -> None:
    keys = {"proxyProcesses": 2, "grpcServerPort": 0, "remotingListenPort": -1, "logFile": tmp_path / "proxy.log"}
    flags = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    folder = tmp_path / "home"
    folder.mkdir()
    with server(folder, "proxy", "-n", "127.0.0.1:1", *flags) as proxy:
        assert proxy.stop() == 0
    assert {file.name for file in tmp_path.glob("*.log")} == {"proxy.log", "proxy-0.log", "proxy-1.log"}
    assert "event=signal name=SIGTERM" in (tmp_path / "proxy-1.log").read_text()
    assert "log_file_lost" not in proxy.log.read_text()
