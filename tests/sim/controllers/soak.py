"""Many seeds: ``python -m tests.sim.controllers.soak --first 0 --seeds 1000``.  Status 1 if anything was found."""

import sys

from tests.sim.controllers.run import play
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Run what the command line says."""
    return play_all(options("tests.sim.controllers.soak", every=500).parse_args(), play, ("calls",))


if __name__ == "__main__":
    sys.exit(main())
