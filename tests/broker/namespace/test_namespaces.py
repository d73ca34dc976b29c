"""Which messages of a batch a namespace allows."""

import random

import pytest

from broker.namespace.namespaces import SendLimits
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.message.message_type import DECIDING, MessageType, type_of
from sprocket.remoting.message.properties import NAME_END, VALUE_END, parse

KINDS = ("NORMAL", "FIFO", "DELAY")
LIMITS = SendLimits(NamespacePolicy(name="shop", message_types=KINDS))


def refuses(common: str, members: list[str]) -> bool:
    content, spans = b"DELAY", []
    for own in members:
        start = len(content)
        content += own.encode()
        spans.append((start, len(content)))
    try:
        LIMITS.check_types(common, content, iter(spans))
    except RequestError:
        return True
    return False


def test_the_type_of_each_message_is_that_of_its_own_properties_followed_by_those_of_the_batch() -> None:
    rng = random.Random(4)
    seen: set[MessageType] = set()

    def some() -> str:
        known = [
            (name, rng.choice(("1", "true", "True", "false", "")))
            for name in rng.sample(DECIDING, rng.choice((0, 0, 1, 2)))
        ]
        items = [f"{name}{NAME_END}{value}" for name, value in [*known, ("xDELAY", "DELAY"), ("a", "")]]
        rng.shuffle(items)
        return VALUE_END.join(items) + rng.choice(("", VALUE_END))

    for _ in range(3000):
        common, members = some(), [some() for _ in range(rng.randint(1, 3))]
        kinds = {type_of(parse(own + VALUE_END + common).get) for own in members}
        seen |= kinds
        assert refuses(common, members) == (not kinds <= set(KINDS)), (common, members)
    assert seen == set(MessageType)


def test_the_properties_of_a_batch_are_read_once_however_many_messages_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str | None] = []

    def counted(properties: str | None) -> dict[str, str]:
        reads.append(properties)
        return parse(properties)

    monkeypatch.setattr("sprocket.remoting.message.properties.parse", counted)
    assert not refuses("a\x01b\x02", ["__SHARDINGKEY\x01k\x02", "c\x01d\x02"] * 500)
    assert reads == ["a\x01b\x02"]
