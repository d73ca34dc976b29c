"""Exit statuses of every command; README.md lists them for operators."""

from typing import Final

SUCCESS: Final = 0
# A server refused, or could not be reached.
FAILURE: Final = 1
# The command line or the configuration is wrong: nothing was started.
USAGE: Final = 2
# A condition that our own code guarantees does not hold (EX_SOFTWARE).
INVARIANT: Final = 70
# The disk failed, or what is on it cannot be used (EX_IOERR).
DISK: Final = 74
