"""Rounds of faults on two clusters that copy each other: nothing is lost, doubled or out of order.  A soak runs more."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.failover.lan import SKIPPED

_ROOT = Path(__file__).parents[3]
_LIMIT_S = 600


@pytest.mark.timeout(_LIMIT_S + 30)
def test_two_clusters_under_faults(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            "unshare", "-mn", sys.executable, "-m", "tests.chaos.geo.rounds",
            "--rounds", "4", "--seed", "1", "--pause", "2", "--directory", str(tmp_path),
        ],
        cwd=_ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode == SKIPPED or done.stderr.startswith("unshare:"):
        pytest.skip(f"no network namespaces or mounts: {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
