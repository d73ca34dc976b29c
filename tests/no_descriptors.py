"""A process without a free descriptor, as after a burst of connections."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors() -> Iterator[list[int]]:
    """Take all descriptors that this process may still have; yield them, to be closed one by one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 200, hard))
    try:
        try:
            while True:
                taken.append(os.dup(taken[0]))
        except OSError:
            pass
        yield taken
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
