"""Every kind with both stock Java clients, while consumers join and leave and both brokers are restarted."""

from collections.abc import Callable, Iterator

import pytest

from tests.compat.clients import JAVA, Client, java_command
from tests.compat.cluster import Cluster
from tests.compat.kinds import KINDS
from tests.compat.storm import JAVA_WEATHER, Report, start_storm, storm_cluster

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
            done[version] = start_storm(cluster, java_command(version, home), kinds, home, JAVA_WEATHER)
        return done[version]

    return run


@pytest.mark.parametrize(("version", "kind"), CASES)
def test_kind(report: Callable[[str], Report], version: str, kind: str) -> None:
    storm = report(version)
    problems = storm.problems(kind)
    assert not problems, f"{kind}: {storm.summary(kind)}; {len(problems)} problems\n" + "\n".join(problems[:20])


@pytest.mark.parametrize("client", JAVA, ids=lambda client: client.version)
def test_no_kind_is_forgotten(client: Client) -> None:
    assert {*client.kinds, *client.without} == {kind.name for kind in KINDS}
