"""Shares in which sends of one read are stored, as far as new queues and errors decide on them."""

from typing import Any
from unittest.mock import patch

import pytest

from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message.properties import encode
from tests.fuzz.twins.send_targets import Twin
from tests.send_headers import send_frame, send_header


def wide_twin() -> Twin:
    twin = Twin(False, sync_flush=False)
    twin.topics.by_name["Wide"] = TopicConfig("Wide", 60, 60)
    return twin


def sends(headers: list[SendMessageRequestHeaderV2]) -> list[bytes]:
    return [b"".join(send_frame(at, header, b"x") for at, header in enumerate(headers, 1))]


@pytest.mark.parametrize("changes", [{"queue_id": -1}, {"properties": encode({"DELAY": "1"})}], ids=["any", "delayed"])
def test_sends_that_begin_no_queue_are_one_append(changes: dict[str, Any]) -> None:
    """The queue of a header is not always that of its message."""
    twin = wide_twin()
    twin.serve(sends([send_header("Wide", queue_id=queue_id) for queue_id in range(60)]))
    twin.serve(sends([send_header("Wide", **changes)]))
    with patch.object(twin.store, "append", side_effect=twin.store.append) as appended:
        responses = twin.serve(sends([send_header("Wide", **({"queue_id": at} | changes)) for at in range(60)]))[0]
    assert len(responses) == 60 and appended.call_count == 1


def test_an_error_after_an_append_refuses_no_send_that_waited() -> None:
    twin, stored = wide_twin(), 0

    def fail_first(*arguments: object, **more: object) -> None:
        nonlocal stored
        stored += 1
        if stored == 1:
            raise ZeroDivisionError

    with patch.object(twin.flow, "stored", side_effect=fail_first):
        responses = twin.serve(sends([send_header("Wide", queue_id=queue_id) for queue_id in range(60)]))[0]
    refused = [head for _, head, _ in responses if b'"code":0' not in head]
    assert len(responses) == 60 and len(refused) == 8
    assert stored == 8
