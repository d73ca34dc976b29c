"""Distribution of test files to the workers of pytest-xdist."""

from collections.abc import Iterable

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from tests.tiers import SPARK_SESSION, place_of


class SharedCores(LoadFileScheduling):
    """Distribution by file that gives files with real processes to at most half of the workers while others are left.

    Two cores carry one broker with its clients and a worker beside them.  With two such files at a time, clients run
    into their own timeouts.  The files that share a Spark session stay together.
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
        for scope, unit in self.workqueue.items():
            if is_real(unit) == wants_real:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


def is_real(nodeids: Iterable[str]) -> bool:
    """Say whether the tests of a unit of work use real processes.  They are of one file, or share the Spark session."""
    return bool(place_of(next(iter(nodeids)).partition("::")[0]).unsteady)
