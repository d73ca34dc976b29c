"""`mqadmin` in this process against the running cluster."""

from collections.abc import Callable

import pytest
from click.testing import CliRunner

from sprocket_cli.mqadmin.main import main
from tests.sprocket_cli.conftest import Cluster

Admin = Callable[..., list[str]]


def runner(namesrv: str) -> Admin:
    """Return a function that runs a command and returns the lines of its output."""

    def run(*arguments: str, fails: bool = False) -> list[str]:
        done = CliRunner().invoke(main, [*arguments, "-n", namesrv])
        assert (done.exit_code != 0) == fails, done.output
        return done.output.splitlines()

    return run


def address(cluster: Cluster) -> str:
    """Return the address of the cluster's broker."""
    return f"127.0.0.1:{cluster.broker.port}"


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return runner(cluster.namesrv)
