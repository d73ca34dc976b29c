"""Tasks per second and their latency: ``python -m benchmarks.celery_tasks.run``.

Each broker keeps tasks on disk and confirms them when they are sent (RabbitMQ: durable queue, persistent messages,
publisher confirms; Redis: an append-only file, synced every second; Sprocket: ASYNC_FLUSH), and each task is
acknowledged after it ran.  RabbitMQ and Redis are Debian's packages; without one of them its column is missing.  One
worker has two processes.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sprocket.testing import Broker

_ROOT = Path(__file__).resolve().parents[2]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _await_port(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{process.args!r} does not listen at port {port}:\n{log.read_text()[-2000:]}")


@contextmanager
def _process(command: list[str], port: int, log: Path, env: dict[str, str] | None = None) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(env or {})})
    try:
        _await_port(port, process, log)
        yield
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def sprocket(directory: Path) -> Iterator[str]:
    with Broker(directory) as broker:
        yield f"sprocket://{broker.namesrv}"


@contextmanager
def redis(directory: Path) -> Iterator[str]:
    port = _free_port()
    command = ["redis-server", "--port", str(port), "--dir", str(directory), "--appendonly", "yes"]
    with _process(command, port, directory / "log"):
        yield f"redis://127.0.0.1:{port}"


@contextmanager
def rabbitmq(directory: Path) -> Iterator[str]:
    port, distribution, names = _free_port(), _free_port(), str(_free_port())
    env = {
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "ERL_EPMD_PORT": names,
        "HOME": str(directory),
    }
    (directory / "plugins").write_text("[].")
    try:
        with _process(["/usr/lib/rabbitmq/bin/rabbitmq-server"], port, directory / "log", env):
            yield f"amqp://guest:guest@127.0.0.1:{port}"
    finally:
        # Erlang's name server is a process of its own, which outlives the broker.
        subprocess.run(["epmd", "-port", names, "-kill"], capture_output=True, check=False)


_NEEDS = {sprocket: None, rabbitmq: "/usr/lib/rabbitmq/bin/rabbitmq-server", redis: shutil.which("redis-server")}

# What the sender prints: seconds for all sends, then the latencies are in the file of the tasks.
_SENDER = """
import sys, time
from benchmarks.celery_tasks.app import note
count, pause = int(sys.argv[1]), float(sys.argv[2])
note.delay(time.time())
started = time.perf_counter()
for _ in range(count):
    note.delay(time.time())
    if pause: time.sleep(pause)
print(time.perf_counter() - started)
"""


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _await_lines(path: Path, count: int) -> None:
    deadline = time.monotonic() + 300
    while _lines(path) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {_lines(path)} of {count} tasks ran")
        time.sleep(0.02)


@contextmanager
def _worker(directory: Path) -> Iterator[None]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "benchmarks.celery_tasks.app",
        "worker",
        "-c",
        "2",
        "-l",
        "WARNING",
    ]
    with (directory / "worker.log").open("ab") as out:
        worker = subprocess.Popen(command, cwd=_ROOT, stdout=out, stderr=out)
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(60)


def measure(url: str, directory: Path, count: int) -> dict[str, float]:
    """Return figures of one broker: sends/s, tasks/s of a full queue, and latencies in ms of a paced sender."""
    marks = directory / "marks"
    os.environ.update(BENCH_BROKER=url, BENCH_FILE=str(marks))

    def send(number: int, pause_s: float) -> float:
        command = [sys.executable, "-c", _SENDER, str(number), str(pause_s)]
        return float(subprocess.run(command, cwd=_ROOT, capture_output=True, check=True, text=True).stdout)

    sending_s = send(count, 0)
    with _worker(directory):
        _await_lines(marks, 1)
        first, started = _lines(marks), time.perf_counter()
        _await_lines(marks, count + 1)
        running_s = time.perf_counter() - started
        done = count + 1 - first
        paced = 1000
        send(paced, 0.01)
        _await_lines(marks, count + 1 + paced + 1)
    late_ms = sorted(float(line) * 1000 for line in marks.read_text().splitlines()[-paced:])
    return {
        "sends/s": count / sending_s,
        "tasks/s": done / running_s,
        "p50 ms": statistics.median(late_ms),
        "p99 ms": late_ms[int(paced * 0.99)],
    }


def main() -> None:
    """Print the medians of all rounds, and their ratios to RabbitMQ's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=3000)
    arguments = parser.parse_args()
    brokers = [each for each, path in _NEEDS.items() if path is None or Path(path).exists()]
    if _NEEDS[redis] is None and redis in brokers:
        brokers.remove(redis)
    figures: dict[str, list[dict[str, float]]] = {each.__name__: [] for each in brokers}
    for number in range(arguments.rounds):
        for each in brokers if number % 2 == 0 else brokers[::-1]:
            with tempfile.TemporaryDirectory() as directory, each(Path(directory)) as url:
                found = measure(url, Path(directory), arguments.tasks)
            figures[each.__name__].append(found)
            print(number, each.__name__, {name: round(value, 1) for name, value in found.items()}, flush=True)
    for what in ("sends/s", "tasks/s", "p50 ms", "p99 ms"):
        medians = {name: statistics.median(each[what] for each in rounds) for name, rounds in figures.items()}
        base = medians.get("rabbitmq", medians["sprocket"])
        print(f"{what:>8}", *(f"{name} {value:9.1f} ({value / base:.2f})" for name, value in medians.items()))


if __name__ == "__main__":
    main()
