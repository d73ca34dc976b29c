"""Many seeds: ``python -m tests.sim.cluster.soak --first 0 --seeds 1000``.

Ends with status 1 if anything was found; prints what gives the same run again.
"""

import sys

from tests.sim.cluster.cluster import play
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Run what the command line says."""
    parser = options("tests.sim.cluster.soak", every=1000)
    parser.add_argument("--tail", action="store_true", help="print the end of the trace of seeds that pass, too")
    arguments = parser.parse_args()
    return play_all(arguments, play, ("acked", "excused", "events"), prints_all=arguments.tail)


if __name__ == "__main__":
    sys.exit(main())
