"""The client families and versions of the matrix, what each can do, and how its program is started."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat import maven
from tests.compat.golang import GO_CLIENT_VERSION
from tests.compat.kinds import KINDS

# Messages of each kind leave so far apart.
PERIOD_MS = 50
# Stock Java clients rebalance every 20 s unless a broker tells them to.
_REBALANCE_MS = 2_000
# Kinds that no client is run for yet.
_PENDING = ("delay-time", "pop")


@dataclass(frozen=True)
class Client:
    """One column of the matrix; `without` says of kinds that it does not have why that is."""

    name: str
    version: str
    without: Mapping[str, str]
    # Kind -> what of the client's own faults the program goes round.
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in KINDS if kind.name not in self.without)


JAVA = (
    Client(
        "Java",
        "4.9.8",
        {"delay-time": "since 5.0", "pop": "not by setClientRebalance"},
    ),
    Client("Java", "5.3.3", dict.fromkeys(_PENDING, "pending")),
)
GO = Client(
    "Go",
    GO_CLIENT_VERSION,
    {"delay-time": "pending", "pop": "the client has none"},
    {
        "async": "a send that is never answered ends the process (`sendAsync` reads the missing answer)",
        "request-reply": "as async; `CreateReplyMessage` takes the body for properties; a client that has only "
        "requested is unknown to brokers until its next heartbeat",
        "pull": "a pull whose broker is gone is waited for until its time is over",
    },
)


def java_command(version: str, home: Path) -> Sequence[str]:
    """Its arguments follow.  Raises maven.JavaMissingError."""
    return [
        maven.java(),
        "-Xmx384m",
        "-XX:+UseSerialGC",
        f"-Duser.home={home}",
        f"-Drocketmq.client.logRoot={home}",
        f"-Drocketmq.client.rebalance.waitInterval={_REBALANCE_MS}",
        "-cp",
        maven.client_classpath(version),
        "compat.storm.Storm",
    ]


def go_command(program: Path) -> Sequence[str]:
    return [str(program)]
