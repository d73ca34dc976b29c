"""A program whose wall clock is wrong: ``python shifted.py MILLISECONDS PROGRAM ARGUMENT...``.

A file of its own, with nothing but Python: it runs before the program's modules take the clock.
"""

import sys
import time
from importlib.metadata import entry_points

_now_ns = time.time_ns


def main() -> None:
    """Shift the clock, then run the program of that name."""
    shift_ms, name = int(sys.argv[1]), sys.argv[2]
    time.time_ns = lambda: _now_ns() + shift_ms * 1_000_000
    time.time = lambda: time.time_ns() / 1e9
    sys.argv = sys.argv[2:]
    (program,) = entry_points(group="console_scripts", name=name)
    sys.exit(program.load()())


if __name__ == "__main__":
    main()
