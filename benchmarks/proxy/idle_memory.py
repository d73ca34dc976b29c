"""Memory of an idle client at the proxy, and at an empty server of each library: what of it is the proxy's own.

    python -m benchmarks.proxy.idle_memory [--count 2000] [--on-one 1] [--kinds h2corn,ours,uvloop,ours-grpcio]

The clients are those of `benchmarks.proxy.idle_clients`: a telemetry stream and heartbeats.  `h2corn` and `uvloop`
(grpcio) are the canned servers, which keep nothing of a client.  Shown is resident memory for each client.
"""

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

from benchmarks.proxy.latency import FIRST, others
from benchmarks.proxy.run import KINDS, SCENARIO, started
from sprocket.testing import Broker
from tests.compat.proxies.proxy_rig import prepare

_SETTLED_S = 2.0


def main() -> None:
    """Run, and print a line for each server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--on-one", type=int, default=1, help="clients that share a connection")
    parser.add_argument("--kinds", default="h2corn,ours,uvloop,ours-grpcio", help=", ".join(KINDS))
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if not {*kinds} <= {*KINDS}:
        parser.error(f"--kinds: allowed is {', '.join(KINDS)}")
    with tempfile.TemporaryDirectory() as name, Broker(Path(name, "broker")) as broker:
        for kind in kinds:
            prepare(broker, kind, [SCENARIO])
            with contextlib.ExitStack() as running:
                server = running.enter_context(started(kind, broker, Path(name, kind)))
                with others(server, FIRST, on_one=options.on_one):
                    pass
                time.sleep(_SETTLED_S)
                before_mib = server.memory_mib
                running.enter_context(others(server, options.count, on_one=options.on_one))
                time.sleep(_SETTLED_S)
                each_kib = (server.memory_mib - before_mib) * 1024 / options.count
                print(f"{kind:12} {each_kib:6.1f} KiB for each idle client", flush=True)


if __name__ == "__main__":
    main()
