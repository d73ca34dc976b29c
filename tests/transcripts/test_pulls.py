"""Transcripts of pulls, through the kernel and the handler."""

import json
import zlib
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest

from broker.plan.table import Refused
from broker.pull.planner import PullPlan, pull_key
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.frames import encode_request
from tests.broker.hot_path import records
from tests.fuzz.twins.pull_targets import ENGINES, Twin, pull_header
from tests.transcripts.script import HERE, Script, compare, compare_handler

FILES: Final = sorted(HERE.glob("pull_*.txt"))


def described(plan: PullPlan | Refused) -> str:
    """Return one line about a plan."""
    if isinstance(plan, Refused):
        return f"refuse with {ResponseCode(plan.code).name}"
    wanted = "all messages" if plan.matches is None else "by properties" if plan.codes is None else plan.codes
    return f"broker {plan.broker_id}, wanted {wanted}, handler needed: {plan.needs_handler and plan.needs_handler.name}"


class PullScript(Script[Twin]):
    """One way to serve pulls."""

    def _subscribe(self, group: str, expression: str, model: str = "CLUSTERING", version: int = 5) -> list[str]:
        self.twin.subscribe(group, model, expression, version)
        return []

    def _reset(self, group: str, queue_id: int, offset: int) -> list[str]:
        self.twin.offsets.reset(group, "Orders", queue_id, offset)
        return []

    def _pull(self, code: int = 11, **changes: Any) -> list[str]:
        header, twin, counts = pull_header(**changes), self.twin, []
        plan, found = twin.processor.planner.plan(pull_key(code, header)), twin.store.kernel_reads.found
        noted = lambda reads, messages: (counts.append(reads), found(reads, messages))  # noqa: E731
        with patch.object(twin.store.kernel_reads, "found", noted):
            ((_, head, body),), *_ = twin.serve([encode_request(code, 1, header)])
        response = json.loads(head)
        fields = " ".join(f"{name}={value}" for name, value in (response.get("extFields") or {}).items())
        lines = [f"plan: {described(plan)}", f"served by: {'kernel' if counts else 'handler'}"]
        lines.append(f"response: {ResponseCode(response['code']).name} {fields}".rstrip())
        if body:
            lines.append(f"records: {len(records(body))}, {len(body)} bytes, crc {zlib.crc32(body):08x}")
        elif response.get("remark"):
            lines.append(f"remark: {' '.join(response['remark'].split())}")
        return [*lines, f"committed: {twin.offsets.totals()}"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("is_native", ENGINES)
def test_a_kernel_does_what_the_transcript_says(path: Path, is_native: bool) -> None:
    compare(PullScript(Twin(is_native)), path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_handler_does_the_same(path: Path) -> None:
    compare_handler(PullScript(Twin(False, has_kernel=False)), path)
