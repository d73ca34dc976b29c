"""Files that Apache RocketMQ's broker wrote in DLedger mode: refused by name, imported, and served by our broker."""

import subprocess
from pathlib import Path

import pytest

from store.disk.disk import RealDisk
from store.dledger.folders import dledger_folders
from tests.compat import maven, wire
from tests.compat.cluster import ClusterError, SprocketCluster
from tests.compat.directories.test_timer_files import TOPIC as ALARMS
from tests.compat.directories.test_timer_files import await_all as await_timed
from tests.compat.directories.test_timer_files import received as timed
from tests.compat.directories.test_timer_files import send as send_timed
from tests.compat.directories.turns import ApacheBroker, Ledger, check_turn, consume, first_turn, properties
from tests.compat.ports import free_port
from tests.sprocket_cli.programs import COMMAND

# Delivered before the import, and after it.
SOON = {f"soon-{number}" for number in range(20)}
LATER = {f"later-{number}" for number in range(20)}
_SOON_MS, _LATER_MS = 2_000, 60_000


@pytest.fixture
def java() -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(f"files of Apache RocketMQ: {missing}")


def sprocket(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.java
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ending", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
async def test_a_directory_of_dledger_mode_is_imported_and_served(java: None, tmp_path: Path, ending: str) -> None:
    ledger = Ledger()
    store, new = tmp_path / "store", tmp_path / "new"
    dledger = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "broker-a",
        "dLegerPeers": f"n0-127.0.0.1:{free_port()}",
        "dLegerSelfId": "n0",
    }
    with ApacheBroker(tmp_path / "theirs", properties=properties(store) | dledger) as cluster:
        address = cluster.brokers[0].address
        wire.create_topic(address, ALARMS, 1)
        for body in sorted(SOON | LATER):
            send_timed(cluster, body, _SOON_MS if body in SOON else _LATER_MS)
        await first_turn(cluster, ledger)
        await await_timed(cluster, SOON)
        assert set(await timed(cluster)) == SOON
        if ending == "kill":
            cluster.brokers[0].kill()
    assert dledger_folders(RealDisk(), store) == [store / "dledger-n0"]

    with (
        pytest.raises(ClusterError, match=r"dledger-n0: these are files of RocketMQ's DLedger mode"),
        SprocketCluster(tmp_path / "refused", properties=properties(store)),
    ):
        pass

    done = sprocket("import", store, "--to", new)
    assert done.returncode == 0, done.stderr
    checked = sprocket("check", new)
    assert checked.returncode == 0, checked.stdout

    with SprocketCluster(tmp_path / "ours", properties=properties(new)) as cluster:
        await check_turn(cluster, ledger)
        came = await await_timed(cluster, SOON | LATER)
        assert [body for body, count in came.items() if count > (1 if ending == "stop" else 2)] == []
        await consume(cluster.name_server_address, ledger, leave=0)
    assert sorted(set(ledger.sent) - set(ledger.received)) == []
    if ending == "stop":
        assert len(ledger.received) == len(set(ledger.received))
