"""`python -m benchmarks.system.run`: all engines stand side by side; prints rates, latencies, CPU and memory.

`benchmarks.targets` has the targets of the engine.
"""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.system import engines, generator, page_cache, process
from benchmarks.system.measure import side_by_side
from benchmarks.system.report import Report, print_report
from benchmarks.system.workload import EXCHANGES, SHAPES, Workload
from tests.compat import wire

_FILE_COLUMNS = 180

FULL = (
    *SHAPES,
    *(Workload("send", 1024, outstanding) for outstanding in (1, 64, 256)),
    *(Workload("send", size, outstanding, 8) for size in (128, 1024) for outstanding in (64, 256)),
    Workload("send", 128, 64, serialization=wire.ROCKETMQ),
    *(Workload("pull", size, outstanding) for size in (128, 1024) for outstanding in (1, 4)),
    Workload("pull", 128, 8, 8),
    Workload("send", 128, 1, sync_flush=True),
    Workload("send", 128, 64, sync_flush=True),
)


KINDS = tuple(Workload(kind, 128, 64) for kind in EXCHANGES)


@click.command()
@click.option("--kinds", is_flag=True, help="Transactions, delayed messages, SQL pulls, pops, in place of plain ones.")
@click.option("--quick", is_flag=True, help="The shapes of applications only, in shorter slices.")
@click.option(
    "--engines",
    "names",
    help="Which, in this order; other:PATH is a broker of another checkout.  "
    f"With other settings: {', '.join(engines.VARIANTS)}.  [default: all without these]",
)
@click.option("--seconds", type=float, help="Length of a slice.  [default: 1 quick, 2 full]")
@click.option("--rounds", type=int, help="Slices of each engine and workload.  [default: 5 quick, 7 full]")
@click.option("--loop", type=click.Choice(generator.LOOPS), default="auto", help="The load generator's inner loop.")
@click.option("--patience", default=0, help="Repeat a disturbed measurement up to so often; keep the quietest.")
@click.option("--only", multiple=True, help='Only workloads with all these words, as "send 128 16x1"; may be repeated.')
@click.option(
    "--full-cache", is_flag=True, help="Fill the page cache first, so that new pages of a log replace old ones."
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all numbers here; - is stdout.")
def main(
    kinds: bool,
    quick: bool,
    names: str | None,
    seconds: float | None,
    rounds: int | None,
    loop: str,
    patience: int,
    only: tuple[str, ...],
    full_cache: bool,
    json_path: Path | None,
) -> None:
    """Measures whole brokers under load, beside a naive asyncio broker and Apache RocketMQ."""
    to_stderr = json_path == Path("-")
    console = Console(stderr=to_stderr, width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    chosen = [*engines.ENGINES] if names is None else [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if not engines.is_known(name)]
    if unknown:
        raise click.BadParameter(
            f"no engine {', '.join(unknown)}; there are {', '.join((*engines.ENGINES, *engines.VARIANTS))}, other:PATH"
        )
    all_workloads = KINDS if kinds else SHAPES if quick else FULL
    workloads = [one for one in all_workloads if not only or any(map(one.is_called, only))]
    if not workloads:
        raise click.BadParameter(f"no such workload; there are {'; '.join(one.name for one in all_workloads)}")
    seconds = seconds or (1.0 if quick else 2.0)
    rounds = rounds or (5 if quick else 7)
    report = Report(process.machine(), generator.loop_name(loop), seconds, rounds, patience)
    try:
        for sync_flush in (False, True):
            some = [one for one in workloads if one.sync_flush == sync_flush]
            if some:
                fill = page_cache.free_bytes() if full_cache else 0
                with page_cache.filled(fill), console.status("start") as status:
                    side_by_side(report, chosen, some, quick=quick, sync_flush=sync_flush, say=status.update)
    finally:
        print_report(console, report)
        _write_json(report, json_path)
    if report.failures:
        raise SystemExit(1)


def _write_json(report: Report, path: Path | None) -> None:
    if path is None:
        return
    text = json.dumps(report.as_json(), indent=2)
    if path == Path("-"):
        click.echo(text)
    else:
        path.write_text(text + "\n")


if __name__ == "__main__":
    process.leave_on_sigterm()
    main()
