"""Fixtures of the name server's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.namesrv.site import Site, site_at


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with site_at(tmp_path) as opened:
        yield opened
