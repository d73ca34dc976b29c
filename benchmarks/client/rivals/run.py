"""What a message costs our client, nats-py and aiokafka, each with its own server; their slices take turns.

    go install github.com/nats-io/nats-server/v2@latest
    mvn -f benchmarks/client/rivals/pom.xml dependency:copy-dependencies -DoutputDirectory=/tmp/kafka
    pip install nats-py aiokafka
    python -m benchmarks.client.rivals.run --nats ~/go/bin/nats-server --kafka /tmp/kafka [--count 20000] [--rounds 7]

Messages have 128 B.  CPU us is for one message, of the whole process of the client.  Without `--nats` or `--kafka`
that client is left out.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.client.rivals.servers import kafka, nats
from benchmarks.client.worker_process import WorkerProcess
from benchmarks.system.process import leave_on_sigterm
from tests.compat.cluster import LARGE_FILES, SprocketCluster

_NAMES = {
    "sprocket": "Sprocket, `send_many`",
    "sprocket-batch": "Sprocket, `auto_batch`",
    "nats": "nats-py, JetStream",
    "kafka": "aiokafka, Kafka",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, help="messages of a slice")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--nats", help="path of nats-server")
    parser.add_argument("--kafka", type=Path, help="folder with the jars of Kafka")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(SprocketCluster(folder / "sprocket", properties=LARGE_FILES))
        addresses = {"sprocket": cluster.name_server_address, "sprocket-batch": cluster.name_server_address}
        for name, server, given in (("nats", nats, options.nats), ("kafka", kafka, options.kafka)):
            if given is not None:
                (folder / name).mkdir()
                addresses[name] = stack.enter_context(server(given, folder / name))
        workers = {}
        for name, address in addresses.items():
            command = [sys.executable, "-m", "benchmarks.client.rivals.worker", name, address]
            workers[name] = WorkerProcess(command)
            stack.callback(workers[name].stop)
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        before = os.getloadavg()[0]
        for _ in range(options.rounds + 1):
            for what in ("send", "consume"):
                for name, worker in workers.items():
                    found.setdefault((name, what), []).append(worker.measured(what, options.count))
        print(f"Load average before {before:.1f}, after {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores.\n")
        print("| Client | send: CPU us | a second | consume: CPU us | a second |\n|---|--:|--:|--:|--:|")
        for name in workers:
            cells = []
            for what in ("send", "consume"):
                slices = found[name, what][1:]  # the first warms up
                cells.append(f"{median(one['cpu_us'] for one in slices):.1f}")
                cells.append(f"{median(one['rate'] for one in slices):,.0f}")
            print(f"| {_NAMES[name]} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    leave_on_sigterm()
    main()
