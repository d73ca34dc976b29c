"""`mqproxy` in local mode, `sprocket standalone --proxy`, and what is said without grpcio."""

import importlib.util
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket.common.processes.child_process import ChildProcess, bound
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker
from sprocket_cli.main import main
from tests.compat.ports import free_port
from tests.proxy.rig import ENDPOINTS, GrpcClient

pytest.importorskip("grpc")
_START_LIMIT_S = 60.0


def test_missing_grpcio_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "grpc" else found(name, *more))
    for command in (["proxy", "-n", "127.0.0.1:1"], ["standalone", "--proxy"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 2 and "sprocket-mq[proxy]" in result.output


def test_keys_are_printed() -> None:
    result = CliRunner().invoke(main, ["proxy", "-p", "-n", "127.0.0.1:9876", "--set", "grpcServerPort=77"])
    assert result.exit_code == 0
    assert "grpcServerPort=77" in result.output and "namesrvAddr=127.0.0.1:9876" in result.output


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[ChildProcess]]:
    """Processes that the test ends."""
    processes: list[ChildProcess] = []
    yield processes
    for process in processes:
        process.end(signal.SIGTERM)


async def _serves(port: int, cluster: str) -> None:
    """Brokers have a topic of their cluster's name."""
    client = GrpcClient(port, "client")
    request = wire.QueryRouteRequest(topic=wire.Resource(name=cluster), endpoints=ENDPOINTS)
    answer = await client.call("QueryRoute", request)
    assert answer.status.code == wire.OK and answer.message_queues
    await client.close()


async def test_standalone_has_a_proxy(tmp_path: Path, started: list[ChildProcess]) -> None:
    broker_port, namesrv_port = free_port(), free_port()
    command = [*bound("sprocket_cli", "standalone"), "--store", str(tmp_path / "store"), "--json", "--proxy"]
    command += ["--port", str(broker_port), "--namesrv-port", str(namesrv_port), "--proxy-port", "0"]
    command += ["--set", f"mappedFileSizeCommitLog={128 * 1024 * 1024}"]
    process = ChildProcess("standalone", command, tmp_path)
    process.launch()
    started.append(process)
    facts = process.facts(_START_LIMIT_S)
    assert facts["port"] == broker_port and "dashboardPort" not in facts
    await _serves(int(str(facts["proxyPort"])), "DefaultCluster")


async def test_local_mode_has_a_broker(tmp_path: Path, started: list[ChildProcess]) -> None:
    port, broker_port = free_port(), free_port()
    (tmp_path / "broker.conf").write_text(
        f"brokerClusterName = Local\nbrokerName = local-a\nlistenPort = {broker_port}\nbrokerIP1 = 127.0.0.1\n"
        f"storePathRootDir = {tmp_path / 'local'}\nmappedFileSizeCommitLog = {128 * 1024 * 1024}\n"
    )
    (tmp_path / "rmq-proxy.json").write_text(
        json.dumps({"grpcServerPort": port, "remotingListenPort": 0, "bindAddress": "127.0.0.1"})
    )
    with Broker(tmp_path / "other") as broker:
        command = [*bound("sprocket_cli", "proxy"), "-n", broker.namesrv, "-pm", "local", "--json"]
        command += ["-bc", str(tmp_path / "broker.conf"), "-pc", str(tmp_path / "rmq-proxy.json")]
        process = ChildProcess("proxy", command, tmp_path)
        process.launch()
        started.append(process)
        facts = process.facts(_START_LIMIT_S)
        assert facts["proxyMode"] == "LOCAL" and facts["cluster"] == "Local"
        await _serves(port, "Local")
        process.end(signal.SIGTERM, 40.0)
        assert process.exit_status in (0, None)
