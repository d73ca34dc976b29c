"""Exit statuses of every command; README.md lists them for operators."""

from typing import Final

SUCCESS: Final = 0
# A server refused, or cannot be reached.
FAILURE: Final = 1
# The command line or the configuration is wrong: nothing was started.
USAGE: Final = 2
# A bug of Sprocket: a condition that its code guarantees does not hold (EX_SOFTWARE).
INVARIANT: Final = 70
# The disk failed, or its files cannot be used (EX_IOERR).
DISK: Final = 74
# Ctrl-C ended a command, as a shell says of a program that SIGINT ended.  A server stops in order instead.
INTERRUPTED: Final = 130
