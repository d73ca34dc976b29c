"""Transcripts of ends of transactions, through the compiled kernel and the handler."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from acl.auth.model import Action
from broker.plan.table import Refused
from broker.transaction.planner import EndKey, EndPlan
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.message.topic_names import TRANS_OP_HALF_TOPIC
from tests.broker.hot_path import property_map
from tests.fuzz.twins.end_targets import COMMIT, OneTopic, Twin, compiled, counted, end_frame, guarded
from tests.store.reading import stored
from tests.transcripts.script import HERE, Script, compare, compare_handler

FILES: Final = sorted(HERE.glob("end_*.txt"))


def described(plan: EndPlan | Refused) -> str:
    """Return one line about a plan."""
    if isinstance(plan, Refused):
        return f"refuse with {ResponseCode(plan.code).name}"
    what = f"commit to {plan.topic}" if plan.is_commit else f"commit nothing of {plan.topic or 'no topic'}"
    return f"{what}, handler needed: {plan.needs_handler and plan.needs_handler.name}"


class EndScript(Script[Twin]):
    """One way to serve ends.  Half message `n` is for queue ``n % 4`` of Orders."""

    def __init__(self, twin: Twin) -> None:
        super().__init__(twin)
        self._open = twin.table

    def _half(self, **properties: Any) -> list[str]:
        """Store one more half message."""
        extra = {name: str(value).replace(" ", "_") for name, value in properties.items()}
        self.twin.halves.append(self.twin.prepare(len(self.twin.halves), 10, extra))
        return [f"half message {len(self.twin.halves) - 1}"]

    def _wait(self, s: int) -> list[str]:
        self.twin.clock.advance(float(s))
        return []

    def _permit(self, topic: str) -> list[str]:
        """Let producers publish to one topic alone."""
        self.twin.table = guarded(self._open, OneTopic(topic, Action.PUB))
        return []

    def _end(self, half: int, outcome: int = COMMIT, oneway: int = 0, **changes: Any) -> list[str]:
        twin = self.twin
        message = twin.transactions.half_at(twin.halves[half][1])
        assert message is not None
        plan = twin.processor.planner.plan(EndKey(outcome, *(message.target or (None, 0))))
        before = {key: twin.store.max_offset(*key) for key in twin.store.queues()}
        changes = {name: bool(value) if name == "from_transaction_check" else value for name, value in changes.items()}
        with counted(twin) as moved:
            responses, *_ = twin.serve([end_frame(twin.halves[half], outcome, oneway=bool(oneway), **changes)])
        lines = [f"plan: {described(plan)}", f"served by: {'kernel' if moved else 'handler'}"]
        for _, head, _ in responses:
            response = json.loads(head)
            lines.append(f"response: {ResponseCode(response['code']).name}")
            if response.get("remark"):
                lines.append(f"remark: {' '.join(response['remark'].split())}")
        for topic, queue_id in sorted(twin.store.queues()):
            for offset in range(before.get((topic, queue_id), 0), twin.store.max_offset(topic, queue_id)):
                record = stored(twin.store, topic, queue_id, offset)
                if topic == TRANS_OP_HALF_TOPIC:
                    lines.append(f"done: {bytes(record.body).decode()}")
                else:
                    key = property_map(record)["UNIQ_KEY"]
                    lines.append(f"message: {key} to queue {queue_id} of {topic}, sysFlag {record.sys_flag}")
        done = twin.transactions
        return [*lines, f"committed: {dict(done.committed)}, rolled back: {dict(done.rolled_back)}"]


@pytest.mark.skipif(compiled is None, reason="the engine is not built")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_kernel_does_what_the_transcript_says(path: Path) -> None:
    compare(EndScript(Twin(True)), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_handler_does_the_same(path: Path) -> None:
    compare_handler(EndScript(Twin(False)), path)
