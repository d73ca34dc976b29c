"""Transcripts of pops, through the compiled kernel and the handler."""

import json
import zlib
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from broker.plan.table import Refused
from broker.pop.planner import PopPlan
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.topic import MESSAGE_TYPE
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.message.topic_names import TIMER_TOPIC
from tests.broker.hot_path import property_map, records
from tests.fuzz.twins.ack_targets import compiled_pops
from tests.fuzz.twins.pop_targets import PopTwin, pop_header, ready_twin
from tests.store.reading import stored
from tests.transcripts.script import HERE, Script, compare, compare_handler

FILES: Final = sorted(HERE.glob("pop_*.txt"))


def described(plan: PopPlan | Refused) -> str:
    """Return one line about a plan."""
    if isinstance(plan, Refused):
        return f"refuse with {ResponseCode(plan.code).name}"
    wanted = "all messages" if plan.matches is None else "by properties" if plan.codes is None else plan.codes
    retries = [None if topic is None else topic.topic_name for topic in (plan.retry, plan.even_retry, plan.left_retry)]
    factor = f", {plan.priority_factor} of 100 pops by priority" if plan.priority_factor else ""
    why = plan.needs_handler and plan.needs_handler.name
    return f"wanted {wanted}, retry topics {retries}{factor}, handler needed: {why}"


class PopScript(Script[PopTwin]):
    """One way to serve pops.  The group CG has popped one message of each queue."""

    def _group(self, name: str, enabled: int = 1, factor: int = -1) -> list[str]:
        self.twin.core.groups.by_name[name] = SubscriptionGroupConfig(
            name, consume_enable=bool(enabled), attributes={"priority.factor": str(factor)} if factor >= 0 else {}
        )
        self.twin.config.plan_version.rise()
        return []

    def _type(self, topic: str, kind: str) -> list[str]:
        self.twin.core.topics.by_name[topic].attributes = {MESSAGE_TYPE: kind}
        self.twin.config.plan_version.rise()
        return []

    def _reset(self, group: str, queue_id: int, offset: int) -> list[str]:
        self.twin.core.offsets.reset(group, "Orders", queue_id, offset)
        return []

    def _pop(self, **changes: Any) -> list[str]:
        twin, log = self.twin, self.twin.service.log
        header = pop_header(**{"queue_id": 0, "max_msg_nums": 3, **changes})
        plan, before = twin.service.planner.admit(header, twin.clock.wall_ms()), twin.store.max_offset(TIMER_TOPIC, 0)
        with patch.object(log, "append_checkpoints", side_effect=log.append_checkpoints) as appended:
            ((_, head, body),), *_ = twin.serve([encode_request(RequestCode.POP_MESSAGE, 1, header)])
        response = json.loads(head)
        fields = " ".join(f"{name}={value}" for name, value in (response.get("extFields") or {}).items())
        lines = [f"plan: {described(plan)}", f"served by: {'kernel' if appended.call_count else 'handler'}"]
        lines.append(f"response: {ResponseCode(response['code']).name} {fields}".rstrip())
        if body:
            lines.append(f"records: {len(records(body))}, {len(body)} bytes, crc {zlib.crc32(body):08x}")
        elif response.get("remark"):
            lines.append(f"remark: {' '.join(response['remark'].split())}")
        for offset in range(before, twin.store.max_offset(TIMER_TOPIC, 0)):
            record = stored(twin.store, TIMER_TOPIC, 0, offset)
            properties = " ".join(f"{name}={value}" for name, value in property_map(record).items())
            lines += [f"checkpoint: {bytes(record.body).decode()}", f"properties: {properties}"]
        topic, group, queue_id = header.topic, header.consumer_group, max(header.queue_id, 0)
        committed, flight = (
            twin.core.offsets.query(group, topic, queue_id),
            twin.service.inflight.count(topic, group, queue_id),
        )
        return [*lines, f"queue {queue_id}: committed {committed}, in flight {flight}"]


@pytest.mark.skipif(compiled_pops is None, reason="the engine is not built")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_kernel_does_what_the_transcript_says(path: Path) -> None:
    compare(PopScript(ready_twin(True)), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_handler_does_the_same(path: Path) -> None:
    compare_handler(PopScript(ready_twin(False)), path)
