"""The sweeps open thousands of stores; what those log is kept out of the captured log, which would hold all of it."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No log records while a test of this package runs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
