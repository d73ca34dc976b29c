"""Servers of the other clients: nats-server with JetStream, and one node of Kafka in KRaft mode.

Both write to files without a flush for each message, as a broker with ASYNC_FLUSH does.
"""

import socket
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_START_LIMIT_S = 90.0
_KAFKA = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@contextmanager
def nats(program: str, folder: Path) -> Iterator[str]:
    """Run nats-server; yield its URL.  Raises SystemExit if it does not start."""
    port = _free_port()
    command = [program, "-js", "-sd", str(folder), "-a", "127.0.0.1", "-p", str(port)]
    with _running("nats-server", command, folder, port):
        yield f"nats://127.0.0.1:{port}"


@contextmanager
def kafka(jars: Path, folder: Path) -> Iterator[str]:
    """Run Kafka from `jars`; yield its bootstrap server.  Raises SystemExit if it does not start."""
    port = _free_port()
    settings = folder / "server.properties"
    settings.write_text(_KAFKA.format(port=port, controller=_free_port(), folder=folder))
    java = ["java", "-Xms512m", "-Xmx512m", "-cp", f"{jars}/*"]
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    made = subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise SystemExit(f"Kafka's storage was not formatted: {made.stdout}{made.stderr}")
    with _running("Kafka", [*java, "kafka.Kafka", str(settings)], folder, port):
        yield f"127.0.0.1:{port}"


@contextmanager
def _running(name: str, command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        until = time.monotonic() + _START_LIMIT_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{name} did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port
