"""What the message index costs a sender: two brokers, one with `messageIndexEnable`, one without, measured in turns.

    python -m benchmarks.store.index_cost [--rounds 20] [--seconds 0.5] [--outstanding 64]

Messages of 128 B, with a unique key for each outstanding request; the generator is that of the system benchmark.  The
answer is the median of the ratios of neighbouring slices.
"""

import argparse
import contextlib
import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.system import generator, process
from benchmarks.system.workload import Workload
from tests.compat import wire
from tests.compat.cluster import SprocketCluster

TOPIC, QUEUES = "bench-index", 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--outstanding", type=int, default=64)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="index-cost-"))
    workload = Workload("send", 128, arguments.outstanding)
    ratios: list[float] = []
    rates: dict[str, list[float]] = {"true": [], "false": []}
    cpu: dict[str, list[float]] = {"true": [], "false": []}
    try:
        with contextlib.ExitStack() as stack:
            brokers = {
                value: stack.enter_context(
                    SprocketCluster(folder / value, properties={"messageIndexEnable": value})
                ).brokers[0]
                for value in rates
            }
            for broker in brokers.values():
                wire.create_topic(broker.address, TOPIC, QUEUES)
                generator.run(broker.address, TOPIC, workload, 1.0, "auto")
            for number in range(arguments.rounds):
                for value in ("true", "false") if number % 2 else ("false", "true"):
                    before = process.cpu_s(brokers[value].pid)
                    result = generator.run(brokers[value].address, TOPIC, workload, arguments.seconds, "auto")
                    rates[value].append(result.rate)
                    used = process.cpu_s(brokers[value].pid) - before
                    cpu[value].append(used * 1e6 / max(1, result.messages))
                ratios.append(rates["true"][-1] / rates["false"][-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for value, name in (("true", "with index"), ("false", "without")):
        rate, used = statistics.median(rates[value]), statistics.median(cpu[value])
        print(f"{name:10} {rate:10,.0f} messages/s, {used:.2f} us of CPU a message")
    quarters = statistics.quantiles(ratios, n=4)
    print(f"ratio      median {statistics.median(ratios):.3f}, quartiles {quarters[0]:.3f} to {quarters[2]:.3f}")


if __name__ == "__main__":
    process.leave_on_sigterm()
    main()
