"""Members of one group from two families: Java's consumers beside ours, requests of one answered by the other."""

from collections.abc import Iterator

import pytest

from tests.compat.cluster import Cluster
from tests.compat.maven import CLIENT_VERSIONS
from tests.compat.storms.clients import MIXED, java_command, sprocket_command
from tests.compat.storms.storm import WEATHER, Report, Role, start_storm, storm_cluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with storm_cluster(tmp_path_factory.mktemp("storm")) as running:
        yield running


@pytest.fixture(scope="module")
def reports(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    """Both directions in one storm: who sends and begins to consume leaves the queues to the other."""
    homes = [tmp_path_factory.mktemp(name) for name in ("java-begins", "java-joins")]
    java = [Role(java_command(CLIENT_VERSIONS[-1], home), home) for home in homes]
    homes = [tmp_path_factory.mktemp(name) for name in ("sprocket-joins", "sprocket-begins")]
    ours = [Role(sprocket_command(), home) for home in homes]
    made = start_storm(cluster, [(MIXED, java[0], ours[0]), (MIXED, ours[1], java[1])], WEATHER)
    return dict(zip(("java-then-sprocket", "sprocket-then-java"), made, strict=True))


@pytest.mark.parametrize("direction", ["java-then-sprocket", "sprocket-then-java"])
@pytest.mark.parametrize("kind", MIXED)
def test_kind(reports: dict[str, Report], direction: str, kind: str) -> None:
    reports[direction].assert_right(kind)
