"""Each message is once in the table, wherever the driver or one of its Python processes is killed."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark.runtime.java_home import find_java_home
from sprocket.client.message import Message
from sprocket.common.errors import ConfigError
from sprocket.sync import Producer
from sprocket.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300.0
TOPIC = "Once"


class Driver:
    """The program as a process group of its own."""

    def __init__(self, store: Path, directory: Path, *flags: str) -> None:
        self.log = directory / "stderr.txt"
        self.batches = 0
        self.restarts = 0
        self.said: deque[str] = deque(maxlen=3000)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.exactly_once", f"b={store}", str(directory), TOPIC, *flags],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.batches += line.startswith("batch")
            self.restarts += line.startswith("restarted")
            self.said.append(line)

    def await_batch(self, wanted: int) -> None:
        """Until so many batches are in the table."""
        deadline = time.monotonic() + LIMIT_S
        while self.batches < wanted:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            if time.monotonic() > deadline:
                pytest.fail(self._threads())
            time.sleep(0.02)

    def await_end(self) -> None:
        try:
            code = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(self._threads())
        assert code == 0, self.log.read_text()[-3000:]
        self._reader.join()

    def _threads(self) -> str:
        """Why a driver does not go on: how often its queries were started again, and what its threads are doing."""
        for pid in _descendants(self.process.pid):
            if b"java" in _program(pid):
                os.kill(pid, signal.SIGQUIT)
        os.kill(self.process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not any(line.startswith("Heap") for line in list(self.said)):
            time.sleep(0.1)
        threads = "".join(list(self.said))[-60_000:]
        return f"{self.restarts} restarts, {self.batches} batches\n{self.log.read_text()[-6000:]}\n{threads}"

    def kill(self) -> None:
        """SIGKILL of the driver: its Python, its JVM and its workers at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()

    def kill_python(self, rnd: random.Random) -> bool:
        """SIGKILL of a Python process below the JVM: a worker with a task, an idle one, or the stream's reader."""
        python = [pid for pid in _descendants(self.process.pid) if b"python" in _program(pid)]
        if not python:
            return False
        try:
            os.kill(rnd.choice(python), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def _descendants(pid: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(entry.parent.name)
            yield child
            yield from _descendants(child)


def _program(pid: int) -> bytes:
    """What a process runs; the command of the JVM names PySpark, too, further back."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def send(broker: Broker, first: int, count: int) -> None:
    with Producer("once", broker.namesrv) as producer:
        sent = sum(1 for _ in producer.send_many(Message(TOPIC, f"{first + index}".encode()) for index in range(count)))
    assert sent == count


def check(directory: Path, name: str, expected: int) -> None:
    with pa.ipc.open_file(directory / f"{name}.arrow") as file:
        table = file.read_all()
    bodies = Counter(int(body) for body in table["body"].to_pylist())
    assert [number for number in range(expected) if number not in bodies] == [], f"{name}: missing"
    assert [number for number, times in bodies.items() if times > 1] == [], f"{name}: twice"
    assert len(bodies) == expected
    places = set(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))
    assert len(places) == expected


def survive(broker: Broker, directory: Path, rounds: int, rnd: random.Random) -> None:
    """`rounds` drivers, each killed at some point after some of its Python processes; then one that ends."""
    total = 0
    for _ in range(rounds):
        send(broker, total, 2000)
        total += 2000
        driver = Driver(broker.store, directory)
        try:
            driver.await_batch(rnd.randint(2, 4))
            for _ in range(2):
                time.sleep(rnd.random() / 2)
                driver.kill_python(rnd)
                # Whatever has been read by now, there is a batch to come; it may be in the table before the send ends.
                begun = driver.batches
                send(broker, total, 300)
                total += 300
                driver.await_batch(begun + 1)
            time.sleep(rnd.random())
        finally:
            driver.kill()
    driver = Driver(broker.store, directory, "--end")
    try:
        driver.await_end()
    finally:
        if driver.process.poll() is None:
            driver.kill()
    check(directory, "parquet", total)
    check(directory, "delta", total)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    pytest.importorskip("deltalake")
    try:
        find_java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    with Broker(tmp_path / "broker", start_limit_s=60) as broker:
        broker.create_topic(TOPIC, 4)
        yield broker


def test_none_missing_and_none_twice(broker: Broker, tmp_path: Path) -> None:
    survive(broker, tmp_path, 1, random.Random(os.getpid()))


@pytest.mark.slow
def test_many_kills(broker: Broker, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "1"))
    survive(broker, tmp_path, int(os.environ.get("ROUNDS", "12")), random.Random(seed))
