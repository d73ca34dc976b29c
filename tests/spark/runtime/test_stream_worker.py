"""The reader of a stream is connected to Spark before it imports PySpark, whatever that takes."""

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.runtime.stream_worker import MODULE, connect_early
from spark.runtime.worker_python import installed_pyspark

# In the place of PySpark's: its import ends when the file does; then it connects as PySpark does.
SLOW_MODULE = """
import os, socket, time
while os.path.exists(os.environ["BUSY"]):
    time.sleep(0.01)
opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
opened.settimeout(15)
opened.connect(os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"])
opened.settimeout(None)
opened.sendall(f"{__name__} {os.getpid()} ".encode() + opened.recv(5))
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    # The name of a socket is at most 107 bytes long.
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(f"{directory}/s")
        server.listen()
        server.settimeout(60)
        yield server


def test_the_first_socket_takes_the_connection(server: socket.socket, tmp_path: Path) -> None:
    address = server.getsockname()
    connect_early(address)
    held, _ = server.accept()
    server.setblocking(False)
    with held, socket.socket(socket.AF_UNIX) as opened, socket.socket(socket.AF_UNIX) as later:
        with pytest.raises(FileNotFoundError), socket.socket(socket.AF_UNIX) as other:
            other.connect(str(tmp_path / "another"))
        opened.settimeout(15)
        opened.connect(address)
        opened.sendall(b"said")
        assert held.recv(4) == b"said"
        with pytest.raises(BlockingIOError):
            server.accept()
        later.connect(address)
        server.accept()[0].close()
    assert "connect" not in vars(socket.socket)


def test_it_connects_before_it_imports(server: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    module = tmp_path.joinpath(*MODULE.split(".")).with_suffix(".py")
    module.parent.mkdir(parents=True)
    for package in [*module.parents][: len(MODULE.split(".")) - 1]:
        (package / "__init__.py").touch()
    module.write_text(SLOW_MODULE)
    busy = tmp_path / "busy"
    busy.touch()
    given = {"PYTHON_WORKER_FACTORY_SOCK_PATH": server.getsockname(), "BUSY": str(busy), "PYTHONPATH": str(tmp_path)}
    with installed_pyspark("local[2]"):
        python = os.environ["PYSPARK_PYTHON"]
    process = subprocess.Popen([python, "-m", MODULE], env={**os.environ, **given}, cwd=tmp_path)
    try:
        connected, _ = server.accept()
        assert process.poll() is None
        busy.unlink()
        with connected, connected.makefile("rb") as said:
            connected.settimeout(60)
            connected.sendall(b"hello")
            assert said.read() == f"__main__ {process.pid} hello".encode()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
