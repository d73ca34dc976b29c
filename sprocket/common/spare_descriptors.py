"""Descriptors that are kept back for files, for moments in which connections have all others.

A listener accepts every connection that waits, and so do the other listeners of the process, before the server can
refuse the first of them (`sprocket.common.descriptors`).  A file that is opened meanwhile gets one of these.
"""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# What the system says if the process, or the whole machine, has no descriptor left.  No file is damaged by that.
NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class SpareDescriptors:
    """Open descriptors that mean nothing.  For any thread."""

    def __init__(self) -> None:
        self._spare: list[int] = []

    def keep(self, count: int) -> None:
        """Have `count` of them again, or as many as there are; to be called every few seconds."""
        while len(self._spare) > count:
            self._free_one()
        with contextlib.suppress(OSError):  # there are none now
            while len(self._spare) < count:
                self._spare.append(os.open(os.devnull, os.O_RDONLY))

    def use(self, opens: Callable[[], T]) -> T:
        """Return what `opens` returns; while the system has no descriptor for it, let it have one of these.

        Raises what `opens` raises, also if none is left.
        """
        while True:
            try:
                return opens()
            except OSError as error:
                # Another thread may take what is freed: then the next one follows.
                if error.errno not in NO_DESCRIPTOR or not self._free_one():
                    raise

    def _free_one(self) -> bool:
        try:
            os.close(self._spare.pop())
        except IndexError:
            return False
        return True


# Of this process: `sprocket_cli.server.server_process` keeps some.
spare_descriptors: Final = SpareDescriptors()
