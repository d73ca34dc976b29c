"""Free memory of the C library, given back to the system.

A file of its own: it calls the C library.  glibc keeps what was freed below the newest block that is in use.  After a
flood of clients that can be most of what they took.
"""

import ctypes


def trim() -> None:
    """Give free memory back; do nothing where the C library cannot.  Takes up to some ten ms: call it in a thread."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
