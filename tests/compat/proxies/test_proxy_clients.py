"""Unmodified RocketMQ 5 clients work against the proxy: Java, Python, Node and Go."""

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sprocket.testing import Broker
from tests.compat import java_client, maven
from tests.compat.java_client import Outcome
from tests.compat.proxies import proxy_clients
from tests.compat.proxies.proxy_rig import PROPERTIES, ProxyProcess, check, prepare

pytest.importorskip("grpc")

Runner = Callable[[str, str, Sequence[str], Path], dict[str, Outcome]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker"), properties=PROPERTIES) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    process = ProxyProcess(broker, tmp_path_factory.mktemp("proxy"))
    process.start()
    yield process
    process.end(signal.SIGTERM)


@pytest.mark.java
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_java(broker: Broker, proxy: ProxyProcess, tmp_path: Path, tls: bool) -> None:
    run = f"java-{'tls' if tls else 'plain'}"
    scenarios = ("normal-simple", "fifo") if tls else proxy_clients.JAVA_SCENARIOS
    prepare(broker, run, scenarios)
    try:
        outcomes = proxy_clients.run_java(proxy.endpoints, run, scenarios, tmp_path, tls=tls)
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    check(outcomes, scenarios)


@pytest.mark.parametrize(
    ("name", "runner", "scenarios"),
    [
        ("python", proxy_clients.run_python, proxy_clients.PYTHON_SCENARIOS),
        ("node", proxy_clients.run_node, proxy_clients.NODE_SCENARIOS),
        ("go", proxy_clients.run_go, proxy_clients.GO_SCENARIOS),
    ],
)
def test_other_languages(
    broker: Broker, proxy: ProxyProcess, tmp_path: Path, name: str, runner: Runner, scenarios: Sequence[str]
) -> None:
    prepare(broker, name, scenarios)
    try:
        outcomes = runner(proxy.endpoints, name, scenarios, tmp_path)
    except proxy_clients.ClientMissingError as missing:
        pytest.skip(str(missing))
    check(outcomes, scenarios)


# The proxy creates no topics, and as RocketMQ's it answers no lookups of messages, no request-reply, and no checks of
# filters.
_NOT_AT_A_PROXY = frozenset({"batch-queue", "query-by-key", "request-reply", "sql-filter-refused", "view-message"})
_REMOTING = tuple(
    name for name in (*java_client.SCENARIOS, *java_client.TIMER_SCENARIOS) if name not in _NOT_AT_A_PROXY
)


@pytest.mark.java
@pytest.mark.parametrize(("version", "serialization"), [("4.9.8", "ROCKETMQ"), ("5.3.3", "JSON")])
def test_stock_java_clients_at_the_remoting_port(
    broker: Broker, tmp_path: Path, version: str, serialization: str
) -> None:
    scenarios = [name for name in _REMOTING if version == "5.3.3" or not name.startswith("timer")]
    # The scenarios create topics of one type, and send all kinds.
    process = ProxyProcess(broker, tmp_path / "proxy", settings={"enableTopicMessageTypeCheck": "false"}).start()
    try:
        outcomes = java_client.run_scenarios(
            process.remoting_address, version, serialization, tmp_path / "home", tuple(scenarios),
            create_at=broker.namesrv,
        )  # fmt: skip
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    finally:
        process.end(signal.SIGTERM)
    check(outcomes, scenarios)


def test_go_client_at_the_remoting_port(broker: Broker, proxy: ProxyProcess, tmp_path: Path) -> None:
    broker.create_topic("RemotingGo")
    try:
        outcomes = proxy_clients.run_remoting_go(proxy.remoting_address, "RemotingGo", 40, tmp_path)
    except proxy_clients.ClientMissingError as missing:
        pytest.skip(str(missing))
    check(outcomes, ["push"])
