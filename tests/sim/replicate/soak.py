"""Many seeds: ``python -m tests.sim.replicate.soak --seeds 500``.  Status 1 if anything was found."""

import sys

from tests.sim.replicate.run import SHAPES, play
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Run what the command line says."""
    parser = options("tests.sim.replicate.soak", every=100)
    parser.add_argument("--shape", choices=list(SHAPES), help="otherwise each seed in one of them")
    arguments = parser.parse_args()
    return play_all(arguments, lambda seed: play(seed, arguments.shape), ("messages", "moves"))


if __name__ == "__main__":
    sys.exit(main())
