"""Which Java Spark is run with; the Javas here are scripts that say their version as a real one does."""

import os
import subprocess
from pathlib import Path

import pytest

from spark.runtime.java_home import find_java_home, write_java_home
from sprocket.common.errors import ConfigError


def fake_java(home: Path, version: str) -> Path:
    """A Java home whose ``java`` says that it is of `version`, and prints its arguments one a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f'  printf "    java.home = {home}\\n    java.specification.version = {version}\\n" >&2\n'
        "else\n"
        '  for word do printf "%s\\n" "$word"; done\n'
        "fi\n"
    )
    java.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    declared, on_path = fake_java(tmp_path / "declared", "17"), fake_java(tmp_path / "path", "21")
    environment = {"JAVA_HOME": str(declared), "PATH": f"{on_path / 'bin'}:/bin"}
    assert find_java_home(environment, tmp_path) == declared


@pytest.mark.parametrize("version", ["11", "1.8", "nonsense"])
def test_old_java_home_is_passed_over_for_path(tmp_path: Path, version: str) -> None:
    declared, on_path = fake_java(tmp_path / "declared", version), fake_java(tmp_path / "path", "17")
    environment = {"JAVA_HOME": str(declared), "PATH": f"{on_path / 'bin'}:/bin"}
    assert find_java_home(environment, tmp_path) == on_path


def test_java_that_set_up_brought_comes_last(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    brought = fake_java(tmp_path / "jdk", "21")
    assert find_java_home({"PATH": f"{old / 'bin'}:/bin"}, tmp_path) == brought


def test_without_any_java_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="make setup"):
        find_java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(tmp_path)}, tmp_path)


def test_launcher_drops_the_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    runtime = fake_java(tmp_path / "run time", "21")
    (runtime / "lib").mkdir()
    home = tmp_path / "jdk"
    write_java_home(runtime, home)
    write_java_home(runtime, home)  # a second set-up replaces the first
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=other", "", "$HOME", "*"]
    command = [str(home / "bin" / "java"), *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout
    assert shown.split("\n")[:-1] == ["-cp", "a b", "--add-modules=other", "", "$HOME", "*"]
    assert (home / "lib").resolve() == (runtime / "lib").resolve()
