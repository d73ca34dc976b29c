"""What holds for all tests."""

import gc
from pathlib import Path

from hypothesis import HealthCheck, settings

# No test fails for being slow: two run side by side, and machines differ.
settings.register_profile("sprocket", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sprocket")

_OWN_DESCRIPTORS = Path("/proc/self/fd")
_MORE_DESCRIPTORS = 300
_kept = 0


def pytest_runtest_logfinish() -> None:
    """Let go of what tests have dropped: mapped files hold descriptors, and a machine may allow only 1,024."""
    global _kept
    if open_descriptors() > _kept + _MORE_DESCRIPTORS:
        gc.collect()
        _kept = open_descriptors()


def open_descriptors() -> int:
    """Of this process; 0 where the system does not say."""
    return len(list(_OWN_DESCRIPTORS.iterdir())) if _OWN_DESCRIPTORS.exists() else 0
