"""Descriptors that files get when connections have all others."""

import errno
import os

import pytest

from sprocket.common.spare_descriptors import SpareDescriptors
from tests.no_descriptors import no_descriptors


def opened() -> int:
    return os.open(os.devnull, os.O_RDONLY)


def test_a_file_gets_a_spare_descriptor_if_there_is_no_other() -> None:
    spare = SpareDescriptors()
    spare.keep(2)
    with no_descriptors():
        with pytest.raises(OSError, match="Too many open files"):
            opened()
        files = [spare.use(opened), spare.use(opened)]
        with pytest.raises(OSError, match="Too many open files"):
            spare.use(opened)
        spare.keep(2)  # there are none to keep
        os.close(files.pop())
        spare.keep(2)
        files.append(spare.use(opened))
        for file in files:
            os.close(file)
    spare.keep(0)


def test_another_error_costs_no_spare_descriptor() -> None:
    spare = SpareDescriptors()
    spare.keep(1)

    def fails() -> int:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    with no_descriptors():
        with pytest.raises(FileNotFoundError):
            spare.use(fails)
        os.close(spare.use(opened))
