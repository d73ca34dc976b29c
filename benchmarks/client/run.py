"""What each message costs our client: CPU of its process, beside a control that sends frames made before.

    python -m benchmarks.client.run [--rounds 7] [--against TREE] [--only single send_many] [--uvloop] [--realtime]
        [--without-sockets]

A name server and a broker run in processes of their own; so do the clients, one for each engine.  `TREE` has the
`sprocket` package of another commit, whose clients take turns with these.  CPU us is for one message, of all threads of
the client's process.  A rate is by the clock, so it says little on a busy machine; it is that of the fastest slice.
Slices of the clients take turns; the ratios are medians over neighbouring slices.  With `--without-sockets` each client
has a canned broker in its own process: the control's CPU is that broker's.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.client.worker_process import WorkerProcess
from benchmarks.system.process import leave_on_sigterm
from tests.compat.cluster import LARGE_FILES, SprocketCluster

_ROOT = Path(__file__).resolve().parents[2]
_TOPIC = "Orders"
# Any address leads to a canned broker.
_CANNED = "127.0.0.1:1"
# Messages of one slice.
WORKLOADS = {
    "control": 20_000,
    "send_many": 10_000,
    "gather": 8_192,
    "auto_batch": 16_384,
    "send_many_batched": 16_384,
    "send_batch": 16_384,
    "control_single": 1_500,
    "single": 1_500,
    "consume": 20_000,
    "run": 20_000,
    "simple_ack": 960,
    "simple_ack_all": 6_400,
}


def started(tree: Path, engine: str, namesrv: str, more: Sequence[str]) -> WorkerProcess:
    """Start the client of `tree` with one engine."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "SPROCKET_ENGINE": engine}
    script = str(Path(__file__).with_name("worker.py"))
    return WorkerProcess([sys.executable, script, namesrv, _TOPIC, *more], environment=environment, cwd=tree)


def started_cluster(stack: ExitStack) -> str:
    """Start a name server and a broker; return the address of the former."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    cluster = stack.enter_context(SprocketCluster(folder / "cluster", properties=LARGE_FILES))
    return cluster.name_server_address


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--against", type=Path, help="directory with the `sprocket` package of another commit")
    parser.add_argument("--only", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--engines", nargs="*", default=["python", "native"])
    parser.add_argument("--uvloop", action="store_true", help="run the clients on uvloop")
    parser.add_argument("--realtime", action="store_true", help="let no other process preempt the clients (needs root)")
    parser.add_argument("--without-sockets", action="store_true", help="canned brokers in the clients' own processes")
    options = parser.parse_args(arguments)
    trees = {"": _ROOT} if options.against is None else {"before ": options.against.resolve(), "now ": _ROOT}
    names = [name for name in ("uvloop", "realtime", "without_sockets") if getattr(options, name)]
    more = ["--" + name.replace("_", "-") for name in names]
    with ExitStack() as stack:
        name_server = _CANNED if options.without_sockets else started_cluster(stack)
        workers = {}
        for engine in options.engines:
            for name, tree in trees.items():
                workers[name + engine] = started(tree, engine, name_server, more)
                stack.callback(workers[name + engine].stop)
        if not options.without_sockets and set(options.only) & {"consume", "run", "simple_ack", "simple_ack_all"}:
            next(iter(workers.values())).measured("control", 60_000)
        titles = [f"{name}: least CPU us; median; most a second" for name in workers]
        if options.against is not None:
            titles += [f"{engine}: CPU now / before" for engine in options.engines]
        print("| Workload | " + " | ".join(titles) + " |")
        print("|---|" + "--:|" * len(titles))
        for workload in options.only:
            found: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
            for _ in range(options.rounds + 1):
                for name, worker in workers.items():
                    found[name].append(worker.measured(workload, WORKLOADS[workload]))
            # The first round warms up.
            cells = []
            for of in found.values():
                costs, rates = [one["cpu_us"] for one in of[1:]], [one["rate"] for one in of[1:]]
                cells.append(f"{min(costs):.1f}; {median(costs):.1f}; {max(rates):,.0f}")
            if options.against is not None:
                for engine in options.engines:
                    pairs = zip(found[f"now {engine}"][1:], found[f"before {engine}"][1:], strict=True)
                    cells.append(f"{median(now['cpu_us'] / before['cpu_us'] for now, before in pairs):.2f}")
            print(f"| {workload} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    leave_on_sigterm()
    main()
