"""Runs a program of this package where it may mount file systems that nobody else sees."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.disks.loop_disk import SKIPPED


def run_mounted(module: str, *arguments: str) -> dict[str, Any]:
    """Run ``python -m module arguments`` in a mount namespace of its own; the JSON that it prints.

    Skips the test, with the reason, where that is not allowed.
    """
    command = ["unshare", "-m", sys.executable, "-m", module, *arguments]
    try:
        ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[3])
    except FileNotFoundError:
        pytest.skip("there is no unshare(1)")
    if ended.returncode == SKIPPED or (ended.returncode and ended.stderr.startswith("unshare:")):
        pytest.skip(f"no mounts here: {(ended.stdout + ended.stderr).strip()}")
    assert ended.returncode == 0, ended.stderr[-6000:]
    outcome: dict[str, Any] = json.loads(ended.stdout)
    return outcome
