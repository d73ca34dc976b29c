"""A broker's whole directory changes hands: Apache RocketMQ's broker and ours take turns on it, with real traffic.

``data/apache-broker-5.3.3.tar.xz`` is what a first turn of Apache RocketMQ's broker left when it was killed; it was
made by ``python -m tests.compat.directories.make_broker_directory``.
"""

import tarfile
from pathlib import Path

import pytest

from tests.compat import maven
from tests.compat.cluster import Cluster, SprocketCluster
from tests.compat.directories.turns import (
    SHORT_DELAYS,
    ApacheBroker,
    Ledger,
    add_turn,
    check_turn,
    first_turn,
    properties,
)

GOLDEN = Path(__file__).resolve().parents[1] / "data" / "apache-broker-5.3.3.tar.xz"


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"directories of Apache RocketMQ: {missing}")


@pytest.mark.timeout(180)
async def test_a_directory_of_a_killed_apache_broker_is_taken_over(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    ledger = Ledger.from_json((tmp_path / "ledger.json").read_text())
    ledger.due.append("0-level-3")
    with SprocketCluster(
        tmp_path / "servers", properties={**properties(tmp_path / "store"), **SHORT_DELAYS}
    ) as cluster:
        await check_turn(cluster, ledger)


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kinds", "ending"),
    [
        ((ApacheBroker, SprocketCluster, ApacheBroker), "kill"),
        pytest.param((SprocketCluster, ApacheBroker, SprocketCluster), "stop", marks=pytest.mark.slow),
    ],
    ids=["theirs-ours-theirs-killed", "ours-theirs-ours-stopped"],
)
async def test_a_directory_changes_hands(
    java: None, tmp_path: Path, kinds: tuple[type[Cluster], ...], ending: str
) -> None:
    store = tmp_path / "store"
    ledger = Ledger()
    for turn, kind in enumerate(kinds):
        with kind(tmp_path / f"turn-{turn}", properties=properties(store)) as cluster:
            if turn == 0:
                await first_turn(cluster, ledger)
            else:
                await check_turn(cluster, ledger)
                await add_turn(cluster, turn, ledger)
            if ending == "kill":
                cluster.brokers[0].kill()
    assert len(list((store / "commitlog").iterdir())) > 3
