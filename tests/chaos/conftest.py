"""The fixtures of the chaos tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.load import PROPERTIES
from tests.chaos.nursery import ChaosBroker, Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Where brokers are forked; one per file of tests."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def broker(nursery: Nursery, tmp_path: Path) -> Iterator[ChaosBroker]:
    """A broker with SYNC_FLUSH and small files, not started."""
    with ChaosBroker(nursery, tmp_path, PROPERTIES) as broker:
        yield broker
