"""Transcripts of pulls: what arrives, its plan, who serves it, and the response.  One file for each rule, both kernels.

Each step is a line with a command, a line of dashes, and what follows from it.  `REWRITE_TRANSCRIPTS=1` writes what
happens into the files; read the difference before you commit it.
"""

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
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

FILES: Final = sorted(Path(__file__).parent.glob("pull_*.txt"))


def values_of(words: list[str]) -> dict[str, Any]:
    """Return the values of words like ``name=value``; underscores in a value stand for blanks."""
    pairs = dict(word.split("=", 1) for word in words)
    return {
        name: int(value) if value.lstrip("-").isdigit() else None if value == "null" else value.replace("_", " ")
        for name, value in pairs.items()
    }


def described(plan: PullPlan | Refused) -> str:
    """Return one line about a plan."""
    if isinstance(plan, Refused):
        return f"refuse with {ResponseCode(plan.code).name}"
    wanted = "all messages" if plan.matches is None else "by properties" if plan.codes is None else plan.codes
    return f"broker {plan.broker_id}, wanted {wanted}, handler needed: {plan.needs_handler and plan.needs_handler.name}"


class Script:
    """One way to serve pulls, driven by the commands of a transcript."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin

    def run(self, command: str) -> list[str]:
        """Carry out a command; return the lines that follow from it."""
        name, *words = command.split()
        step: Callable[..., list[str]] = getattr(self, f"_{name}")
        return step(**values_of(words))

    def _subscribe(self, group: str, expression: str, model: str = "CLUSTERING", version: int = 5) -> list[str]:
        self.twin.subscribe(group, model, expression, version)
        return []

    def _reset(self, group: str, queue_id: int, offset: int) -> list[str]:
        self.twin.offsets.reset(group, "Orders", queue_id, offset)
        return []

    def _configure(self, **changes: Any) -> list[str]:
        self.twin.config.replace_broker(replace(self.twin.config.broker, **changes))
        return []

    def _pull(self, code: int = 11, **changes: Any) -> list[str]:
        header, twin, counts = pull_header(**changes), self.twin, []
        plan, found = twin.processor.planner.plan(pull_key(code, header)), twin.store.usual_reads.found
        noted = lambda reads, messages: (counts.append(reads), found(reads, messages))  # noqa: E731
        with patch.object(twin.store.usual_reads, "found", noted):
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


def transcript(script: Script, text: str) -> str:
    """Return a transcript with what follows from its commands now."""
    parts = []
    for part in text.strip().split("\n\n"):
        comment = [line for line in part.split("\n") if line.startswith("#")]
        commands = [line for line in part.split("\n----")[0].split("\n") if line and not line.startswith("#")]
        lines = [line for command in commands for line in script.run(command)]
        parts.append("\n".join([*comment, *commands, *(["----", *lines] if lines else [])]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("is_native", ENGINES)
def test_a_kernel_does_what_the_transcript_says(path: Path, is_native: bool) -> None:
    text = path.read_text()
    found = transcript(Script(Twin(is_native)), text)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(found)
    assert found == path.read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_handler_does_the_same(path: Path) -> None:
    text = path.read_text()
    found = transcript(Script(Twin(False, has_kernel=False)), text)
    assert found == text.replace("served by: kernel", "served by: handler")
