"""What controllers cost senders: allAckInSyncStateSet with two replicas beside SYNC_MASTER without controllers.

    python -m benchmarks.replication.controlled_sends [--rounds 31] [--seconds 0.5] [--outstanding 1,64,256]

Both pairs of brokers run side by side and are measured in turns; ratios are taken slice by slice, medians are shown.
Status 1 if a ratio is below 0.95.
"""

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.replication.pairs import until
from benchmarks.replication.sends import Kind, Measured, Running, measure_sends, running, warm_up
from benchmarks.system.process import leave_on_sigterm
from tests.compat.cluster import LARGE_FILES, Server
from tests.compat.controllers.controllers import ControllerCluster

_SYNC = Kind("sprocket sync", "sprocket", "SYNC_MASTER", True)
_MIN_RATIO = 0.95


@contextlib.contextmanager
def controlled(folder: Path) -> Iterator[tuple[Server, Server]]:
    """One controller, and a master and a slave that are both in its sync-state set."""
    with ControllerCluster(folder, "sprocket", count=1) as cluster:
        cluster.start_controllers()
        # Files as large as those of the other pair: a new segment costs both the same.
        keys = {**LARGE_FILES, "allAckInSyncStateSet": "true", "inSyncReplicas": "1"}
        brokers = [cluster.add_sprocket_broker(number, **keys) for number in (1, 2)]
        for count, broker in enumerate(brokers, 1):
            broker.start()
            _await_in_sync(cluster, count)
        warm_up(brokers[0])
        yield brokers[0], brokers[1]
        assert cluster.in_sync() == len(brokers), "the slave fell out of the sync-state set: the figures mean nothing"


def _await_in_sync(cluster: ControllerCluster, count: int) -> None:
    until(lambda: cluster.in_sync() == count, f"{count} brokers are in sync")


def show(outstanding: int, plain: list[Measured], elected: list[Measured]) -> float:
    """Print the medians; return the median ratio of the rates."""
    ratio = median(two.rate / one.rate for one, two in zip(plain, elected, strict=True))
    for name, slices, shown in (("SYNC_MASTER", plain, ""), ("allAckInSyncStateSet", elected, f"{ratio:.2f}")):
        rate, p50, p99, master, slave = (median(column) for column in zip(*slices, strict=True))
        numbers = f"{rate:,.0f} | {shown} | {p50:,.0f} | {p99:,.0f} | {master:.1f} | {slave:.1f}"
        print(f"| {outstanding} | {name} | {numbers} |", flush=True)
    return ratio


def measure(pair: Running, brokers: tuple[Server, Server], arguments: argparse.Namespace) -> list[float]:
    """Measure both in turns.  Return the ratios."""
    ratios = []
    print("| outstanding | cluster | messages/s | ratio | p50 us | p99 us | master us | slave us |")
    print("|--:|---|--:|--:|--:|--:|--:|--:|")
    for outstanding in map(int, arguments.outstanding.split(",")):
        plain: list[Measured] = []
        elected: list[Measured] = []
        for number in range(arguments.rounds):
            turns = [(plain, (pair.master, pair.slave)), (elected, brokers)]
            for slices, (master, slave) in turns if number % 2 else reversed(turns):
                slices.append(measure_sends(master, slave, outstanding, arguments.seconds))
        ratios.append(show(outstanding, plain, elected))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--outstanding", default="1,64,256")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sprocket-bench-"))
    try:
        with running(_SYNC, folder) as pair, controlled(folder / "controlled") as brokers:
            return int(min(measure(pair, brokers, arguments)) < _MIN_RATIO)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    leave_on_sigterm()
    sys.exit(main())
