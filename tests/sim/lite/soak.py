"""Many seeds: ``python -m tests.sim.lite.soak --first 0 --seeds 100``.  Status 1 if anything was found."""

import sys

from tests.sim.lite.run import LITE_MODES, play_lite
from tests.sim.seed_soak import options, play_all


def main() -> int:
    """Run what the command line says."""
    parser = options("tests.sim.lite.soak", every=10)
    parser.add_argument("--mode", choices=[mode.name for mode in LITE_MODES], help="otherwise each seed in one of them")
    arguments = parser.parse_args()
    mode = next((mode for mode in LITE_MODES if mode.name == arguments.mode), None)
    return play_all(arguments, lambda seed: play_lite(seed, mode), ("acked", "epochs"))


if __name__ == "__main__":
    sys.exit(main())
