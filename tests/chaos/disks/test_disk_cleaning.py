"""Back-pressure and cleaning on a real small disk: see `tests.chaos.disks.disk_cleaning`."""

import pytest

from tests.chaos.disks.disk_cleaning import APPENDED_MIB, BODY_BYTES
from tests.chaos.disks.mounted import run_mounted


@pytest.mark.timeout(150)
def test_a_small_disk_is_refused_when_full_and_cleaned_by_itself() -> None:
    outcome = run_mounted("tests.chaos.disks.disk_cleaning")
    assert "allowed is 90.0% (diskSpaceWarningLevelRatio)" in outcome["cause"]
    assert "retry after" in outcome["cause"]
    assert outcome["readable_while_full"] >= 1
    assert outcome["appended"] * BODY_BYTES == APPENDED_MIB << 20
    assert outcome["refused_by_ratio"] == 0
    assert outcome["removed"] > outcome["kept"] > 0
