"""Every query of conf/: each metric that it names is shown by a broker that works, with the labels that it uses.

A Prometheus server also evaluates all of them.  Where none is installed, Debian's package is fetched once.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.config import ControllerConfig
from controller.live_brokers import LiveBrokers
from controller.metrics import node_metrics
from replicate.config import Config
from replicate.service import Replication
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.common.clock import SystemClock
from tests.compat import ports
from tests.compat.cluster import SprocketCluster
from tests.debian_packages import PackageMissingError, unpacked
from tests.metrics.prometheus_page import Family, scrape

pytestmark = pytest.mark.timeout(600)

CONF = Path(__file__).resolve().parents[2] / "conf"
_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^}]*)\})?")
_GROUPED = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_PREFIXES = ("rocketmq_", "sprocket_")
_PARTS = ("_bucket", "_count", "_sum")
# What Prometheus adds.
_OWN_LABELS = {"le", "job", "instance"}


def rules() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load((CONF / "prometheus" / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def panels() -> Iterator[tuple[str, str]]:
    dashboard = json.loads((CONF / "grafana" / "sprocket.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$cluster", ".*").replace("$__rate_interval", "5m")


OF_OTHERS = {
    metric.name: metric.labels
    for metric in (
        *node_metrics(ControllerConfig(), LiveBrokers(0), tuple, bool, lambda _: 0),
        *Replication(Config({}, ()), "here", SystemClock()).exported_metrics(),
    )
}
QUERIES = dict([*rules(), *panels()])


def names_and_labels(query: str) -> tuple[set[str], set[str]]:
    """Return the metrics and the labels that a query names."""
    names = {word for word in _WORD.findall(query) if word.startswith(_PREFIXES)}
    labels = {label.strip() for found in _GROUPED.findall(query) for label in found.split(",")}
    for _, selector in _SELECTOR.findall(query):
        labels |= {part.split("=")[0].rstrip("!~") for part in selector.split(",") if "=" in part}
    return names, labels - _OWN_LABELS


async def work(namesrv: str) -> None:
    """Use what the queries ask about."""

    async def undecided(*_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with (
        Producer("P", namesrv) as producer,
        TransactionProducer("PT", namesrv, checker=undecided) as transactions,
    ):
        for number in range(4):
            await producer.send(Message("T", b"%d" % number))
        await producer.send(Message("T", b"later", delay=5.0))
        await transactions.send_in_transaction(Message("T", b"half"), undecided)
        async with Consumer("G", ["T"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
            await consumer.ack(await anext(consumer))
            message = await anext(consumer)
            message.reconsume_times = 99
            await consumer.nack(message, delay_level=-1)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port at which a broker shows metrics, after work; clients are connected."""
    page_port = ports.free_port()
    properties = {
        "metricsExporterType": "PROM", "metricsPromExporterPort": str(page_port), "flushDiskType": "SYNC_FLUSH",
    }  # fmt: skip
    with SprocketCluster(tmp_path_factory.mktemp("metrics"), properties=properties) as cluster:
        asyncio.run(work(cluster.name_server_address))
        client = subprocess.Popen([sys.executable, "-c", _CLIENT, cluster.name_server_address])
        try:
            deadline = time.monotonic() + 60
            while "rocketmq_consumer_lag_messages" not in scrape(page_port):
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield page_port
        finally:
            client.terminate()
            client.wait()


