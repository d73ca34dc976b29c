"""The configuration file, and what it may not say."""

import json
from pathlib import Path

import pytest

from proxy.config import ProxyConfig, load
from sprocket.common.errors import ConfigError


def _file(folder: Path, content: object) -> Path:
    path = folder / "rmq-proxy.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def test_keys_are_read_and_overridden(tmp_path: Path) -> None:
    path = _file(tmp_path, {"rocketMQClusterName": "C", "grpcServerPort": 1234, "enableProxyAutoRenew": False})
    config = load(path, {"grpcServerPort": "99"}).of(ProxyConfig)
    assert (config.rocketmq_cluster_name, config.grpc_server_port) == ("C", 99)
    assert not config.enable_proxy_auto_renew


def test_unknown_and_unsupported_keys_are_named_with_their_lines(tmp_path: Path) -> None:
    path = _file(tmp_path, {"grpcServrPort": 1, "grpcThreadPoolNums": 4})
    first, second = load(path, {}).notices
    assert first.endswith("rmq-proxy.json:2: grpcServrPort: unknown key; did you mean grpcServerPort?")
    assert "rmq-proxy.json:3: grpcThreadPoolNums: a key of RocketMQ (ProxyConfig" in second


def test_lists_and_objects_are_values(tmp_path: Path) -> None:
    path = _file(tmp_path, {"listeners": [{"name": "lan", "port": 8091, "advertise": "10.0.0.5:8091"}]})
    (listener,) = load(path, {}).of(ProxyConfig).named_listeners
    assert (listener.name, listener.port, listener.advertise) == ("lan", 8091, ("10.0.0.5", 8091))


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("no json", "not JSON"),
        ("[]", "one JSON object"),
        ({"proxyMode": "remote"}, "proxyMode"),
        ({"grpcServerPort": "x"}, "grpcServerPort"),
        ({"grpcServerPort": 70000}, "grpcServerPort"),
        ({"messageDelayLevel": "1y"}, "messageDelayLevel"),
        ({"tlsTestModeEnable": False}, "tlsKeyPath"),
        ({"tlsServerMode": "on"}, "tlsServerMode"),
        ({"proxyProcesses": 2, "metricsExporterType": "PROM", "metricsPromExporterPort": 0}, "metricsPromExporterPort"),
        ({"metricCollectorMode": "on", "metricCollectorAddress": "x"}, "metricCollectorAddress"),
    ],
)
def test_wrong_values_stop_the_start(tmp_path: Path, content: object, names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        load(_file(tmp_path, content), {})


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load(tmp_path / "nowhere.json", {})
