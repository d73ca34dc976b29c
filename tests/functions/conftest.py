"""One broker for the tests of this folder."""

from collections.abc import Iterator

import pytest

from sprocket.testing import Broker


@pytest.fixture(scope="session")
def functions_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("functions")) as broker:
        yield broker
