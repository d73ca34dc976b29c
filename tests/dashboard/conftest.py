"""A broker for all tests, and one with access control; each test takes topics and groups of its own."""

from collections.abc import Iterator

import pytest

from sprocket.testing import Broker

GUARDED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret of inner"}',
    "initAuthenticationUser": '{"username":"root","password":"secret of root"}',
}


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("dashboard"), properties={"traceTopicEnable": "true"}) as running:
        yield running


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("guarded"), properties=GUARDED) as running:
        yield running
