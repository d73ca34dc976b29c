"""Console scripts.  Each loads its command when it runs, and names the extra that brings a missing package.

This module imports nothing that `pip install sprocket-mq` does not bring.
"""

import sys
from importlib import import_module

from sprocket.common.extras import missing_package
from sprocket.common.own_packages import PackageHidden
from sprocket.common.pause_gc import pause_gc
from sprocket_cli import exit_codes
from sprocket_cli.processes.interrupts import end_quietly


def sprocket() -> None:
    """`sprocket`."""
    _run("sprocket", "sprocket_cli.main")


def mqnamesrv() -> None:
    """`mqnamesrv`."""
    _run("mqnamesrv", "sprocket_cli.server.mqnamesrv")


def mqcontroller() -> None:
    """`mqcontroller`."""
    _run("mqcontroller", "sprocket_cli.server.mqcontroller")


def mqbroker() -> None:
    """`mqbroker`."""
    _run("mqbroker", "sprocket_cli.server.mqbroker")


def mqadmin() -> None:
    """`mqadmin`."""
    _run("mqadmin", "sprocket_cli.mqadmin.main")


def mqproxy() -> None:
    """`mqproxy`."""
    _run("mqproxy", "sprocket_cli.server.mqproxy")


def _run(program: str, module: str) -> None:
    """Run the command `main` of `module`; if a package is missing or hidden, print its name and exit."""
    end_quietly()
    try:
        # Hundreds of modules are loaded, which all stay.
        with pause_gc():
            command = import_module(module)
        command.main(prog_name=program)
    except PackageHidden as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(exit_codes.USAGE)
    except ModuleNotFoundError as error:
        text = missing_package(error, program)
        if text is None:
            raise
        print(f"Error: {text}", file=sys.stderr)
        sys.exit(exit_codes.USAGE)
