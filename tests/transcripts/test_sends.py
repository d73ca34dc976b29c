"""Transcripts of sends, through the compiled kernel and the handler."""

import json
import re
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from broker.plan.table import Refused
from broker.send.planner import SendKey, SendPlan
from broker.topic.attributes import QUEUE_TYPE
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.frames import encode_request
from sprocket.remoting.message.properties import encode
from tests.broker.hot_path import property_map
from tests.fuzz.twins.send_targets import Twin, compiled
from tests.send_headers import send_header
from tests.store.reading import stored
from tests.transcripts.script import HERE, Script, compare, compare_handler

FILES: Final = sorted(HERE.glob("send_*.txt"))
KEY: Final = "0A000001000000000000000000000001"


def described(plan: SendPlan | Refused) -> str:
    """Return one line about a plan."""
    if isinstance(plan, Refused):
        return f"refuse with {ResponseCode(plan.code).name}"
    queue = "no queue yet" if plan.queue is None else f"queue of {plan.queue.topic}"
    return f"{queue}, flags {plan.flags:#x}, handler needed: {plan.needs_handler and plan.needs_handler.name}"


class SendScript(Script[Twin]):
    """One way to serve sends.  Queue 0 of the topic Orders has a message."""

    def __init__(self, twin: Twin) -> None:
        super().__init__(twin)
        self._send()

    def _topic(  # type: ignore[override] # topics of sends have more to say
        self, name: str, queues: int = 4, read_queues: int = 0, perm: int = 6, order: int = 0, kind: str = "",
        tags: str = "SINGLE_TAG", unsaved: int = 0,
    ) -> list[str]:  # fmt: skip
        name = name.replace("~", "_")
        self.twin.topics.by_name[name] = TopicConfig(
            name, read_queues or queues, queues, perm=perm, order=bool(order), topic_filter_type=tags,
            attributes={QUEUE_TYPE: kind} if kind else {},
        )  # fmt: skip
        if unsaved:
            self.twin.topics.unsaved.add(name)
        self.twin.config.plan_version.rise()
        return []

    def _saved(self, name: str) -> list[str]:
        self.twin.topics.unsaved.discard(name)
        return []

    def _delete_queues(self, topic: str) -> list[str]:
        self.twin.store.delete_topic(topic)
        return []

    def _send(
        self, topic: str = "Orders", count: int = 1, delay_ms: int = 0, half: int = 0, priority: int | str = "",
        sharding_key: str = "", lite_topic: str = "", **changes: Any,
    ) -> list[str]:  # fmt: skip
        """Send `count` messages in one read; `~` in a topic stands for `_`."""
        twin, topics = self.twin, self.twin.topics
        more = ({"TIMER_DELAY_MS": str(delay_ms)} if delay_ms else {}) | (
            {"TRAN_MSG": "true", "PGROUP": "PG"} if half else {}
        )
        named = {"_SYS_MSG_PRIORITY_": str(priority), "__SHARDINGKEY": sharding_key, "__LITE_TOPIC": lite_topic}
        more |= {name: value for name, value in named.items() if value}
        header = send_header(
            topic.replace("~", "_"), properties=encode({"UNIQ_KEY": KEY, "TAGS": "A"} | more), **changes
        )
        before = {queue: twin.store.max_offset(*queue) for queue in twin.store.queues()}
        plan = twin.processor.planner.plan(SendKey(header.topic, header.queue_id))
        frame = encode_request(RequestCode.SEND_MESSAGE_V2, 1, header, 4) + b"body"
        append = twin.store.append_encoded
        topics.relied_on.clear()
        with patch.object(twin.store, "append_encoded", side_effect=append) as appended:
            frames = twin.serve([frame * count])[0]
        lines = [f"plan: {described(plan)}", f"served by: {'kernel' if appended.call_count else 'handler'}"]
        for _, head, _ in frames:
            response = json.loads(head)
            fields = " ".join(f"{name}={value}" for name, value in (response.get("extFields") or {}).items())
            lines.append(f"response: {ResponseCode(response['code']).name} {fields}".rstrip())
            if response.get("remark"):
                remark = " ".join(response["remark"].split())
                # A local time.
                lines.append(f"remark: {re.sub('(?<=until ).*', '...', remark)}")
        for topic, queue_id in sorted(twin.store.queues()):
            for offset in range(before.get((topic, queue_id), 0), twin.store.max_offset(topic, queue_id)):
                record = stored(twin.store, topic, queue_id, offset)
                properties = " ".join(f"{name}={value}" for name, value in property_map(record).items())
                lines.append(f"record: {topic} {queue_id} at {offset}, flags {record.sys_flag:#x}, {properties}")
        return [*lines, *(f"waits for the file of {topic}" for topic in topics.relied_on[:1])]


@pytest.mark.skipif(compiled is None, reason="the engine is not built")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_kernel_does_what_the_transcript_says(path: Path) -> None:
    compare(SendScript(Twin(True, sync_flush=False)), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_handler_does_the_same(path: Path) -> None:
    compare_handler(SendScript(Twin(False, sync_flush=False)), path)
