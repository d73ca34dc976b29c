"""A loop for each test, whatever a framework of another test keeps open for the whole process."""

from collections.abc import Iterator

import pytest

from sprocket.client.connection.event_loop_thread import EventLoopThread, shared_loop


@pytest.fixture(autouse=True)
def own_loop() -> Iterator[None]:
    """Celery, Django and Dramatiq have a connection that ends with the process; it goes on after the test."""
    before = dict(vars(shared_loop))
    vars(shared_loop).update(vars(EventLoopThread()))
    yield
    vars(shared_loop).update(before)
