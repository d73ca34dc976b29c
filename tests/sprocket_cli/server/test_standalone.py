"""`sprocket standalone`: its start lines, and what it says of a port that is taken."""

import socket
from pathlib import Path

import pytest

from sprocket_cli import exit_codes
from tests.sprocket_cli.programs import BROKER_FLAGS, run, start


def test_the_last_start_line_is_what_a_shell_needs(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        command = ("standalone", "--port", "0", "--namesrv-port", "0", *BROKER_FLAGS[-4:])
        with start(tmp_path, log, *command) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(3)]
            process.terminate()
    address = lines[0].split()[-1]
    assert lines[0].startswith("The Name Server boot success") and lines[1].startswith("The broker[")
    assert lines[2] == f"export NAMESRV_ADDR={address}\n"


@pytest.mark.parametrize(("option", "other"), [("--port", "--namesrv-port"), ("--namesrv-port", "--port")])
def test_a_taken_port_names_the_option(tmp_path: Path, option: str, other: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(tmp_path, "standalone", option, str(taken.getsockname()[1]), other, "0")
    assert done.returncode == exit_codes.USAGE
    assert f"choose another one with {option}." in done.stderr
