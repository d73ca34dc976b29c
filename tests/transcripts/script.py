"""Transcripts: what arrives, its plan, who serves it, and what follows.  One file for each rule.

Each step is a line with a command, a line of dashes, and what follows from it.  `REWRITE_TRANSCRIPTS=1` writes what
happens into the files; read the difference before you commit it.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from sprocket.remoting.bodies.quota import Quota, QuotaTableBody
from sprocket.remoting.bodies.topic import TopicConfig

HERE = Path(__file__).parent
Twin = TypeVar("Twin", bound=Any)


def values_of(words: list[str]) -> dict[str, Any]:
    """Return the values of words like ``name=value``; underscores in a value stand for blanks."""
    pairs = dict(word.split("=", 1) for word in words)
    return {
        name: int(value) if value.lstrip("-").isdigit() else None if value == "null" else value.replace("_", " ")
        for name, value in pairs.items()
    }


class Script(Generic[Twin]):
    """One way to serve requests, driven by the commands of a transcript: each names a method that begins with `_`."""

    def __init__(self, twin: Twin) -> None:
        self.twin = twin

    def run(self, command: str) -> list[str]:
        """Carry out a command; return the lines that follow from it."""
        name, *words = command.split()
        step: Callable[..., list[str]] = getattr(self, f"_{name}")
        return step(**values_of(words))

    def _configure(self, **changes: Any) -> list[str]:
        self.twin.config.replace_broker(replace(self.twin.config.broker, **changes))
        return []

    def _quota(self, name: str, **limits: Any) -> list[str]:
        quotas = self.twin.quotas
        quota = Quota(name, **limits)
        quotas.table.replace(QuotaTableBody(dict(quotas.by_name) | {name: quota}))
        return []

    def _wait(self, s: str) -> list[str]:
        self.twin.clock.advance(float(s))
        return []

    def _store(self, **changes: Any) -> list[str]:
        self.twin.config.store = replace(self.twin.config.store, **changes)
        self.twin.config.plan_version.rise()
        return []

    def _topic(self, name: str, queues: int, perm: int = 6) -> list[str]:
        self.twin.core.topics.by_name[name] = TopicConfig(name, queues, queues, perm=perm)
        self.twin.config.plan_version.rise()
        return []


def transcript(script: Script[Any], text: str) -> str:
    """Return a transcript with what follows from its commands now."""
    parts = []
    for part in text.strip().split("\n\n"):
        comment = [line for line in part.split("\n") if line.startswith("#")]
        commands = [line for line in part.split("\n----")[0].split("\n") if line and not line.startswith("#")]
        lines = [line for command in commands for line in script.run(command)]
        parts.append("\n".join([*comment, *commands, *(["----", *lines] if lines else [])]))
    return "\n\n".join(parts) + "\n"


def compare(script: Script[Any], path: Path) -> None:
    """Compare what happens with a transcript, after it was written again if that is asked for."""
    found = transcript(script, path.read_text())
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(found)
    assert found == path.read_text()


def compare_handler(script: Script[Any], path: Path) -> None:
    """Compare what the handler does, if it serves everything, with the transcript of the kernel."""
    text = path.read_text()
    assert transcript(script, text) == text.replace("served by: kernel", "served by: handler")
