"""The sweeps at the counts of a soak: ``python -m tests.sim.soak --seeds 100 --subsets 5``.

Each seed's script is crashed after every operation on the disk, with ASYNC_FLUSH and with SYNC_FLUSH, and as many files
are damaged as ``--flips`` says.  Ends with status 1 if anything was found; prints what gives the same state again.
"""

import argparse
import logging
import sys
import time

from tests.sim.crash_sweep import CrashSweep
from tests.sim.damage_sweep import DamageSweep
from tests.sim.script import ScriptRun
from tests.sim.sim_store import small_config

LARGE_SEGMENT_BYTES = 4 * 1024 * 1024 + 128 * 1024


def main() -> int:
    """Run what the command line says; the number of kinds of problems is the status."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.soak")
    parser.add_argument("--seeds", type=int, default=10, help="scripts, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--subsets", type=int, default=5, help="outcomes of each crash")
    parser.add_argument("--every", type=int, default=1, help="crash after every so many operations on the disk")
    parser.add_argument("--torn", action="store_true", help="pages may be half old and half new")
    parser.add_argument("--large", action="store_true", help="segments of 4 MiB, and bodies up to 4 MiB")
    parser.add_argument("--flips", type=int, default=0, help="damaged files for each seed")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    started = time.monotonic()
    states = found = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for sync_flush in (False, True):
            sweep = crash(arguments, seed, sync_flush=sync_flush)
            states += sweep.states
            found += report(f"crash seed={seed} sync_flush={sync_flush}", sweep.problems)
        if arguments.flips:
            found += flip(seed, arguments.flips)
        seconds = time.monotonic() - started
        print(f"seed={seed} crashed_states={states} found={found} seconds={seconds:.0f}", flush=True)
    return 1 if found else 0


def crash(arguments: argparse.Namespace, seed: int, *, sync_flush: bool) -> CrashSweep:
    """One crashed script."""
    sizes = {"segment_bytes": LARGE_SEGMENT_BYTES} if arguments.large else {}
    run = ScriptRun(
        seed,
        small_config(sync_flush=sync_flush, **sizes),
        largest_body=4 * 1024 * 1024 if arguments.large else None,
    )
    sweep = CrashSweep(run, subsets=arguments.subsets, every=arguments.every, torn=arguments.torn)
    sweep.play(arguments.steps)
    return sweep


def flip(seed: int, cases: int) -> int:
    """Damage a clean and a crashed store of this seed."""
    found = 0
    for clean in (True, False):
        sweep = DamageSweep(seed, clean)
        sweep.play(cases, seed=seed)
        found += report(f"damage seed={seed} clean={clean}", sweep.problems)
        unseen = f"tags_codes={sweep.tags_codes_differ} seals={sweep.seals_lost}"
        print(f"damage seed={seed} clean={clean} outcomes={sweep.outcomes} {unseen}", flush=True)
    return found


def report(what: str, problems: list[str]) -> int:
    """Print the problems; how many there are."""
    for problem in problems:
        print(f"FOUND {what}: {problem}", flush=True)
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
