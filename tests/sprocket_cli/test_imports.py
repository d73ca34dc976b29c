"""What a command loads before it runs: little, so that help and completion are quick."""

import subprocess
import sys

import pytest

HEAVY = (
    "numpy",
    "uvloop",
    "asyncio",
    "msgspec",
    "store",
    "broker",
    "namesrv",
    "controller",
    "sprocket.remoting.codes",
    "spark",
    "rich",
)


@pytest.mark.parametrize(
    "module", ["main", "mqadmin.main", "server.mqbroker", "server.mqnamesrv", "server.mqcontroller"]
)
def test_parsing_a_command_line_loads_no_server(module: str) -> None:
    program = f"""
import sys
import sprocket_cli.{module}
loaded = sorted(set({HEAVY!r}) & set(sys.modules))
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("module", ["sprocket_cli.client_session", "sprocket.client.admin.admin_client"])
def test_client_commands_load_no_store(module: str) -> None:
    program = f"import sys, {module}; assert 'store' not in sys.modules and 'broker' not in sys.modules"
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=120)
