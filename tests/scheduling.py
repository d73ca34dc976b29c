"""Distribution of test files to the workers of pytest-xdist."""

from collections.abc import Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.tiers import SPARK_SESSION, Tier, place_of


class SharedCores(LoadFileScheduling):
    """Distribution by file that gives files with real processes to at most half of the workers while others are left.

    Two cores carry one broker with its clients and a worker beside them.  With two such files at a time, clients run
    into their own timeouts.  The files that share a Spark session stay together.  Files of the full tier come first:
    they take long, and the last one would run alone.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "spark session" if file in SPARK_SESSION else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        busy = sum(
            any(is_real(unit) and not all(unit.values()) for unit in units.values())
            for other, units in self.assigned_work.items()
            if other is not node
        )
        wants_real = busy < max(1, len(self.assigned_work) // 2)
        fitting = [scope for scope, unit in self.workqueue.items() if is_real(unit) == wants_real]
        if fitting:
            scope = next((scope for scope in fitting if is_long(self.workqueue[scope])), fitting[0])
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def is_real(nodeids: Iterable[str]) -> bool:
    """Say whether the tests of a unit of work use real processes.  They are of one file, or share the Spark session."""
    return bool(place_of(next(iter(nodeids)).partition("::")[0]).unsteady)


def is_long(nodeids: Iterable[str]) -> bool:
    """Say whether a unit of work has tests of the full tier."""
    return any(place_of(file).tier is Tier.FULL for file in {nodeid.partition("::")[0] for nodeid in nodeids})
