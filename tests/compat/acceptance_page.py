"""The table of an acceptance run: which client passes which scenario, at which servers.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.compat.java_client import Outcome

_HEAD: Final = """\
# Clients of all versions, in one run

`python -m tests.compat.acceptance --page docs/compatibility-acceptance.md` runs what is below and writes this page.
Each client is unmodified, and runs all of its scenarios at {servers}. There are a name server and a broker, and for
gRPC a proxy.

RocketMQ's name server and proxy are those of 5.5.0: Maven Central has none of 5.5.1.

A dash is a scenario that a client does not have.
"""
_MESSAGE_CHARS: Final = 200


@dataclass(frozen=True)
class Run:
    """What one client did at one kind of servers; `missing` is the reason why it did not run at all."""

    servers: str
    client: str
    way: str
    scenarios: Sequence[str]
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    missing: str = ""

    def cell(self, scenario: str) -> str:
        """Return the word in the table."""
        if scenario not in self.scenarios:
            return "–"
        if self.missing:
            return "not run"
        return "passes" if self.passed(scenario) else "**fails**"

    def passed(self, scenario: str) -> bool:
        """Say whether the scenario reported success."""
        return scenario in self.outcomes and self.outcomes[scenario].passed

    def why(self, scenario: str) -> str:
        """Return what a failed scenario said."""
        outcome = self.outcomes.get(scenario)
        text = "the scenario never reported" if outcome is None else outcome.message
        return " ".join(text.replace("|", "/").split())[:_MESSAGE_CHARS]

    @property
    def total(self) -> str:
        """How many scenarios passed."""
        return "not run" if self.missing else f"{len(self.scenarios) - len(self.failed)} of {len(self.scenarios)}"

    @property
    def failed(self) -> list[str]:
        """The scenarios that ran without success."""
        return [] if self.missing else [name for name in self.scenarios if not self.passed(name)]


def page(runs: Sequence[Run]) -> str:
    """Return the page; the first kind of servers has the tables, the others what differs from it."""
    servers = list(dict.fromkeys(run.servers for run in runs))
    own, others = servers[0], servers[1:]
    parts = [_HEAD.format(servers=" and ".join(servers))]
    for way in dict.fromkeys(run.way for run in runs):
        table = _table([run for run in runs if (run.way, run.servers) == (way, own)])
        parts.append(f"## {way}\n\nAt {own}:\n\n{table}")
    parts += [f"## {other}\n\n{_differences(runs, own, other)}" for other in others]
    missing = {f"{run.client}: {run.missing}" for run in runs if run.missing}
    if missing:
        parts.append("## Not run\n\n" + "\n".join(f"- {each}" for each in sorted(missing)) + "\n")
    return "\n".join(parts)


def _table(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run.scenarios))
    lines = ["| Scenario | " + " | ".join(run.client for run in runs) + " |", "|---" * (len(runs) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(run.cell(name) for run in runs) + " |" for name in names]
    lines.append("| all | " + " | ".join(run.total for run in runs) + " |")
    failed = [f"- {run.client}, `{name}`: {run.why(name)}" for run in runs for name in run.failed]
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(failed) + "\n" if failed else "")


def _differences(runs: Sequence[Run], own: str, other: str) -> str:
    ours = {run.client: run for run in runs if run.servers == own}
    lines = []
    for run in (run for run in runs if run.servers == other and not run.missing):
        known = ours.get(run.client)
        if known is None or known.missing:
            continue
        for name in run.scenarios:
            if run.passed(name) != known.passed(name):
                told = f"passes here, and fails at {own}" if run.passed(name) else f"fails here: {run.why(name)}"
                lines.append(f"- {run.client}, `{name}`: {told}")
    return "What differs:\n\n" + "\n".join(lines) + "\n" if lines else f"All scenarios end as at {own}.\n"
