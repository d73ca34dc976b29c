"""The Python reader of usual pulls: what it decodes and checks.  `test_usual_pulls.py` compares its responses."""

from typing import Any
from unittest.mock import patch

import pytest

from broker.subscription.subscription_groups import SubscriptionGroups
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.frames import encode_request
from sprocket.remoting.routes import RouteTable
from tests.fuzz.twins.pull_targets import Twin, pull_header
from tests.store.insides import queues_of


def frame(code: int = 11, **changes: Any) -> bytes:
    return encode_request(code, 1, pull_header(**changes))


@pytest.mark.parametrize("changes", [{"subscription": "A"}, {"queue_offset": 1000}, {"consumer_group": "Off"}])
def test_an_unusual_pull_is_decoded_once(changes: dict[str, Any]) -> None:
    pulls = frame() + frame(**changes) + frame()
    expected = Twin(False, is_usual=False).serve([pulls])
    with patch.object(RouteTable, "decode", side_effect=AssertionError):
        assert Twin(False).serve([pulls]) == expected


def test_pulls_of_one_read_share_the_checks_of_their_lane() -> None:
    looked_up: list[str] = []
    find = SubscriptionGroups.get

    def counted(groups: SubscriptionGroups, name: str) -> SubscriptionGroupConfig | None:
        looked_up.append(name)
        return find(groups, name)

    pulls = b"".join(frame(queue_id=number % 2, max_msg_nums=4) for number in range(8))
    with patch.object(SubscriptionGroups, "get", counted):
        twin = Twin(False)
        twin.serve([pulls])
        looked_up.clear()
        twin.serve([pulls, pulls])
    assert looked_up == ["CG"] * 4


def test_a_damaged_header_after_usual_pulls() -> None:
    damaged = frame().replace(b'"queueId":"0"', b'"queueId":"?"')
    stream = frame(max_msg_nums=2) + damaged + frame(max_msg_nums=3)
    assert Twin(False).serve([stream]) == Twin(False, is_usual=False).serve([stream])


def test_a_queue_in_place_of_another_is_read() -> None:
    """Also beyond the end of the other one, as after a topic was deleted and created again."""
    usual, single = Twin(False), Twin(False, is_usual=False)
    queues = queues_of(usual.store).by_key
    first, second = sorted((queues["Orders", number] for number in (0, 1)), key=lambda queue: queue.max_offset)
    assert first.max_offset < second.max_offset
    pull = frame(queue_id=first.queue_id, queue_offset=first.max_offset, max_msg_nums=1)
    assert usual.serve([frame(queue_id=first.queue_id), pull]) == single.serve([frame(queue_id=first.queue_id), pull])
    with patch.dict(queues, {("Orders", first.queue_id): second}):
        found = usual.serve([pull])
        assert found == single.serve([pull])
    assert found[0][0][2]
