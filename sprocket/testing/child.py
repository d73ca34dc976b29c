"""What the process of a test's broker runs: ``python -I -m sprocket.testing.child <pid of the test> <arguments>``.

It is `sprocket standalone`, ended by the system when the test's process is gone, however that ended.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the system send SIGTERM when `parent`, which started this process, ends.  Linux only; else does nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this broker, is gone")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    from sprocket.cli.main import main

    main(["standalone", *sys.argv[2:]], prog_name="sprocket")
