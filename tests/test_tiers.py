"""The tables of tiers fit the files, and only marked tests have a second chance."""

import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import scheduling, tiers, unsteady
from tests.tiers import PLACES, SPARK_SESSION, Tier, is_chosen, place_of, sample, seeds

ROOT = Path(__file__).resolve().parents[1]
FILES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_*.py"))]


@pytest.fixture
def tier() -> Iterator[None]:
    """Puts the chosen tier back."""
    before = tiers.choose(None)
    yield
    tiers.choose(before)


def test_every_folder_has_a_tier_of_its_own() -> None:
    folders = {"/".join(file.split("/")[:2]) for file in FILES}
    assert sorted(folders - PLACES.keys() - {"tests/test_ci_run.py", "tests/test_tiers.py"}) == [], (
        "add the folder to tests/tiers.py"
    )


def test_every_row_is_about_tests_that_are_there() -> None:
    stale = [path for path in PLACES if not any(f"{file}/".startswith(f"{path}/") for file in FILES)]
    assert stale == [], "remove the rows from tests/tiers.py"


def test_no_row_says_what_its_folder_says() -> None:
    inner = [path for path in PLACES if path.count("/") > 1]
    assert [path for path in inner if PLACES[path] == place_of(path.rpartition("/")[0])] == []


def test_the_files_that_share_a_spark_session_are_those_that_use_it() -> None:
    users = {file for file in FILES if re.search(r"def \w+\([^)]*\bspark_session\b", (ROOT / file).read_text())}
    assert users == SPARK_SESSION


def test_files_that_share_a_spark_session_and_those_of_real_clients_may_run_again() -> None:
    real = {file for file in FILES if file.startswith("tests/compat/")} | SPARK_SESSION
    pure = ["tests/compat/storms/test_matrix_page.py", "tests/compat/test_acceptance_page.py"]
    assert sorted(file for file in real if not place_of(file).unsteady) == pure


def test_quick_has_one_seed_and_all_has_all(tier: None) -> None:
    tiers.choose("quick")
    assert (list(seeds(40)), list(seeds(40, quick=3)), sample("abc")) == ([0], [0, 1, 2], "c")
    tiers.choose("all")
    assert (len(seeds(40)), sample("abc")) == (40, "abc")


def test_each_file_runs_in_its_tier(tier: None) -> None:
    runs = {}
    for name in ("quick", "all", None):
        tiers.choose(name)
        runs[name] = {file for file in FILES if is_chosen(file)}
    assert runs["quick"] == {file for file in FILES if place_of(file).tier is Tier.QUICK}
    assert runs["all"] == {file for file in FILES if place_of(file).tier is not Tier.LINT}
    assert runs["quick"] < runs["all"] < runs[None] == set(FILES)


def test_failures_that_are_marked_and_few_run_again() -> None:
    one = unsteady.read_failures("unsteady\ttests/a.py::test[x y]\tclocks\nexit\t1\t\n")
    assert (one.unsteady, one.refusal) == ({"tests/a.py::test[x y]": "clocks"}, "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("unsteady\ta\tr\nsteady\tb\t\nexit\t1\t\n", "1 failed that are not marked"),
        ("".join(f"unsteady\t{number}\tr\n" for number in range(11)) + "exit\t1\t\n", "11 failed, and at most 10"),
        ("unsteady\ta\tr\nexit\t3\t\n", "status 3"),
        ("unsteady\ta\tr\n", "status -1"),
        ("exit\t1\t\n", "status 1"),
        ("", "status -1"),
    ],
)
def test_all_other_failures_do_not(text: str, reason: str) -> None:
    assert reason in unsteady.read_failures(text).refusal


# Fails in its first run only.
_PROGRAM = """
import pathlib, pytest
from tests import unsteady

def pytest_configure(config): config.pluginmanager.register(unsteady.FailureList(pathlib.Path("failures")))

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    outcome.get_result().unsteady_reason = unsteady.reason_of(item)
"""
_TESTS = """
import pathlib, pytest

@pytest.mark.unsteady(reason="two processes")
def test_first_fails():
    seen = pathlib.Path("seen")
    assert seen.exists() or seen.write_text("") is None and False

@pytest.mark.parametrize("name", ["a b"])
def test_steady(name): assert {steady}
"""


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(("steady", "status"), [(True, 0), (False, 1)])
def test_a_run_and_its_second_chance(tmp_path: Path, workers: str, steady: bool, status: int) -> None:
    (tmp_path / "conftest.py").write_text(_PROGRAM)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    unsteady(reason): x\n")
    (tmp_path / "test_it.py").write_text(_TESTS.replace("{steady}", str(steady)))
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=250,
        )  # fmt: skip

    first = run("pytest", "-q", "-n", workers, "-p", "no:cacheprovider")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "unsteady\ttest_it.py::test_first_fails\ttwo processes\n" in (tmp_path / "failures").read_text()
    again = run("tests.unsteady", "failures")
    assert again.returncode == status, again.stdout + again.stderr
    said = "UNSTEADY: passed now" if steady else "no test runs again: 1 failed that are not marked"
    assert said in again.stdout


def test_real_processes_have_half_of_the_workers_and_the_full_tier_comes_first() -> None:
    files = ["tests/acl/a.py", "tests/testing/c.py", "tests/chaos/b.py", "tests/store/d.py"]
    sent: dict[str, list[str]] = {}
    queue = OrderedDict((file, {f"{file}::t": False}) for file in files)
    scheduler = object.__new__(scheduling.SharedCores)

    class Node:
        def __init__(self, name: str) -> None:
            self.name = name

        def send_runtest_some(self, indexes: list[int]) -> None:
            sent.setdefault(self.name, []).extend(files[index] for index in indexes)

    first, second = Node("gw0"), Node("gw1")
    scheduler.workqueue = queue
    scheduler.assigned_work = {first: {}, second: {}}
    scheduler.registered_collections = {node: [f"{file}::t" for file in files] for node in (first, second)}
    for node in (first, second, first, second):
        scheduler._assign_work_unit(node)
    assert sent == {"gw0": ["tests/chaos/b.py", "tests/testing/c.py"], "gw1": ["tests/acl/a.py", "tests/store/d.py"]}
