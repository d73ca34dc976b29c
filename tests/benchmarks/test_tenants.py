"""A short run of the benchmark of two tenants: both work, and only the hostile one is refused."""

import pytest

from benchmarks.tenants import __main__ as tenants


def test_both_tenants_work_and_only_the_hostile_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--seconds", "3", "--slice", "1", "--rate", "50", "--cold", "2000", "--hostile", "sends,cold"]
    times = tenants.main(options)
    assert all(len(times.of(phase, kind)) >= 45 for phase in tenants.PHASES for kind in ("sends_ms", "deliveries_ms"))
    assert times.counts[tenants.BESIDE]["sends refused"] > 0
    assert not any(times.failed.values())
    assert "hostile beside" in capsys.readouterr().out
