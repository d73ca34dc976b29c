"""The client families and versions of the matrix, what each can do, and how its program is started."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat import maven
from tests.compat.storms.cpp_wheel import CPP_PROGRAM, CPP_WHEEL_VERSION
from tests.compat.storms.golang import GO_CLIENT_VERSION
from tests.compat.storms.kinds import KINDS

# Messages of each kind leave so far apart.
PERIOD_MS = 50
# Stock Java clients rebalance every 20 s unless a broker tells them to.
_REBALANCE_MS = 2_000


@dataclass(frozen=True)
class Client:
    """One column of the matrix; `without` says of kinds that it does not have why that is."""

    name: str
    version: str
    without: Mapping[str, str]
    # Kind -> what of the client's own faults the program goes round.
    notes: Mapping[str, str] = field(default_factory=dict)
    verdict: str = "passes"

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in KINDS if kind.name not in self.without)


JAVA = (
    Client(
        "Java",
        "4.9.8",
        {"delay-time": "new in client 5.0", "pop": "new in client 5.0"},
    ),
    Client("Java", "5.3.3", {}),
)
GO = Client(
    "Go",
    GO_CLIENT_VERSION,
    {"pop": "the client has none"},
    {
        "delay-time": "set by the property TIMER_DELAY_MS, for which the client has no name",
        "orderly": "queues that a consumer releases stay locked for 60 s",
        "async": "a send without a response ends the process, unless there is a `PanicHandler`",
        "request-reply": "as async; `CreateReplyMessage` reads the body as properties; brokers do not know "
        "a client that has only sent requests until its next heartbeat",
        "pull": "a pull to a broker that has gone waits until its timeout",
    },
)
_CPP_LACKS = "the bindings have none"
CPP = Client(
    "C++ (wheel `rocketmq`)",
    CPP_WHEEL_VERSION,
    {
        "delay-time": _CPP_LACKS,
        "transaction": _CPP_LACKS,
        "request-reply": _CPP_LACKS,
        "sql-filter": _CPP_LACKS,
        "lite-pull": _CPP_LACKS,
        "pull": "it stores offsets without the broker's name",
        "broadcasting": "no setting for where a new member starts",
        "retry": "no setting for the number of attempts",
        "pop": _CPP_LACKS,
    },
    verdict="not always, see below",
)
# Kinds that two families share.
MIXED = ("concurrent", "orderly", "request-reply", "sql-filter", "retry")


def java_command(version: str, home: Path) -> Sequence[str]:
    """Its arguments follow.  Raises maven.JavaMissingError."""
    return [
        *maven.short_java(),
        "-Xmx384m",
        f"-Duser.home={home}",
        f"-Drocketmq.client.logRoot={home}",
        f"-Drocketmq.client.rebalance.waitInterval={_REBALANCE_MS}",
        "-cp",
        maven.client_classpath(version),
        "compat.storm.Storm",
    ]


def sprocket_command() -> Sequence[str]:
    """The project's own client."""
    return [sys.executable, "-m", "tests.compat.storms.storm_program"]


def cpp_command(wheel: Path) -> Sequence[str]:
    """`wheel`: the folder of the package `rocketmq`."""
    return [sys.executable, str(CPP_PROGRAM), str(wheel)]


def go_command(program: Path) -> Sequence[str]:
    return [str(program)]
