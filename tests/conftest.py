"""What holds for all tests: tiers, marks by folder, the distribution to workers, descriptors."""

import gc
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from sprocket.common.logs.peer_lines import peer_lines
from tests import tiers, unsteady
from tests.footprint import Footprint

# No test fails for being slow: two run side by side, and machines differ.
settings.register_profile("all", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("all"), max_examples=10)

_ROOT = Path(__file__).resolve().parents[1]
_OWN_DESCRIPTORS = Path("/proc/self/fd")
_MORE_DESCRIPTORS = 150
_DESCRIPTORS = 4096
_kept = 0
_footprint = Footprint()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sprocket")
    group.addoption("--tier", choices=("quick", "all"), help="run the tests of this tier; see docs/testing.md")
    group.addoption("--failures-to", type=Path, metavar="FILE", help="write which tests failed, for `.ci/run`")


def pytest_configure(config: pytest.Config) -> None:
    _allow_descriptors()
    config.pluginmanager.register(_footprint)
    tiers.choose(config.getoption("--tier"))
    settings.load_profile("quick" if tiers.is_quick() else "all")
    failures = config.getoption("--failures-to")
    if failures is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(unsteady.FailureList(failures))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files of other tiers, except those that the command names."""
    if collection_path.suffix != ".py" or tiers.is_chosen(_under_root(collection_path)):
        return None
    named = {(config.invocation_params.dir / argument.partition("::")[0]).resolve() for argument in config.args}
    return None if collection_path in named else True


def pytest_collection_finish() -> None:
    """Let collections of garbage skip what stays to the end: thousands of tests, and all that they import."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of folders that use real processes."""
    reason = tiers.place_of(_under_root(item.path)).unsteady
    if reason and item.get_closest_marker("unsteady") is None:
        item.add_marker(pytest.mark.unsteady(reason=reason))
    unsteady.reason_of(item)


def pytest_runtest_setup() -> None:
    """Let a test's lines be the first ones of their reason."""
    peer_lines.finish()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Give the report the reason of the mark: `FailureList` sees no more than reports."""
    outcome = yield
    outcome.get_result().unsteady_reason = unsteady.reason_of(item)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    if config.getoption("dist") != "loadfile":
        return None
    from tests.scheduling import SharedCores

    return SharedCores(config, log)


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    """pytest's own, which also tells `Footprint` about each folder."""
    return _footprint.watched(tmp_path_factory)


def pytest_runtest_logfinish() -> None:
    """Let go of what tests have dropped: mapped files hold descriptors, and a machine may allow only 1,024."""
    global _kept
    count = open_descriptors()
    if count > _kept + _MORE_DESCRIPTORS:
        gc.collect()
        count = open_descriptors()
        _kept = count
    # A test that held many must not raise the bound for the tests after it.
    _kept = min(_kept, count)


def _allow_descriptors() -> None:
    """Raise the soft limit of this process and of its servers, if the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_descriptors() -> int:
    """Return the number of this process's descriptors, or 0 where the system does not say."""
    return len(list(_OWN_DESCRIPTORS.iterdir())) if _OWN_DESCRIPTORS.exists() else 0


def _under_root(path: Path) -> str:
    return path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else "tests"
