"""Unmodified RocketMQ 5 clients go on when proxies and brokers are killed; nothing that was acknowledged is lost.

A client sends one message after the other until each is acknowledged, and refuses one of them.  Meanwhile servers are
killed and started again.  The client is not restarted, and must get every message.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from sprocket.testing import Broker
from tests.compat import maven
from tests.compat.java_client import Outcome
from tests.compat.proxies import proxy_clients
from tests.compat.proxies.proxy_rig import PROPERTIES, ProxyProcess, check, prepare

pytestmark = [pytest.mark.timeout(400)]

_SCENARIO = ("faults",)
_WARM_LIMIT_S = 200
Runner = Callable[[str, str, Sequence[str], Path], dict[str, Outcome]]
_RUNNERS: dict[str, Runner] = {
    "java": partial(proxy_clients.run_java, tls=False),
    "python": proxy_clients.run_python,
    "node": proxy_clients.run_node,
    "go": proxy_clients.run_go,
}
# Half a minute for each: CI runs each fault with one or two clients, and these by hand.
_JAVA = pytest.param("java", marks=[pytest.mark.java, pytest.mark.slow])
_PYTHON, _NODE, _GO = (pytest.param(name, marks=pytest.mark.slow) for name in ("python", "node", "go"))


class _Faults(threading.Thread):
    """Runs `fault` at each of `times`, s after the client has received its first message.

    The thread lives until `end`: the system ends a bound process with the thread that started it.
    """

    def __init__(self, home: Path, times: Sequence[float], fault: Callable[[], None]) -> None:
        super().__init__()
        self._output = home / "scenarios.txt"
        self._times = times
        self._fault = fault
        self._is_over = threading.Event()
        self.count = 0

    def end(self) -> None:
        """End the thread, and with it the servers that it started."""
        self._is_over.set()
        self.join()

    def run(self) -> None:
        limit = time.monotonic() + _WARM_LIMIT_S
        while b"WARM" not in self._text():
            if time.monotonic() > limit or b"RESULT" in self._text():
                return
            time.sleep(0.02)
        begin = time.monotonic()
        for at in self._times:
            time.sleep(max(0.0, begin + at - time.monotonic()))
            self._fault()
            self.count += 1
        self._is_over.wait()

    def _text(self) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            return self._output.read_bytes()
        return b""


def _run(
    client: str, proxy: ProxyProcess, broker: Broker, home: Path, times: Sequence[float], fault: Callable[[], None]
) -> None:
    run = f"{client}-{home.parent.name.replace('_', '-')}"[:60]
    prepare(broker, run, _SCENARIO)
    faults = _Faults(home, times, fault)
    faults.start()
    try:
        outcomes = _RUNNERS[client](proxy.endpoints, run, _SCENARIO, home)
    except (proxy_clients.ClientMissingError, maven.JavaMissingError) as missing:
        pytest.skip(str(missing))
    finally:
        faults.end()
    check(outcomes, _SCENARIO)
    assert faults.count == len(times), "the client had ended before its servers were killed"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", properties=PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("client", [_JAVA, _PYTHON, _NODE, "go"])
def test_proxy_is_killed_twice(broker: Broker, tmp_path: Path, client: str) -> None:
    proxy = ProxyProcess(broker, tmp_path / "proxy").start()

    def kill() -> None:
        proxy.end(signal.SIGKILL)
        proxy.start()

    try:
        # The refused message, m7, is sent about 1.5 s after the first.
        _run(client, proxy, broker, tmp_path / "client", (1.6, 9.0), kill)
    finally:
        proxy.end(signal.SIGTERM)


@pytest.mark.parametrize("client", ["node", _GO])
def test_proxy_is_stopped_and_started(broker: Broker, tmp_path: Path, client: str) -> None:
    proxy = ProxyProcess(broker, tmp_path / "proxy", {"grpcShutdownTimeSeconds": "3"}).start()

    def restart() -> None:
        proxy.end(signal.SIGTERM)
        proxy.start()

    try:
        _run(client, proxy, broker, tmp_path / "client", (2.0,), restart)
    finally:
        proxy.end(signal.SIGTERM)


@pytest.mark.parametrize("client", [_JAVA, _PYTHON, "node", _GO])
def test_broker_behind_the_proxy_is_killed(broker: Broker, tmp_path: Path, client: str) -> None:
    proxy = ProxyProcess(broker, tmp_path / "proxy").start()

    def kill() -> None:
        broker.kill()
        broker.start()

    try:
        _run(client, proxy, broker, tmp_path / "client", (2.0,), kill)
    finally:
        proxy.end(signal.SIGTERM)


@pytest.mark.parametrize("client", ["python", _NODE, _GO])
def test_workers_of_a_proxy_are_killed_in_turn(broker: Broker, tmp_path: Path, client: str) -> None:
    proxy = ProxyProcess(broker, tmp_path / "proxy", {"proxyProcesses": "2"}).start()

    def kill() -> None:
        children = Path(f"/proc/{proxy.pid}/task/{proxy.pid}/children").read_text(encoding="ascii").split()
        os.kill(int(children[0]), signal.SIGKILL)

    try:
        _run(client, proxy, broker, tmp_path / "client", (1.6, 6.0, 10.0), kill)
    finally:
        proxy.end(signal.SIGTERM)
