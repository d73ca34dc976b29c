"""The fixture of the store's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.rig import Stores


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    """Opens stores on one directory; what is still open at the end is dropped as by a crash."""
    opened = Stores(tmp_path / "store")
    yield opened
    opened.close_all()
