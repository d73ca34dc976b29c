"""Every scenario with the stock clients and both header serializations; in the first tier with one of each."""

from itertools import product

import pytest

from tests.compat.cluster import ApacheCluster, Cluster
from tests.compat.conftest import Runs
from tests.compat.java_client import POP_SCENARIOS, POP_VERSION, SCENARIOS, TIMER_SCENARIOS
from tests.compat.maven import CLIENT_VERSIONS
from tests.tiers import sample

SERIALIZATIONS = ("ROCKETMQ", "JSON")
# 5.5.0 differs little from 5.3.3, so it runs with the serialization that clients have by default alone.
KINDS = [pair for pair in product(CLIENT_VERSIONS, SERIALIZATIONS) if pair != ("5.5.0", "ROCKETMQ")]
pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


@pytest.mark.parametrize(("version", "serialization"), sample(KINDS))
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(runs: Runs, version: str, serialization: str, scenario: str) -> None:
    outcome = runs(version, serialization).get(scenario)
    assert outcome is not None, "the scenario never reported"
    assert outcome.passed, outcome.message


@pytest.mark.parametrize("serialization", sample(SERIALIZATIONS))
@pytest.mark.parametrize("scenario", [*POP_SCENARIOS, *TIMER_SCENARIOS])
def test_scenario_of_newer_clients(runs: Runs, cluster: Cluster, serialization: str, scenario: str) -> None:
    if scenario in POP_SCENARIOS and serialization == "ROCKETMQ" and isinstance(cluster, ApacheCluster):
        pytest.skip("codes of pop do not fit into its header: RocketMQ refuses its own client")
    test_scenario(runs, POP_VERSION, serialization, scenario)


def test_every_scenario_is_listed(runs: Runs) -> None:
    assert set(runs(CLIENT_VERSIONS[-1], SERIALIZATIONS[-1])) == {*SCENARIOS, *POP_SCENARIOS, *TIMER_SCENARIOS}
