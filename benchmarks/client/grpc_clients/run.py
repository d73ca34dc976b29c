"""What a message costs our client over gRPC and RocketMQ's client for Python, at one proxy; their slices take turns.

    python -m benchmarks.client.grpc_clients.run [--count 1000] [--rounds 5]

The proxy is ours, before one broker.  Bodies have 1 KiB.  `send` sends one message after the other, `send_64` keeps 64
outstanding.  `receive` takes up to 32 at a time and acknowledges one after the other, `receive_together` all of them
at once.  CPU us is for one message, of all threads of the client's process, and the next figure says how many messages
a second of CPU is enough for.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.client.worker_process import WorkerProcess
from sprocket.testing import Broker
from tests.compat.proxies.proxy_clients import python_environment
from tests.compat.proxies.proxy_rig import ProxyProcess, prepare

_SCENARIO: Final = "bench"
_NAMES: Final = {"ours": "Sprocket, `grpc://`", "theirs": "rocketmq-python-client 5.1.2"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="messages of a slice of sends")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    count = options.count
    works = {"send": count, "send_64": count, "receive": count, "receive_together": count}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(Broker(folder / "broker"))
        proxy = ProxyProcess(broker, folder / "proxy", {"tlsServerMode": "disabled"}).start()
        stack.callback(proxy.end, signal.SIGTERM)
        workers = {}
        for name in _NAMES:
            prepare(broker, name, [_SCENARIO])
            python = sys.executable if name == "ours" else str(python_environment())
            topic = f"{name}-{_SCENARIO}"
            script = Path(__file__).with_name(f"{name}.py")
            workers[name] = WorkerProcess([python, str(script), proxy.endpoints, topic, f"{topic}-group"])
            stack.callback(workers[name].stop)
        found: dict[tuple[str, str], list[dict[str, float]]] = {}
        for _ in range(options.rounds + 1):
            for what, messages in works.items():
                for name, worker in workers.items():
                    found.setdefault((name, what), []).append(worker.measured(what, messages))
    titles = [f"{what}: CPU us; a second of CPU; a second" for what in works]
    print(f"| Client | {' | '.join(titles)} |\n|---|{'--:|' * len(titles)}")
    for name, title in _NAMES.items():
        cells = []
        for what in works:
            # The first round warms up.
            cpu_us = median(one["cpu_us"] for one in found[name, what][1:])
            rate = median(one["rate"] for one in found[name, what][1:])
            cells.append(f"{cpu_us:.0f}; {1e6 / cpu_us:,.0f}; {rate:,.0f}")
        print(f"| {title} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
