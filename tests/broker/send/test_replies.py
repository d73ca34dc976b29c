"""Responses to sends of messages that can be recalled."""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.send.replies import SendReplies
from sprocket.remoting.framing import JSON
from tests.compat import wire

HOST = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")


@pytest.mark.parametrize("serialization", [JSON, wire.ROCKETMQ])
@pytest.mark.parametrize("key", ["7F0000010B2A", "a key, with signs"])
def test_the_handle_is_part_of_the_answer(serialization: int, key: str) -> None:
    request: Any = SimpleNamespace(flag=0, is_answered=0, serialization=serialization, opaque=77)
    sent = [(request, 3, key.encode(), b"djEgVA=="), (request, 3, key.encode(), b"")]
    frames = SendReplies(HOST, "DefaultRegion", True).frames(sent, [(5, 4096, 300), (6, 4396, 300)])
    answers = []
    while frames:
        size = int.from_bytes(frames[:4], "big")
        answers.append(wire.parse(frames[4 : 4 + size]))
        frames = frames[4 + size :]
    first, second = (answer.fields for answer in answers)
    assert first == {
        "msgId": "0A01020300001538" + "0000000000001000", "queueId": "3", "queueOffset": "5", "transactionId": key,
        "recallHandle": "djEgVA==", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip
    assert "recallHandle" not in second
    assert (second["transactionId"], second["queueOffset"]) == (key, "6")
