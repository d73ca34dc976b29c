"""Fixtures of the controller's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controller.site import Site, site_at


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_at(tmp_path) as opened:
        yield opened
