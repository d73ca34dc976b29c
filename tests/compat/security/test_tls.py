"""Stock Java clients and mqadmin over TLS: the three modes, mutual TLS, and refusals."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.compat.cluster import SprocketCluster
from tests.compat.java_client import mqadmin, run_scenarios
from tests.compat.ports import free_port_base

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

# One of each kind of client.
_SCENARIOS = ("sync-send", "batch-send", "concurrent-push", "lite-pull-subscribe", "transactions", "pop-push")
_FEW = ("sync-send", "concurrent-push")
_BROKER = """
brokerName=broker-a
brokerClusterName=Secure
transactionCheckInterval=5000
diskSpaceWarningLevelRatio=100
diskMaxUsedSpaceRatio=100
brokerFastFailureEnable=false
mappedFileSizeCommitLog=67108864
"""


@dataclass(frozen=True)
class Secure:
    """A cluster of name servers and a broker that demand TLS and certificates, made by two commands."""

    namesrv: str
    tls: Path
    logs: Path


def sprocket(*arguments: str) -> None:
    command = [sys.executable, "-I", "-m", "sprocket_cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def secure(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    root = tmp_path_factory.mktemp("secure")
    (root / "profile").mkdir()
    (root / "profile" / "broker-a.properties").write_text(_BROKER)
    tls, cluster, port = root / "tls", root / "cluster", free_port_base()
    sprocket("tls", "init", str(tls))
    up = "cluster", "up", str(root / "profile"), "--tls", str(tls), "--port-base", str(port)
    sprocket(*up, "--directory", str(cluster))
    yield Secure(f"127.0.0.1:{port};127.0.0.1:{port + 1}", tls, cluster / "logs")
    sprocket("cluster", "down", "--directory", str(cluster))


def _java(monkeypatch: pytest.MonkeyPatch, **properties: object) -> None:
    """What a JVM that is started now gets; underscores stand for the dots of a key."""
    words = [f"-D{key.replace('_', '.')}={value}" for key, value in properties.items()]
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(words))


def _failures(namesrv: str, home: Path, scenarios: tuple[str, ...]) -> dict[str, str]:
    outcomes = run_scenarios(namesrv, "5.3.3", "JSON", home, scenarios)
    assert set(outcomes) == set(scenarios)
    return {name: outcome.message for name, outcome in outcomes.items() if not outcome.passed}


# Enforcing, with certificates of clients


def test_clients_with_a_certificate(secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(monkeypatch, tls_enable="true", tls_config_file=secure.tls / "client.properties")
    assert _failures(secure.namesrv, tmp_path, _SCENARIOS) == {}


def test_mqadmin_with_a_certificate(secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(monkeypatch, tls_enable="true", tls_config_file=secure.tls / "client.properties")
    done = mqadmin(tmp_path, "clusterList", "-n", secure.namesrv)
    assert "broker-a" in done.stdout and "Secure" in done.stdout, done.stdout + done.stderr


def test_who_is_refused(secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(monkeypatch, tls_enable="false")
    assert _failures(secure.namesrv, tmp_path / "plain", ("sync-send",))
    trust = {"tls_test_mode_enable": "false", "tls_client_authServer": "true"}
    _java(monkeypatch, tls_enable="true", tls_client_trustCertPath=secure.tls / "ca.pem", **trust)
    assert _failures(secure.namesrv, tmp_path / "nameless", ("sync-send",))
    # A client asks either of the two.
    log = "".join((secure.logs / f"namesrv-{name}.log").read_text() for name in "ab")
    assert "event=connection_refused kind=plain" in log and "PEER_DID_NOT_RETURN_A_CERTIFICATE" in log


# Permissive, as a broker is by default, and disabled


def test_plain_clients_and_those_of_the_test_mode_share_a_broker(
    java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SprocketCluster(tmp_path / "servers") as cluster:
        for enable in ("true", "false"):
            _java(monkeypatch, tls_enable=enable)
            assert _failures(cluster.name_server_address, tmp_path / enable, _FEW) == {}


def test_a_broker_that_has_it_disabled(java: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SprocketCluster(tmp_path / "servers", properties={"tls.server.mode": "disabled"}) as cluster:
        _java(monkeypatch, tls_enable="true")
        assert _failures(cluster.name_server_address, tmp_path, ("sync-send",))
        assert "event=connection_refused kind=tls " in cluster.brokers[0].output.read_text()
