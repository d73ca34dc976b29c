"""Rounds of faults on a group under controllers: nothing acknowledged is lost or reordered.  A soak runs more."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.failover.lan import SKIPPED
from tests.chaos.failover.rounds import FAULTS

_ROOT = Path(__file__).parents[3]
_LIMIT_S = 600


def _run(command: list[str]) -> None:
    done = subprocess.run(
        [*command[:-1], sys.executable, "-m", "tests.chaos.failover.rounds", *command[-1].split()],
        cwd=_ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode == SKIPPED or done.stderr.startswith("unshare:"):
        pytest.skip(f"no network namespaces or mounts: {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.timeout(_LIMIT_S + 30)
@pytest.mark.parametrize(
    ("mode", "rounds", "seed"), [("two", len(FAULTS), 1), ("all", len(FAULTS), 2), ("dledger", 3, 3)]
)
def test_a_group_under_faults(mode: str, rounds: int, seed: int, tmp_path: Path) -> None:
    _run(["unshare", "-n", f"--mode {mode} --rounds {rounds} --seed {seed} --pause 2 --directory {tmp_path}"])


@pytest.mark.timeout(_LIMIT_S + 30)
def test_a_power_cut_of_all(tmp_path: Path) -> None:
    _run(["unshare", "-mn", f"--mode sync_flush --rounds 2 --seed 4 --disks --directory {tmp_path}"])
