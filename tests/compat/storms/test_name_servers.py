"""Two name servers, and one of them is gone: running clients, ours and stock Java's, notice nothing."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.checkers.history import Histories
from tests.compat import maven
from tests.compat.cluster import SprocketCluster
from tests.compat.storms.clients import java_command, sprocket_command
from tests.compat.storms.storm import Program, create_topics

pytestmark = pytest.mark.timeout(240)

KINDS = ("concurrent", "orderly")
_PERIOD_MS = 20
_SOME = 40
_LIMIT_S = 60.0


class Traffic:
    """A program of one client's, which sends and consumes all the time."""

    def __init__(self, cluster: SprocketCluster, command: Sequence[str], home: Path) -> None:
        create_topics(cluster, home.name, KINDS)
        self.histories = Histories(KINDS)
        arguments = [cluster.name_server_address, home.name, str(_PERIOD_MS), *KINDS]
        self.program = Program([*command, *arguments], self.histories, home)

    def begin(self) -> None:
        """Start the consumers, then the producers."""
        self.program.await_phase("ready")
        self.program.tell("start")
        self.program.await_phase("started")
        self.program.tell("send")

    def await_more(self) -> None:
        """Wait until more of each kind has come than before."""
        self._await({kind: len(history.got) + _SOME for kind, history in self.histories.items()})

    def finish(self) -> None:
        """Send no more, and wait for what is under way."""
        self.program.tell("stop")
        self.program.await_phase("stopped")
        time.sleep(1.0)
        self._await(
            {kind: len(history.acknowledged) for kind, history in self.histories.items() if kind != "transaction"}
        )

    def _await(self, goals: dict[str, int]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while any(len(self.histories[kind].got) < goal for kind, goal in goals.items()):
            assert time.monotonic() < deadline, self.problems()
            time.sleep(0.02)

    def problems(self) -> list[str]:
        """What clients noticed: a send that failed, a message that came twice or not at all."""
        found = []
        for kind, history in self.histories.items():
            found += [f"{kind}: {trouble}" for trouble in history.troubles]
            found += [f"{sent.key} was not acknowledged" for sent in history.sent if not sent.is_acknowledged]
            times = Counter(got.key for got in history.got)
            found += [f"{key} came {count} times" for key, count in times.items() if count > 1]
            found += [f"{sent.key} did not come" for sent in history.acknowledged if not times[sent.key]]
        return found


@contextmanager
def running(cluster: SprocketCluster, commands: dict[str, Sequence[str]], directory: Path) -> Iterator[list[Traffic]]:
    """Each client's program."""
    with ExitStack() as stack:
        traffics = []
        for name, command in commands.items():
            home = directory / name
            home.mkdir(exist_ok=True)
            traffics.append(Traffic(cluster, command, home))
            stack.callback(traffics[-1].program.end)
        yield traffics


@pytest.mark.java
def test_one_of_two_name_servers_is_enough(tmp_path: Path) -> None:
    commands: dict[str, Sequence[str]] = {"ours": sprocket_command()}
    try:
        commands["java"] = java_command("5.3.3", tmp_path / "java")
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    with (
        SprocketCluster(tmp_path / "servers", brokers=2, name_servers=2) as cluster,
        running(cluster, commands, tmp_path) as traffics,
    ):
        for traffic in traffics:
            traffic.begin()
        for traffic in traffics:
            traffic.await_more()
        first, second = cluster.name_servers
        first.kill()
        for traffic in traffics:
            traffic.await_more()
        first.start()
        for broker in cluster.brokers:
            cluster.await_registered(broker)
        # Now all depends on the one that was gone.
        second.kill()
        for traffic in traffics:
            traffic.await_more()
        for traffic in traffics:
            traffic.finish()
            assert traffic.problems() == []
