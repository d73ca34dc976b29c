"""Many seeds: ``python -m tests.sim.cluster.soak --first 0 --seeds 1000``.

Ends with status 1 if anything was found; prints what gives the same run again.
"""

import argparse
import gc
import logging
import sys
import time
from collections import Counter

from tests.sim.cluster.cluster import play


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.cluster.soak")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--max-problems", type=int, default=20, help="stop after so many seeds that failed")
    parser.add_argument("--tail", action="store_true", help="print the end of the trace of seeds that pass, too")
    parser.add_argument("--every", type=int, default=1000, help="print a line after so many seeds")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    gc.disable()
    began, failed = time.monotonic(), 0
    totals: Counter[str] = Counter()
    for number in range(arguments.seeds):
        outcome = play(arguments.first + number)
        totals.update({"acked": outcome.acked, "excused": outcome.excused, "events": outcome.events})
        totals.update({f"fault {kind}": count for kind, count in outcome.faults.items()})
        totals.update({f"answer {kind}": count for kind, count in outcome.answers.items()})
        if outcome.problems or arguments.tail:
            print(outcome.report(), flush=True)
        failed += bool(outcome.problems)
        if failed >= arguments.max_problems:
            break
        if number % 20 == 19:
            gc.collect()
        if number % arguments.every == arguments.every - 1:
            print(f"seeds={number + 1} failed={failed} seconds={time.monotonic() - began:.0f}", flush=True)
    seconds = time.monotonic() - began
    print(f"seeds={number + 1} first={arguments.first} failed={failed} seconds={seconds:.0f}")
    print(dict(sorted(totals.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
