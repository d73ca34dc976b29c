"""Pop over two brokers with the stock client, one of them killed in the middle: nothing is lost, little comes twice.

COMPAT_AGAINST=apache runs it against the original.
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.compat import maven
from tests.compat.cluster import ApacheCluster, Cluster, SprocketCluster

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

_VERSION = "5.3.3"
_CONSUMERS = 2
_PERIOD_MS = 10
_LIMIT_S = 180.0
# The client's invisible time of 5 s, and what a broker needs to hand out again what was not acknowledged.
_COMES_AGAIN_S = 12.0
# An acknowledgement is on its way no longer than this.
_ACKNOWLEDGED_S = 3.0
# A broker that dies hands out again what was popped since it last saved its offsets (flushConsumerOffsetInterval).
_SAVED_S = 5.0 + _ACKNOWLEDGED_S


@dataclass
class Stream:
    """What `compat.PopStream` has said so far: times are monotonic seconds."""

    process: "subprocess.Popen[str]"
    sent: dict[int, tuple[float, str]] = field(default_factory=dict)  # when, and to which broker
    got: dict[int, list[float]] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match line.split():
                case ["SENT", number, broker]:
                    self.sent[int(number)] = (time.monotonic(), broker)
                case ["GOT", number, _, _]:
                    self.got.setdefault(int(number), []).append(time.monotonic())
                case ["FAILED" | "ENDED" as kind, *_]:
                    self.troubles[kind] += 1

    def wait(self, ready: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not ready():
            assert self.process.poll() is None, "the client ended"
            assert time.monotonic() < deadline, f"not in {_LIMIT_S} s: {what}"
            time.sleep(0.05)

    def count_sent(self, broker: str, since: float) -> int:
        return sum(name == broker and at > since for at, name in list(self.sent.values()))

    def stop_sending(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextmanager
def streaming(cluster: Cluster, home: Path) -> Iterator[Stream]:
    home.mkdir()
    command = [
        *maven.short_java(), "-Xmx256m", f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}",
        "-Drocketmq.client.rebalance.waitInterval=2000", "-cp", maven.client_classpath(_VERSION), "compat.PopStream",
        cluster.name_server_address, "kill", str(_CONSUMERS), str(_PERIOD_MS),
    ]  # fmt: skip
    with (home / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=home
        )
    stream = Stream(process)
    reader = threading.Thread(target=stream.read, daemon=True)
    reader.start()
    try:
        yield stream
    finally:
        process.kill()
        process.wait()
        reader.join()


def test_a_killed_broker_loses_nothing_of_what_was_popped(java: None, tmp_path: Path) -> None:
    kind = ApacheCluster if os.environ.get("COMPAT_AGAINST") == "apache" else SprocketCluster
    with kind(tmp_path / "servers", brokers=2) as cluster, streaming(cluster, tmp_path / "client") as stream:
        victim = cluster.brokers[1]
        stream.wait(lambda: len(stream.got) > 200, "200 messages")
        time.sleep(_SAVED_S)
        killed = time.monotonic()
        victim.kill()
        stream.wait(lambda: stream.count_sent(cluster.brokers[0].name, killed) > 50, "sends to the other broker")
        victim.start()
        cluster.await_registered(victim)
        back = time.monotonic()
        stream.wait(lambda: stream.count_sent(victim.name, back) > 100, "sends to the broker that is back")
        stream.stop_sending()
        stream.wait(lambda: stream.sent.keys() <= stream.got.keys(), "every message that was taken")
        time.sleep(_COMES_AGAIN_S)
        twice = {number: times for number, times in stream.got.items() if len(times) > 1}
        print(f"{len(stream.sent)} sent, {len(twice)} delivered more than once, {dict(stream.troubles)}")
        assert stream.sent.keys() <= stream.got.keys()
        assert [number for number in twice if twice[number][0] < killed - _SAVED_S] == []
        after = back + _ACKNOWLEDGED_S
        assert [number for number in twice if number in stream.sent and stream.sent[number][0] > after] == []
