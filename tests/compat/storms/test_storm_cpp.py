"""What the C++ client can, while consumers join and leave and both brokers are restarted.

Slow tests, as an instance of this client sometimes falls silent for good after a broker was killed.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.cluster import Cluster
from tests.compat.storms import cpp_wheel
from tests.compat.storms.clients import CPP, cpp_command
from tests.compat.storms.storm import CPP_WEATHER, Report, Role, name_clusters_like_brokers, start_storm, storm_cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel() -> Path:
    try:
        return cpp_wheel.wheel_folder()
    except cpp_wheel.WheelMissingError as missing:
        pytest.skip(f"C++ client tests: {missing}")


@pytest.fixture(scope="module")
def cluster(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = storm_cluster(tmp_path_factory.mktemp("storm"))
    name_clusters_like_brokers(made)
    with made as running:
        yield running


@pytest.fixture(scope="module")
def report(wheel: Path, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Report:
    role = Role(cpp_command(wheel), tmp_path_factory.mktemp("cpp"))
    return start_storm(cluster, [(CPP.kinds, role, role)], CPP_WEATHER)[0]


@pytest.mark.parametrize("kind", CPP.kinds)
def test_kind(report: Report, kind: str) -> None:
    report.assert_right(kind)
