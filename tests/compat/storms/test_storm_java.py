"""Every kind with both stock Java clients, while consumers join and leave and both brokers are restarted."""

from collections.abc import Callable, Iterator

import pytest

from tests.compat.cluster import Cluster
from tests.compat.storms.clients import JAVA, java_command
from tests.compat.storms.storm import WEATHER, Report, Role, start_storm, storm_cluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]
CASES = [(client.version, kind) for client in JAVA for kind in client.kinds]


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with storm_cluster(tmp_path_factory.mktemp("storm")) as running:
        yield running


@pytest.fixture(scope="module")
def report(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Report]:
    """The storm of a version, run once."""
    done: dict[str, Report] = {}

    def run(version: str) -> Report:
        if version not in done:
            kinds = next(client.kinds for client in JAVA if client.version == version)
            home = tmp_path_factory.mktemp(f"java-{version.replace('.', '')}-")
            role = Role(java_command(version, home), home)
            (done[version],) = start_storm(cluster, [(kinds, role, role)], WEATHER)
        return done[version]

    return run


@pytest.mark.parametrize(("version", "kind"), CASES)
def test_kind(report: Callable[[str], Report], version: str, kind: str) -> None:
    report(version).assert_right(kind)
