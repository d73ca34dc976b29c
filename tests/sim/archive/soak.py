"""Many months: ``python -m tests.sim.archive.soak --first 0 --seeds 500``.  Status 1 if anything was found."""

import sys

from tests.sim.archive.month import play_month
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Run what the command line says."""
    arguments = options("tests.sim.archive.soak", every=25).parse_args()
    return play_all(arguments, play_month, ("dropped_files", "archived_reads"))


if __name__ == "__main__":
    sys.exit(main())
