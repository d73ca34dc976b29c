"""Transcripts of acknowledgements of pops, through the compiled kernel and the handler."""

import json
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from broker.ack.planner import AckKey, AckPlan
from broker.plan.table import Refused
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from tests.broker.hot_path import property_map
from tests.fuzz.twins.ack_targets import Twin, ack_header, compiled, handle_of
from tests.store.reading import stored
from tests.transcripts.script import HERE, Script, compare, compare_handler

FILES: Final = sorted(HERE.glob("ack_*.txt"))
HANDLE_FIELDS: Final = (
    "first_offset", "pop_time_ms", "invisible_ms", "revive_queue_id", "retry", "broker_name",
)  # fmt: skip


def described(plan: AckPlan | Refused) -> str:
    """Return one line about a plan."""
    if isinstance(plan, Refused):
        return f"refuse with {ResponseCode(plan.code).name}"
    why = plan.needs_handler and plan.needs_handler.name
    return f"slots of {plan.slot_ms} ms up to {plan.max_delay_ms} ms, handler needed: {why}"


class AckScript(Script[Twin]):
    """One way to serve acknowledgements."""

    def __init__(self, twin: Twin) -> None:
        super().__init__(twin)
        twin.serve([encode_request(RequestCode.ACK_MESSAGE, 1, ack_header(handle_of()))])  # the timer gets its queue

    def _revive_topic(self, queues: int) -> list[str]:
        return self._topic(self.twin.service.log.topic, queues)

    def _wait(self, s: int) -> list[str]:
        self.twin.clock.advance(float(s))
        return []

    def _ack(self, more: str = "", text: str | None = None, **changes: Any) -> list[str]:
        """Acknowledge a message whose handle ends with `more`, or is `text`."""
        twin, log = self.twin, self.twin.service.log
        handle = handle_of(**{name: changes.pop(name) for name in HANDLE_FIELDS if name in changes})
        handle = handle._replace(queue_id=changes.get("queue_id", 0), queue_offset=changes.get("offset", 3))
        header = ack_header(handle, extra_info=text or handle.encode() + more, **changes)
        key = AckKey(header.topic, header.consumer_group, header.queue_id, handle.revive_queue_id, handle.broker_name)
        plan, before = twin.service.ack_planner.plan(key), twin.store.max_offset(TIMER_TOPIC, 0)
        with patch.object(log, "append_acks", side_effect=log.append_acks) as appended:
            ((_, head, _),), *_ = twin.serve([encode_request(RequestCode.ACK_MESSAGE, 1, header)])
        response = json.loads(head)
        lines = [f"plan: {described(plan)}", f"served by: {'kernel' if appended.call_count else 'handler'}"]
        lines.append(f"response: {ResponseCode(response['code']).name}")
        if response.get("remark"):
            lines.append(f"remark: {' '.join(response['remark'].split())}")
        for offset in range(before, twin.store.max_offset(TIMER_TOPIC, 0)):
            record = stored(twin.store, TIMER_TOPIC, 0, offset)
            properties = " ".join(f"{name}={value}" for name, value in property_map(record).items())
            lines += [f"record: {bytes(record.body).decode()}", f"properties: {properties}"]
        counts = [twin.service.inflight.count("Orders", "CG", queue_id) for queue_id in range(2)]
        return [*lines, f"in flight: {counts}, acknowledged: {twin.service.counters.by_name()['GROUP_ACK_NUMS']()}"]


@pytest.mark.skipif(compiled is None, reason="the engine is not built")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_kernel_does_what_the_transcript_says(path: Path) -> None:
    compare(AckScript(Twin(True)), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_handler_does_the_same(path: Path) -> None:
    compare_handler(AckScript(Twin(False)), path)
