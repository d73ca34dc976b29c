"""The cluster under test: Sprocket, or with COMPAT_AGAINST=apache the original, which validates the scenarios."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat import maven
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster
from tests.compat.java_client import Outcome, run_scenarios
from tests.tiers import is_quick, sample

_KINDS: dict[str, type[Cluster]] = {"sprocket": SprocketCluster, "apache": ApacheCluster}


@pytest.fixture(scope="session")
def java() -> None:
    """Skips, with the reason, where Java or Maven is missing."""
    try:
        maven.java()
        for version in sample(maven.CLIENT_VERSIONS):
            maven.client_classpath(version)
        if not is_quick():
            maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"Java client tests: {missing}")


@pytest.fixture(scope="session")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One name server and one broker for all tests; topics and groups are each test's own."""
    kind = _KINDS[os.environ.get("COMPAT_AGAINST", "sprocket")]
    # Longer than RocketMQ gathers op messages: it would ask about what has just ended.
    properties = {
        "enablePropertyFilter": "true",
        "recallMessageEnable": "true",
        "transactionCheckInterval": "5000",
    }
    with kind(tmp_path_factory.mktemp("cluster") / "servers", properties=properties) as running:
        yield running


Runs = Callable[[str, str], dict[str, Outcome]]


@pytest.fixture(scope="session")
def runs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All scenarios of one client version and serialization, run once and remembered."""
    done: dict[tuple[str, str], dict[str, Outcome]] = {}

    def run(version: str, serialization: str) -> dict[str, Outcome]:
        key = (version, serialization)
        if key not in done:
            home: Path = tmp_path_factory.mktemp("client")
            done[key] = run_scenarios(cluster.name_server_address, version, serialization, home)
        return done[key]

    return run
