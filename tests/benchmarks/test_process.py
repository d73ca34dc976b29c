"""A benchmark that is told to end stops its servers first, however often it is told."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Each line on stdin lets it take one step.
PROGRAM = """
import sys
from benchmarks.system.process import leave_on_sigterm

leave_on_sigterm()
try:
    print("ready", flush=True)
    sys.stdin.readline()
finally:
    print("stopping", flush=True)
    sys.stdin.readline()
    print("stopped", flush=True)
"""


def test_a_second_sigterm_does_not_interrupt_the_stopping() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate("\n")
    assert (output, process.returncode) == ("stopped\n", 128 + signal.SIGTERM)
