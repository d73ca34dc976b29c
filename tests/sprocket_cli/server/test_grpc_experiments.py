"""The proxy's programs choose grpcio's listener: grpcio reads it when it is imported, and must know it."""

import os
import subprocess
import sys

import pytest

from sprocket_cli.server.mqproxy import require_grpc

_NAME = "GRPC_EXPERIMENTS"
_PROGRAM = """
import sys
from sprocket_cli.server.mqproxy import require_grpc
require_grpc()
assert "grpc" not in sys.modules
import asyncio, grpc
async def serve():
    server = grpc.aio.server()
    assert server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await server.stop(0)
asyncio.run(serve())
"""


def _stderr(**variables: str) -> str:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=120, check=True)
    return done.stderr


def test_grpcio_knows_the_experiments_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_NAME, raising=False)
    assert "Unknown experiment" not in _stderr()
    assert "Unknown experiment" in _stderr(**{_NAME: "no_such_experiment"})


def test_operators_choice_of_experiments_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_NAME, "call_tracer_in_transport")
    require_grpc()
    assert os.environ[_NAME] == "call_tracer_in_transport"
