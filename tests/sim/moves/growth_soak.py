"""Seeds in a row: ``python -m tests.sim.moves.growth_soak --seeds 500``."""

import sys

from tests.sim.moves.growth import GrowthRun
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Play what the command line says; 1 if anything was found."""
    arguments = options("tests.sim.moves.growth_soak", every=100).parse_args()
    return play_all(arguments, lambda seed: GrowthRun(seed).play(), ())


if __name__ == "__main__":
    sys.exit(main())
