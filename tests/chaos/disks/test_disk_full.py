"""A broker on a full disk, a real one: see `tests.chaos.disks.disk_full`."""

import pytest

from tests.chaos.disks.mounted import run_mounted

CYCLES = 20


@pytest.mark.timeout(240)
@pytest.mark.parametrize("file_system", ["tmpfs", "ext4"])
def test_a_full_disk_refuses_and_heals(file_system: str) -> None:
    arguments = ("--cycles", str(CYCLES // 2), "--file-system", file_system, "--seed", "1")
    outcome = run_mounted("tests.chaos.disks.disk_full", *arguments)
    assert outcome["problems"] == []
    assert outcome["cycles"] == CYCLES // 2
    assert outcome["kills"] > 0
    assert outcome["acknowledged"] > CYCLES * 20
