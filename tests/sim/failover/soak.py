"""Many seeds: ``python -m tests.sim.failover.soak --first 0 --seeds 1000``.  Status 1 if anything was found."""

import sys

from tests.sim.failover.run import MODES, play
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Run what the command line says."""
    parser = options("tests.sim.failover.soak", every=50)
    parser.add_argument("--mode", choices=[mode.name for mode in MODES], help="otherwise each seed in one of the modes")
    arguments = parser.parse_args()
    mode = next((mode for mode in MODES if mode.name == arguments.mode), None)
    return play_all(arguments, lambda seed: play(seed, mode), ("acked", "epochs"))


if __name__ == "__main__":
    sys.exit(main())
