"""Many seeds of the simulated group: ``python -m tests.ha.raft.soak FIRST LAST``.  Status 1 if a seed fails."""

import asyncio
import logging
import sys
import traceback

import pytest

from tests.ha.raft.test_simulation import (
    test_disks_that_are_lost_one_by_one_lose_nothing as lost_disks,
)
from tests.ha.raft.test_simulation import (
    test_faults_at_random_lose_nothing as faults,
)


def main(first: int, last: int) -> int:
    """Run the seeds from `first` to `last`; return the number of failures."""
    logging.disable(logging.CRITICAL)
    failures = 0
    for seed in range(first, last + 1):
        for run in (faults, lost_disks):
            monkeypatch = pytest.MonkeyPatch()
            try:
                asyncio.run(run(seed, monkeypatch))
            except Exception:
                failures += 1
                print(f"seed {seed} of {run.__name__}:\n{traceback.format_exc()}", flush=True)
            finally:
                monkeypatch.undo()
        if seed % 20 == 0:
            print(f"seed {seed}, {failures} failures", flush=True)
    print(f"{2 * (last + 1 - first)} runs, {failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