_CLIENT = """
import asyncio, sys
from sprocket.client.consumer import Consumer
from sprocket.client.producer import Producer
from sprocket.client.message import Message
async def main():
    async with Consumer("G", ["T"], sys.argv[1]), Producer("P", sys.argv[1]) as producer:
        await producer.send(Message("T", b"last"))
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def families(port: int) -> dict[str, Family]:
    return scrape(port)


@pytest.mark.parametrize("title", QUERIES)
def test_query_names_what_a_broker_shows(title: str, families: dict[str, Family]) -> None:
    names, labels = names_and_labels(QUERIES[title])
    assert names or title == "ServerAway"
    for name in names:
        if name in OF_OTHERS:
            assert labels <= set(OF_OTHERS[name]), f"{name} has no labels {labels}"
            continue
        base = next((name.removesuffix(part) for part in _PARTS if name.removesuffix(part) in families), name)
        assert base in families, f"{name}: no such series"
        is_histogram = families[base].kind == "histogram"
        assert is_histogram == (base != name), f"{name}: {base} is a {families[base].kind}"
        known = {label for series in families[base].label_names for label in series}
        assert labels <= known, f"{name} has no labels {labels - known}"


def test_dashboard_asks_for_clusters_by_a_metric_that_is_there(families: dict[str, Family]) -> None:
    dashboard = json.loads((CONF / "grafana" / "sprocket.json").read_text())
    queries = [one["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert queries == ["label_values(rocketmq_broker_permission, cluster)"]
    assert "rocketmq_broker_permission" in families


@pytest.fixture(scope="module")
def programs() -> Path:
    """Folder of the server and of promtool."""
    found = shutil.which("prometheus")
    if found is not None:
        return Path(found).parent
    try:
        return unpacked(["prometheus"], limit_s=120) / "usr/bin"
    except PackageMissingError as missing:
        pytest.skip(str(missing))


def test_prometheus_evaluates_the_queries(programs: Path, port: int, tmp_path: Path) -> None:
    shutil.copy(CONF / "prometheus" / "alerts.yml", tmp_path)
    config: dict[str, Any] = yaml.safe_load((CONF / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    own = ports.free_port()
    command = [
        programs / "prometheus", f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{own}",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            _await_series(own, "rate(rocketmq_messages_in_total[1m])")
            empty = {"ServerAway", *(title for title, _ in rules())}  # alerts are silent while all is well
            for title, query in QUERIES.items():
                found = _ask(own, query)
                assert found or title in empty, f"{title}: no series"
        finally:
            server.terminate()


LOST = [
    # What is lost, the series each minute, and the alerts 10 minutes later.
    ("nothing", {"sends_confirmed": "1x20", "replicas_in_sync": "3x20", "replicas_gone": "0x20"}, []),
    ("slave", {"sends_confirmed": "1x20", "replicas_in_sync": "3x5 2x15"}, ["FewerReplicas"]),
    ("replica", {"sends_confirmed": "1x20", "replicas_gone": "0x5 1x15"}, ["ReplicaGone"]),
    ("both slaves", {"sends_confirmed": "1x5 0x15"}, ["SendsNotConfirmed"]),
    ("group", {"sends_confirmed": "1x5 stale"}, ["SendsNotConfirmed"]),
    ("lease", {"replication_lease_held": "1x5 0x15"}, ["ReplicationStopped"]),
    ("replicator", {"replication_lease_held": "1x5 stale"}, ["ReplicationStopped"]),
]
OF_NODE, OF_SET = {"cluster": "C", "node_id": "b"}, {"cluster": "C", "broker_set": "b"}
OF_LINK = {"source": "east", "target": "west"}


@pytest.mark.parametrize(("series", "expected"), [row[1:] for row in LOST], ids=[row[0] for row in LOST])
def test_alerts_of_what_is_lost(programs: Path, tmp_path: Path, series: dict[str, str], expected: list[str]) -> None:
    shutil.copy(CONF / "prometheus" / "alerts.yml", tmp_path)
    alerts = {
        "SendsNotConfirmed": (OF_NODE, "critical", "sends to b fail, or are answered SLAVE_NOT_AVAILABLE"),
        "ReplicaGone": (OF_SET, "critical", "replicas of b that send the controllers no heartbeats: 1"),
        "FewerReplicas": (OF_NODE, "warning", "replicas of b in sync: 2, fewer than in the last day"),
        "ReplicationStopped": (OF_LINK, "critical", "no replicator copies from east to west"),
    }

    def firing(alert: str) -> dict[str, Any]:
        own, severity, summary = alerts[alert]
        labels = {"severity": severity} | own
        fires = [{"exp_labels": labels, "exp_annotations": {"summary": summary}}] if alert in expected else []
        return {"eval_time": "16m", "alertname": alert, "exp_alerts": fires}

    def selector(name: str) -> str:
        labels = {"replicas_gone": OF_SET, "replication_lease_held": OF_LINK}.get(name, OF_NODE)
        return f"sprocket_{name}{{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"

    one = {
        "interval": "1m",
        "input_series": [{"series": selector(name), "values": values} for name, values in series.items()],
        "alert_rule_test": [firing(alert) for alert in alerts],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [one]}))
    done = subprocess.run(
        [programs / "promtool", "test", "rules", tmp_path / "test.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _ask(port: int, query: str) -> list[Any]:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=30) as answer:
        body = json.loads(answer.read())
    assert body["status"] == "success", body
    result: list[Any] = body["data"]["result"]
    return result


def _await_series(port: int, query: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if _ask(port, query):
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError(f"no series of {query}")
