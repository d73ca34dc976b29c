"""Runs a module in a process that ends with its parent.

``python -I -m sprocket.common.processes.bound <pid of the parent> <module> <arguments>``: the system sends SIGTERM when
the parent ends for any reason.  Linux only; elsewhere the module runs without this.
"""

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int) -> None:
    """Ask the system for SIGTERM when the process `parent`, which started this one, ends; exit if it has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, is gone")


def main() -> None:
    """Bind this process to its parent, and run the module as a program."""
    end_with_parent(int(sys.argv[1]))
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
