"""Every kind with the Go client, while consumers join and leave and both brokers are restarted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.cluster import Cluster
from tests.compat.storms import golang
from tests.compat.storms.clients import GO, go_command
from tests.compat.storms.storm import GO_WEATHER, Report, Role, start_storm, storm_cluster

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return golang.storm_program()
    except golang.GoMissingError as missing:
        pytest.skip(f"Go client tests: {missing}")


@pytest.fixture(scope="module")
def cluster(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with storm_cluster(tmp_path_factory.mktemp("storm")) as running:
        yield running


@pytest.fixture(scope="module")
def report(program: Path, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Report:
    role = Role(go_command(program), tmp_path_factory.mktemp("go"))
    return start_storm(cluster, [(GO.kinds, role, role)], GO_WEATHER)[0]


@pytest.mark.parametrize("kind", GO.kinds)
def test_kind(report: Report, kind: str) -> None:
    report.assert_right(kind)
