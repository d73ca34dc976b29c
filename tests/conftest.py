"""What holds for all tests."""

import gc
from pathlib import Path

from hypothesis import HealthCheck, settings

# No test fails for being slow: two run side by side, and machines differ.
settings.register_profile("sprocket", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sprocket")

_OWN_DESCRIPTORS = Path("/proc/self/fd")
_MANY_DESCRIPTORS = 200


def pytest_runtest_logfinish() -> None:
    """Let go of what tests have dropped: mapped files hold descriptors, and a machine may allow only 1,024."""
    if _OWN_DESCRIPTORS.exists() and len(list(_OWN_DESCRIPTORS.iterdir())) > _MANY_DESCRIPTORS:
        gc.collect()
