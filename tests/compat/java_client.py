"""Runs the Java scenarios and RocketMQ's mqadmin as child processes."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.compat import maven

RUN_LIMIT_S = 240
ADMIN_LIMIT_S = 60
SCENARIOS = (
    "async-send",
    "auto-create-topic",
    "batch-queue",
    "batch-send",
    "broadcasting",
    "compressed-body",
    "concurrent-push",
    "consume-later",
    "dead-letter",
    "delay-level-1",
    "delay-level-2",
    "join-and-leave",
    "lite-pull-assign",
    "lite-pull-subscribe",
    "long-polling",
    "message-limits",
    "offset-over-restart",
    "offsets",
    "oneway",
    "orderly-push",
    "pull-consumer",
    "query-by-key",
    "queue-selector",
    "refused-sends",
    "request-reply",
    "sql-filter",
    "sql-filter-lite-pull",
    "sql-filter-refused",
    "sync-send",
    "tag-filter",
    "transactions",
    "unicode",
    "view-message",
)
# Of clients that can pop.
POP_SCENARIOS = (
    "pop-consume-later",
    "pop-join-and-leave",
    "pop-push",
    "pop-shared-queues",
    "pop-sql-filter",
    "pop-tag-filter",
    "pop-to-pull",
)
# Of clients that know delays of their own.
TIMER_SCENARIOS = ("timer-delay", "timer-recall", "timer-refused")
POP_VERSION = "5.3.3"
_AT_ONCE = 6
# Stock clients rebalance every 20 s unless a broker tells them to; scenarios only wait less for it.
_REBALANCE_MS = 2_000
_QUIET = '<configuration><root level="OFF"/></configuration>'
_ONE_LOGGER = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%m%n</pattern></encoder></appender>
  <logger name="{}" level="INFO"><appender-ref ref="out"/></logger>
  <root level="OFF"/>
</configuration>
"""


@dataclass(frozen=True)
class Outcome:
    """What one scenario reported."""

    passed: bool
    duration_ms: int
    message: str


def run_scenarios(
    name_servers: str,
    version: str,
    serialization: str,
    home: Path,
    scenarios: tuple[str, ...] = ("all",),
    account: tuple[str, str] | None = None,
    create_at: str | None = None,
    namespace: str | None = None,
) -> dict[str, Outcome]:
    """Runs scenarios in one JVM with this client; a scenario that never reported is missing in the answer.

    `home` takes the client's logs and local offsets; `account` is the access key and secret key that requests are
    signed with; `create_at` are the name servers of the brokers that create topics, if others.  All clients are in
    `namespace`.
    Raises maven.JavaMissingError.
    """
    run = f"{version.replace('.', '')}-{serialization.lower()}-{home.name}"
    command = [
        *maven.short_java(),
        "-Xmx384m",
        f"-Duser.home={home}",
        f"-Drocketmq.client.logRoot={home}",
        f"-Drocketmq.serialize.type={serialization}",
        f"-Drocketmq.client.rebalance.waitInterval={_REBALANCE_MS}",
        *([] if account is None else [f"-Dcompat.accessKey={account[0]}", f"-Dcompat.secretKey={account[1]}"]),
        *([] if create_at is None else [f"-Dcompat.createAt={create_at}"]),
        *([] if namespace is None else [f"-Dcompat.namespace={namespace}"]),
        "-cp",
        maven.client_classpath(version),
        "compat.Main",
        name_servers,
        run,
        str(_AT_ONCE),
        *scenarios,
    ]
    output = home / "scenarios.txt"
    home.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        try:
            subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=RUN_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            file.write(f"\nthe JVM was not done in {RUN_LIMIT_S} s\n".encode())
    return _outcomes(output.read_text(errors="replace"))


def _outcomes(output: str) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for line in output.splitlines():
        if line.startswith("RESULT\t"):
            _, name, verdict, millis, message = line.split("\t", 4)
            outcomes[name] = Outcome(verdict == "PASS", int(millis), message)
    return outcomes


def mqadmin(home: Path, *arguments: str, is_old: bool = False) -> subprocess.CompletedProcess[str]:
    """RocketMQ's own mqadmin, or that of 4.9.8.  Raises maven.JavaMissingError."""
    command = mqadmin_command(home, *arguments, is_old=is_old)
    return subprocess.run(command, capture_output=True, text=True, timeout=ADMIN_LIMIT_S, check=False)


def mqadmin_command(home: Path, *arguments: str, is_old: bool = False, logger: str = "") -> list[str]:
    """Return the words that run `mqadmin`.  The log lines of the class `logger` go to standard output.

    Raises maven.JavaMissingError.
    """
    classpath = maven.old_tools_classpath() if is_old else maven.apache_classpath()
    command = tools_command(home, classpath, _ONE_LOGGER.format(logger) if logger else _QUIET)
    return [*command, "org.apache.rocketmq.tools.command.MQAdminStartup", *arguments]


def tools_command(home: Path, classpath: str, logback: str = _QUIET) -> list[str]:
    """Return the words that start a small JVM for a tool, which keeps its files in `home`.

    What is to run is to follow.  Raises maven.JavaMissingError.
    """
    home.mkdir(parents=True, exist_ok=True)
    configuration = home / "logback.xml"
    configuration.write_text(logback)
    return [
        *maven.short_java(),
        "-Xmx128m",
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        f"-Drocketmq.client.logRoot={home}",
        f"-Drmq.logback.configurationFile={configuration}",
        "-cp",
        classpath,
    ]


class AdminShell:
    """RocketMQ's own mqadmin, many commands in one JVM: it is slow to start.  Raises maven.JavaMissingError."""

    def __init__(self, home: Path, version: str = maven.APACHE_VERSION) -> None:
        source = Path(__file__).parent / "java" / "admin" / "AdminShell.java"
        self._process = subprocess.Popen(
            [*tools_command(home, maven.compiled(source, maven.apache_classpath(version))), source.stem],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=home,  # consumerStatus writes its files there
        )

    def run(self, *arguments: str) -> str:
        """What one command printed."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*arguments, sep="\t", file=self._process.stdin, flush=True)
        lines: list[str] = []
        for line in self._process.stdout:
            if line == "=\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError("the JVM ended: " + "".join(lines))

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(ADMIN_LIMIT_S)
        self._process.stdout.close()
