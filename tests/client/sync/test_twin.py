"""The blocking classes have every public name and argument of the asyncio classes."""

import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

import sprocket
from sprocket import sync

PAIRS = [
    (getattr(sprocket, name), getattr(sync, name))
    for name in (
        "Connection", "Consumer", "OrderlyConsumer", "SimpleConsumer", "Producer", "TransactionProducer", "Topic",
        "TypedConsumer", "TypedMessage", "Deduplicator", "LiteConsumer", "Session",
    )
]  # fmt: skip
# Arguments by which the parts of the asyncio client are put together; applications do not pass them.
INNER = {"self", "clock", "owner", "link"}


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def arguments(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - INNER


def test_every_class_of_the_asyncio_client_has_a_twin() -> None:
    clients = {name for name in sprocket.__all__ if hasattr(getattr(sprocket, name), "__aenter__")}
    # Stores are shared by both forms of the deduplicator.
    assert clients - {"AdminClient", "PostgresClaims", "RedisClaims", "SqliteClaims"} <= set(sync.__all__)


@pytest.mark.parametrize(("aio", "blocking"), PAIRS, ids=[aio.__name__ for aio, _ in PAIRS])
def test_names_and_arguments_are_the_same(aio: type, blocking: type) -> None:
    # An orderly consumer has `receive` only to say that it has none.
    shared = names(aio) - ({"receive"} if aio is sprocket.OrderlyConsumer else set())
    assert shared - names(blocking) == set()
    for name in shared:
        method = getattr(aio, name)
        if inspect.isfunction(method):
            assert arguments(method) - arguments(getattr(blocking, name)) == set(), name
    made_by_others = ("Connection", "Topic", "TypedConsumer", "TypedMessage", "Session")
    if aio.__name__ in sync.__all__ and aio.__name__ not in made_by_others:
        assert arguments(aio) - arguments(blocking) == set()


def test_connect_takes_the_same_arguments() -> None:
    assert arguments(sprocket.connect) == arguments(sync.connect)


def test_help_of_a_blocking_class_names_the_blocking_classes() -> None:
    helped = pydoc.plain(pydoc.render_doc(sync.Connection))
    assert "-> sprocket.client.sync.producers.Producer" in helped
    assert "async with" not in helped and "sprocket.client.producer" not in helped
    assert sync.Connection.consumer.__module__ == sync.Connection.__module__


@pytest.mark.parametrize("kind", [sprocket.ReceivedMessage, sprocket.PoppedMessage])
def test_messages_have_the_same_names(kind: type) -> None:
    blocking = sync.ReceivedMessage.__origin__  # type: ignore[attr-defined]
    actions = {"ack", "nack", "extend", "reply", "dead_letter", "process"}
    for name in actions:
        assert not inspect.iscoroutinefunction(getattr(blocking, name))
        assert arguments(getattr(kind, name)) == arguments(getattr(blocking, name))


def test_the_administration_has_every_request() -> None:
    with sync.Admin("127.0.0.1:1") as admin:
        assert names(sprocket.AdminClient) <= set(dir(admin))
        with pytest.raises(sprocket.AdminError):
            admin.topic_list()
        with pytest.raises(AttributeError, match="no method 'topic_lists'"):
            admin.topic_lists()
