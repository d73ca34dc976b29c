"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# No test fails for being slow: two run side by side, and machines differ.
settings.register_profile("sprocket", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("sprocket")
