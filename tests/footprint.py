"""Folders of fixtures for modules, packages and the session: removed with their fixture if no test failed meanwhile.

pytest removes the `tmp_path` of a passed test at once, but keeps what `tmp_path_factory` made until the session ends.
A store of a broker takes 100 MB and more, so the suite would need many gigabytes.
"""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest


class Footprint:
    """Plugin that knows which fixture made which folder."""

    def __init__(self) -> None:
        self._failures = 0
        self._in_setup: list[pytest.FixtureDef[object]] = []
        # Per fixture: the failures when it began, and its folders.
        self._folders: dict[pytest.FixtureDef[object], tuple[int, list[Path]]] = {}

    def watched(self, factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
        """Return `factory`, whose new folders are noted from now on."""
        make = factory.mktemp

        def mktemp(basename: str, numbered: bool = True) -> Path:
            folder = make(basename, numbered)
            if self._in_setup and self._in_setup[-1].scope != "function":
                self._folders.setdefault(self._in_setup[-1], (self._failures, []))[1].append(folder)
            return folder

        factory.mktemp = mktemp  # type: ignore[method-assign]
        return factory

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: "pytest.FixtureDef[object]") -> Generator[None, object, None]:
        """Note which fixture is being made."""
        self._in_setup.append(fixturedef)
        yield
        self._in_setup.pop()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failures."""
        self._failures += report.failed

    def pytest_fixture_post_finalizer(self, fixturedef: "pytest.FixtureDef[object]") -> None:
        """Remove the folders of a fixture that has ended."""
        failures, folders = self._folders.pop(fixturedef, (0, []))
        if failures == self._failures:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
