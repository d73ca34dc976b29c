"""Folders of long-lived fixtures go with their fixture, unless a test failed."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
from tests.footprint import Footprint

footprint = Footprint()

def pytest_configure(config):
    config.pluginmanager.register(footprint)

@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory):
    return footprint.watched(tmp_path_factory)

@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "segment").write_text("x")
    yield folder
    assert (folder / "segment").exists()
"""

TESTS = """
from pathlib import Path

def test_first(folder, tmp_path):
    assert tmp_path.is_dir()
    Path("{place}").write_text(str(folder))

def test_second(folder):
    assert {outcome}
"""


@pytest.mark.parametrize("outcome", [True, False])
def test_a_folder_stays_only_after_a_failure(pytester: pytest.Pytester, outcome: bool) -> None:
    place = pytester.path / "place"
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS.format(place=place, outcome=outcome))
    pytester.syspathinsert(str(Path(__file__).resolve().parents[1]))
    ended = pytester.runpytest("-p", "no:cacheprovider", "-p", "no:sprocket", "-p", "no:asyncio")
    ended.assert_outcomes(passed=2 if outcome else 1, failed=0 if outcome else 1)
    assert Path(place.read_text()).exists() is not outcome
