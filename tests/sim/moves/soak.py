"""Seeds in a row: ``python -m tests.sim.moves.soak --seeds 500``."""

import sys

from tests.sim.moves.run import Run
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Play what the command line says; 1 if anything was found."""
    arguments = options("tests.sim.moves.soak", every=100).parse_args()
    return play_all(arguments, lambda seed: Run(seed).play(), ())


if __name__ == "__main__":
    sys.exit(main())
